"""Enlist, start, stop and unenlist: what each does to messages that match, and to what is already there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event

import psycopg
import pytest

import settling
from box import AT_ONCE, PROPERTIES, a_publication, deployment, listed
from crossdock.errors import EpochMovedError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.publish import check_epoch
from crossdock.messagebox.subscriptions import Transition
from express import at_ports, claim, delivered_now, deploy, kinds, living, port, publish, rows, unbalanced
from walk import until

NORWAY = {"Region": "NO"}


def test_stopping_keeps_what_is_queued_and_starting_resumes_what_came_meanwhile_in_its_place(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"), port("Other", "Region = 'NO'"))
    publish(agent, NORWAY)

    assert agent.subscriptions.stop("Shipping") == Transition("Shipping", "started", "stopped")
    publish(agent, NORWAY, NORWAY)

    assert at_ports(agent) == {"Shipping": 1, "Other": 3}
    assert kinds(agent) == [("stopped", "Shipping")] * 2
    assert agent.subscriptions.start("Shipping") == Transition("Shipping", "stopped", "started", resumed=2)
    publish(agent, NORWAY)
    assert kinds(agent) == []
    assert unbalanced(database) == []
    mine = [each for each in delivered_now(agent) if each.service_id == service_id(database, "Shipping")]
    assert [each.message.id for each in mine] == sorted(each.message.id for each in mine)
    assert len(mine) == 4


def test_unenlisted_port_matches_nothing_but_what_it_was_given_is_still_delivered(agent: Agent, database: str) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    host = agent.configuration.hosts()["Default"]
    publish(agent, NORWAY, NORWAY)
    with living(agent) as life:
        [failed] = claim(agent, life, limit=1)
        settling.retry(agent, host, life.instance, [(failed.sequence, AT_ONCE, "down")])

        agent.subscriptions.unenlist("Shipping")
        published = publish(agent, NORWAY)

        assert (published.published, published.unrouted) == (0, 1)
        assert agent.configuration.list_subscriptions() == []
        agent.queues.requeue_due(host)
        assert [each.attempt for each in claim(agent, life)] == [1, 0]
    assert unbalanced(database) == []


def test_start_resumes_what_stopping_suspended_also_when_unenlisted_and_enlisted_in_between(agent: Agent) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    agent.subscriptions.stop("Shipping")
    publish(agent, NORWAY)
    agent.subscriptions.unenlist("Shipping")
    assert kinds(agent) == [("stopped", "Shipping")]

    assert agent.subscriptions.enlist("Shipping") == Transition("Shipping", "unenlisted", "stopped")
    publish(agent, NORWAY)
    assert kinds(agent) == [("stopped", "Shipping")] * 2

    assert agent.subscriptions.start("Shipping").resumed == 2
    assert at_ports(agent) == {"Shipping": 2}


def test_unenlisted_port_can_be_started_at_once(agent: Agent) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    agent.subscriptions.unenlist("Shipping")

    assert agent.subscriptions.start("Shipping") == Transition("Shipping", "unenlisted", "started")

    assert publish(agent, NORWAY).references == 1


def test_transitions_that_mean_nothing_are_refused_and_those_already_made_change_nothing(agent: Agent) -> None:
    deploy(agent, port("Started", "Region = 'NO'"), port("Stopped", "Region = 'NO'"), port("Gone", "Region = 'NO'"))
    agent.subscriptions.stop("Stopped")
    agent.subscriptions.unenlist("Gone")
    epoch = agent.epoch()

    for verb, name in (
        (agent.subscriptions.enlist, "Started"),
        (agent.subscriptions.enlist, "Stopped"),
        (agent.subscriptions.stop, "Gone"),
    ):
        with pytest.raises(UsageError, match=f"Send port '{name}' is"):
            verb(name)
    for verb, name in (
        (agent.subscriptions.start, "Started"),
        (agent.subscriptions.stop, "Stopped"),
        (agent.subscriptions.unenlist, "Gone"),
    ):
        transition = verb(name)
        assert transition.before == transition.after
    assert agent.epoch() == epoch


def test_names_that_are_not_deployed_are_refused(agent: Agent) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"), port("Dropped", "Region = 'NO'"))
    deploy(agent, port("Shipping", "Region = 'NO'"))

    for verb in (
        agent.subscriptions.enlist,
        agent.subscriptions.start,
        agent.subscriptions.stop,
        agent.subscriptions.unenlist,
    ):
        for name in ("Dropped", "shipping", "", "no\u2028where"):
            with pytest.raises(UsageError, match="There is no send port"):
                verb(name)
    for enabled in (True, False):
        with pytest.raises(UsageError, match="There is no receive location 'Nowhere'"):
            agent.subscriptions.enable("Nowhere", enabled=enabled)


def test_redeployment_keeps_what_an_operator_stopped_or_unenlisted_and_starting_it_uses_the_new_filter(
    agent: Agent,
) -> None:
    deploy(agent, port("Stopped", "Region = 'NO'"), port("Unenlisted", "Region = 'NO'"))
    agent.subscriptions.stop("Stopped")
    agent.subscriptions.unenlist("Unenlisted")

    assert deploy(agent, port("Stopped", "Region = 'SE'"), port("Unenlisted", "Region = 'SE'"))
    publish(agent, {"Region": "SE"})

    assert {row.name: row.state for row in agent.configuration.list_ports()} == {
        "Stopped": "stopped",
        "Unenlisted": "unenlisted",
    }
    assert kinds(agent) == [("stopped", "Stopped")]
    agent.subscriptions.start("Stopped")
    agent.subscriptions.start("Unenlisted")
    publish(agent, {"Region": "SE"}, NORWAY)
    assert at_ports(agent) == {"Stopped": 2, "Unenlisted": 1}


def test_port_that_was_dropped_and_declared_again_starts_anew_and_gets_what_waited_for_its_start(
    agent: Agent, database: str
) -> None:
    shipping = port("Shipping", "Region = 'NO'")
    deploy(agent, shipping)
    agent.subscriptions.stop("Shipping")
    publish(agent, NORWAY)
    deploy(agent)
    assert publish(agent, NORWAY).unrouted == 1

    deploy(agent, shipping)

    assert [row.state for row in agent.configuration.list_ports()] == ["started"]
    publish(agent, NORWAY)
    assert at_ports(agent) == {"Shipping": 2}
    assert kinds(agent) == [("unrouted", None)]
    assert unbalanced(database) == []


def test_port_that_moved_to_another_host_is_resumed_there(agent: Agent) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    agent.subscriptions.stop("Shipping")
    publish(agent, NORWAY)

    deploy(agent, port("Shipping", "Region = 'NO'", host="Elsewhere"))
    agent.subscriptions.start("Shipping")

    assert delivered_now(agent) == []
    assert len(delivered_now(agent, "Elsewhere")) == 1


def test_delivery_that_fails_after_its_port_moved_to_another_host_is_tried_again_there(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    publish(agent, NORWAY)
    with living(agent) as life:
        [reference] = claim(agent, life)

        deploy(agent, port("Shipping", "Region = 'NO'", host="Elsewhere"))
        settling.retry(
            agent, agent.configuration.hosts()["Default"], life.instance, [(reference.sequence, AT_ONCE, "down")]
        )

    assert agent.queues.requeue_due(agent.configuration.hosts()["Elsewhere"]) == 1
    assert [each.attempt for each in delivered_now(agent, "Elsewhere")] == [1]
    assert unbalanced(database) == []


def test_what_is_queued_in_order_is_delivered_also_when_its_port_moves_to_another_host(agent: Agent) -> None:
    ordered = port("Ledger", "Region = 'NO'", ordered=True)
    deploy(agent, ordered)
    publish(agent, NORWAY)

    deploy(agent, replace(ordered, host="Elsewhere"))
    publish(agent, NORWAY)

    assert taken_in_order(agent) == 2


def test_what_is_being_delivered_in_order_while_its_port_moves_to_another_host_is_not_stranded(
    agent: Agent, database: str
) -> None:
    ordered = port("Ledger", "Region = 'NO'", ordered=True)
    deploy(agent, ordered)
    publish(agent, NORWAY, NORWAY)
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        first, second = agent.queues.dequeue_ordered(host, life.instance, limit=10)

        deploy(agent, replace(ordered, host="Elsewhere"))
        back = settling.SubqueueOutcome(
            failed=first.sequence, blocked_for=AT_ONCE, reason="down", untried=[second.sequence]
        )
        settling.settle_subqueue(agent, host, life.instance, first.service_id, back)

    assert taken_in_order(agent) == 2
    assert unbalanced(database) == []


def test_what_a_member_was_given_before_it_left_its_group_goes_along_when_its_port_moves(agent: Agent) -> None:
    ordered = port("Ledger", ordered=True)
    member = port("Books/Ledger", "Region = 'NO'", ordered=True, group="Books", port="Ledger")
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], [ordered, member], {}, ["Books"]))
    publish(agent, NORWAY)

    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], [replace(ordered, host="Elsewhere")]))

    assert taken_in_order(agent) == 1


def test_line_that_a_failure_stopped_while_its_port_moved_to_another_host_stays_stopped(agent: Agent) -> None:
    ordered = port("Ledger", "Region = 'NO'", ordered=True)
    deploy(agent, ordered)
    publish(agent, NORWAY, NORWAY)
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        first, second = agent.queues.dequeue_ordered(host, life.instance, limit=10)

        deploy(agent, replace(ordered, host="Elsewhere"))
        stopped = settling.SubqueueOutcome(
            suspended=[(first.sequence, "no")], untried=[second.sequence], stopped_by=first.sequence
        )
        settling.settle_subqueue(agent, host, life.instance, first.service_id, stopped)
    agent.queues.unblock_subqueues(agent.configuration.hosts()["Elsewhere"])

    assert taken_in_order(agent) == 0


def test_group_may_have_the_name_of_a_port_that_is_gone(agent: Agent) -> None:
    deploy(agent, port("Books"))
    member = port("Books/Ledger", "Region = 'NO'", group="Books", port="Ledger")
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], [port("Ledger"), member], {}, ["Books"]))

    assert agent.subscriptions.stop("Books") == Transition("Books", "started", "stopped")


def test_operators_choice_about_a_location_survives_a_deployment(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    [sequence] = listed(agent, "a")
    read_by = agent.location_epoch()
    publication = a_publication(agent, sequence, NORWAY)

    assert agent.subscriptions.enable("orders.in", enabled=False)
    assert not agent.subscriptions.enable("orders.in", enabled=False)
    agent.subscriptions.deploy(deployment(A="Region = 'SE'"))

    assert [row.enabled for row in agent.configuration.list_locations()] == [False]
    with pytest.raises(EpochMovedError):
        agent.publish([publication], location_epoch=read_by)
    assert agent.subscriptions.enable("orders.in", enabled=True)
    assert len(agent.configuration.locations()) == 1


def test_location_that_a_deployment_dropped_is_not_enabled_by_hand_and_comes_back_enabled(agent: Agent) -> None:
    with_location = deployment()
    agent.subscriptions.deploy(with_location)
    agent.subscriptions.enable("orders.in", enabled=False)
    agent.subscriptions.deploy(replace(with_location, locations=[]))

    with pytest.raises(UsageError, match=r"There is no receive location 'orders\.in'"):
        agent.subscriptions.enable("orders.in", enabled=True)
    agent.subscriptions.deploy(with_location)

    assert [row.enabled for row in agent.configuration.list_locations()] == [True]


def test_priority_decides_what_is_claimed_first(agent: Agent, database: str) -> None:
    deploy(
        agent,
        port("Later", "Region = 'NO'", priority=10),
        port("Usual", "Region = 'NO'"),
        port("First", "Region = 'NO'", priority=1),
    )
    publish(agent, NORWAY, NORWAY)
    names = dict(rows(database, "SELECT id, name FROM service"))

    with living(agent) as life:
        order = [names[each.service_id] for _ in range(6) for each in claim(agent, life, limit=1)]

    assert order == ["First", "First", "Usual", "Usual", "Later", "Later"]


def test_starting_wakes_the_host_and_is_seen_by_instances_that_have_gone_past(agent: Agent, database: str) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"), port("Busy", "Region = 'NO'"))
    agent.subscriptions.stop("Shipping")
    publish(agent, *[NORWAY] * 20)
    delivered_now(agent)
    with Agent(database) as operator, living(agent) as life:
        publish(agent, NORWAY)
        assert len(claim(agent, life)) == 1
        list(iter(lambda: life.wait(0), False))

        operator.subscriptions.start("Shipping")

        assert life.wait(10)
        found = 0

        def all_there() -> bool:
            nonlocal found
            found += len(claim(agent, life))
            return found == 21

        until(all_there, 10)


def test_no_message_stays_suspended_after_the_start_that_should_have_resumed_it(agent: Agent, database: str) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    done = Event()

    def publish_on() -> int:
        sent = 0
        while not done.is_set():
            sent += publish(agent, NORWAY, NORWAY).published
        return sent

    with ThreadPoolExecutor(3) as pool:
        publishers = [pool.submit(publish_on) for _ in range(3)]
        try:
            with Agent(database) as operator:
                for _ in range(15):
                    operator.subscriptions.stop("Shipping")
                    operator.subscriptions.start("Shipping")
        finally:
            done.set()
        sent = sum(publisher.result() for publisher in publishers)

    assert kinds(agent) == []
    assert at_ports(agent) == {"Shipping": sent}
    assert unbalanced(database) == []


def test_host_that_is_deployed_while_somebody_publishes_holds_up_nobody(agent: Agent, database: str) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    epoch, host = agent.epoch(), agent.configuration.hosts()["Default"]

    with psycopg.connect(database, options="-csearch_path=crossdock") as publisher, ThreadPoolExecutor(1) as pool:
        publisher.execute(  # as far as publishing has come before its last step
            "INSERT INTO queue (host_id, priority, message_id, subscription_id, service_id)"
            " VALUES (%s, 5, gen_random_uuid(), 1, 1)",
            [host],
        )
        deployed = pool.submit(deploy, agent, port("Shipping", "Region = 'NO'", host="New"))
        until(lambda: deployed.done() or _waits_for_a_lock(database), 10)
        with suppress(EpochMovedError):
            check_epoch(publisher, epoch)
        publisher.rollback()

        assert deployed.result()


def taken_in_order(agent: Agent) -> int:
    """How many references of ordered ports somebody can take, whichever host has them."""
    found = 0
    for name, host in agent.configuration.hosts().items():
        with living(agent, name) as life:
            while references := agent.queues.dequeue_ordered(host, life.instance, limit=10):
                found += len(references)
                delivered = settling.SubqueueOutcome(completed=[each.sequence for each in references])
                settling.settle_subqueue(agent, host, life.instance, references[0].service_id, delivered)
    return found


def _waits_for_a_lock(database: str) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(rows(database, query))


def service_id(database: str, name: str) -> int:
    [(found,)] = rows(database, "SELECT id FROM service WHERE name = %s", name)
    return int(found)
