"""Publishing meets whoever changes subscriptions or ends instances: nothing is lost, doubled or left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

import settling
from box import count, deployment, ids
from crossdock.messagebox.agent import Agent
from interleave import (
    PATIENCE_SECONDS,
    a_message,
    a_port,
    an_application,
    an_unrouted_message,
    dies,
    gate,
    living,
    open_transaction,
    places,
    publisher_before_its_commit,
    publisher_before_its_references,
    until_somebody_waits_for,
    until_waiting,
    waiting,
)
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


# Publishing and changes of subscriptions


def test_start_waits_for_a_publisher_that_found_the_port_stopped_and_resumes_its_message(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="stopped")

    with publisher_before_its_commit(agent, database, a_message(agent)) as publisher:
        starting = aside.submit(agent.subscriptions.start, "Port")
        until_somebody_waits_for(database, publisher)

    assert starting.result(PATIENCE_SECONDS).resumed == 1
    assert places(database) == {"queued": 1}


def test_publisher_that_matched_before_a_start_does_not_suspend_after_it(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="stopped")

    with publisher_before_its_references(agent, database, aside, a_message(agent)) as publishing:
        agent.subscriptions.start("Port")

    assert publishing.result(PATIENCE_SECONDS).references == 1
    assert places(database) == {"queued": 1}


def test_publisher_that_comes_in_the_middle_of_a_start_waits_and_queues(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="stopped")
    agent.publish([a_message(agent, "earlier")])
    late = a_message(agent, "late")

    with open_transaction(database) as blocker:
        blocker.execute("SELECT FROM suspended FOR UPDATE")
        starting = aside.submit(agent.subscriptions.start, "Port")
        until_somebody_waits_for(database, blocker)
        publishing = aside.submit(agent.publish, [late])
        until_waiting(database, 2)

    assert starting.result(PATIENCE_SECONDS).resumed == 1
    assert publishing.result(PATIENCE_SECONDS).references == 1
    assert places(database) == {"queued": 2}


def test_stop_waits_for_a_publisher_and_leaves_what_it_gave_in_the_queue(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent)

    with publisher_before_its_commit(agent, database, a_message(agent)) as publisher:
        stopping = aside.submit(agent.subscriptions.stop, "Port")
        until_somebody_waits_for(database, publisher)

    assert stopping.result(PATIENCE_SECONDS).after == "stopped"
    assert places(database) == {"queued": 1}


def test_publisher_that_matched_before_a_stop_suspends_and_the_next_start_resumes(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent)

    with publisher_before_its_references(agent, database, aside, a_message(agent)) as publishing:
        agent.subscriptions.stop("Port")

    assert publishing.result(PATIENCE_SECONDS).published == 1
    assert places(database) == {"suspended stopped": 1}
    assert agent.subscriptions.start("Port").resumed == 1
    assert places(database) == {"queued": 1}


def test_unenlist_waits_for_a_publisher_and_leaves_what_it_gave_in_the_queue(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent)

    with publisher_before_its_commit(agent, database, a_message(agent)) as publisher:
        unenlisting = aside.submit(agent.subscriptions.unenlist, "Port")
        until_somebody_waits_for(database, publisher)

    assert unenlisting.result(PATIENCE_SECONDS).after == "unenlisted"
    assert places(database) == {"queued": 1}


def test_publisher_that_matched_before_an_unenlist_keeps_the_message_as_unrouted(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent)

    with publisher_before_its_references(agent, database, aside, a_message(agent)) as publishing:
        agent.subscriptions.unenlist("Port")

    assert publishing.result(PATIENCE_SECONDS).unrouted == 1
    assert places(database) == {"suspended unrouted": 1}


def test_enlist_waits_for_a_publisher_whose_message_nobody_wanted_and_it_can_be_routed_again(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="unenlisted")

    with publisher_before_its_commit(agent, database, a_message(agent)) as publisher:
        enlisting = aside.submit(agent.subscriptions.enlist, "Port")
        until_somebody_waits_for(database, publisher)

    assert enlisting.result(PATIENCE_SECONDS).after == "stopped"
    assert list(agent.route_again([row.id for row in agent.suspended.messages()]).values()) == [True]
    assert places(database) == {"suspended stopped": 1}


def test_publisher_that_matched_before_an_enlist_gives_to_the_new_subscription(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="unenlisted")

    with publisher_before_its_references(agent, database, aside, a_message(agent)) as publishing:
        agent.subscriptions.enlist("Port")

    assert publishing.result(PATIENCE_SECONDS).unrouted == 0
    assert places(database) == {"suspended stopped": 1}


def test_deployment_on_a_new_host_and_a_publisher_in_the_middle_both_come_through(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    publication = a_message(agent)

    with gate(database, "AFTER INSERT ON queue") as closed, Agent(closed.database) as slow:
        publishing = aside.submit(slow.publish, [publication])
        closed.until_reached()  # by then the publisher has locked the queue
        deploying = aside.submit(agent.subscriptions.deploy, an_application("Second", host="Other"))
        until(lambda: deploying.done() or waiting(database) == 2, PATIENCE_SECONDS)
        closed.open()
        references = publishing.result(PATIENCE_SECONDS).references

    assert deploying.result(PATIENCE_SECONDS)
    assert places(database) == {"queued": references}


def test_unrouted_message_that_two_route_at_once_is_given_once(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    unrouted = an_unrouted_message(agent)

    with open_transaction(database) as blocker:
        blocker.execute("SELECT FROM suspended FOR UPDATE")
        routing = [aside.submit(agent.route_again, [unrouted]) for _ in range(2)]
        until_somebody_waits_for(database, blocker)

    assert sorted(each.result(PATIENCE_SECONDS).get(unrouted, False) for each in routing) == [False, True]
    assert places(database) == {"queued": 1}


def test_unrouted_message_that_is_terminated_while_it_is_routed_again_keeps_its_new_reference(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    unrouted = an_unrouted_message(agent)

    with open_transaction(database) as blocker:
        blocker.execute("LOCK TABLE queue IN SHARE MODE")
        routing = aside.submit(agent.route_again, [unrouted])
        until_somebody_waits_for(database, blocker)
        terminating = aside.submit(agent.suspended.terminate, [unrouted])
        until_waiting(database, 2)

    assert routing.result(PATIENCE_SECONDS) == {unrouted: True}
    assert terminating.result(PATIENCE_SECONDS) == {}
    assert places(database) == {"queued": 1}


def test_port_that_goes_while_stopped_and_comes_back_started_takes_up_what_it_had_suspended(
    agent: Agent, database: str
) -> None:
    a_port(agent, state="stopped")
    agent.publish([a_message(agent)])

    agent.subscriptions.deploy(deployment())
    a_port(agent)

    assert [port.state for port in agent.configuration.list_ports()] == ["started"]
    assert places(database) == {"queued": 1}


# Running instances


def test_instance_that_ends_waits_for_a_publisher_that_found_it_and_its_message_is_discarded(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    instance = waiting_instance(agent)

    with publisher_before_its_commit(agent, database, a_message(agent)) as publisher:
        ending = aside.submit(agent.subscriptions.end_instance, instance)
        until_somebody_waits_for(database, publisher)

    assert ending.result(PATIENCE_SECONDS) == 1
    assert places(database) == {"suspended discarded": 1}


def test_publisher_that_comes_while_an_instance_ends_gives_it_nothing(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    instance = waiting_instance(agent)
    agent.publish([a_message(agent, "earlier")])
    late = a_message(agent, "late")

    with open_transaction(database) as blocker:
        blocker.execute("SELECT FROM queue FOR UPDATE")
        ending = aside.submit(agent.subscriptions.end_instance, instance)
        until_somebody_waits_for(database, blocker)
        publishing = aside.submit(agent.publish, [late])
        until_waiting(database, 2)

    assert ending.result(PATIENCE_SECONDS) == 1
    assert publishing.result(PATIENCE_SECONDS).unrouted == 1
    assert places(database) == {"suspended discarded": 1, "suspended unrouted": 1}


def test_reference_that_is_being_claimed_while_its_instance_ends_stays_with_the_claimer(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    instance = waiting_instance(agent)
    host = ids(agent)[1]
    agent.publish([a_message(agent)])
    with living(agent, host) as life:
        with gate(database, f"AFTER DELETE ON queue_{host}") as closed, Agent(closed.database) as slow:
            claiming = aside.submit(slow.queues.dequeue, host, life.instance, limit=9)
            closed.until_reached()
            ending = aside.submit(agent.subscriptions.end_instance, instance)
            until_waiting(database, 2)
            closed.open()
            [reference] = claiming.result(PATIENCE_SECONDS)

        assert ending.result(PATIENCE_SECONDS) == 0
        assert reference.instance == instance
        assert places(database) == {"claimed": 1}
        settling.complete(agent, host, life.instance, [reference.sequence])

    assert places(database) == {}


def test_release_waits_for_a_publisher_that_found_a_dead_instance_and_suspends_its_message(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = a_port(agent, "SE")
    with living(agent, host) as life:
        agent.subscriptions.subscribe_instance("Port", uuid4(), {"Region": "NO"}, bound_to=life.instance)
        dies(database, life)

    with publisher_before_its_commit(agent, database, a_message(agent)) as publisher:
        releasing = aside.submit(agent.queues.release_dead, host)
        until_somebody_waits_for(database, publisher)

    releasing.result(PATIENCE_SECONDS)
    assert places(database) == {"suspended response": 1}


def test_publisher_that_comes_while_a_dead_instance_is_released_gives_it_nothing(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = a_port(agent, "SE")
    with living(agent, host) as life:
        agent.subscriptions.subscribe_instance("Port", uuid4(), {"Region": "NO"}, bound_to=life.instance)
        agent.publish([a_message(agent, "earlier")])
        dies(database, life)
    late = a_message(agent, "late")

    with gate(database, "AFTER DELETE ON instance_subscription") as closed, Agent(closed.database) as slow:
        releasing = aside.submit(slow.queues.release_dead, host)
        closed.until_reached()
        publishing = aside.submit(agent.publish, [late])
        until_waiting(database, 2)
        closed.open()
        releasing.result(PATIENCE_SECONDS)

    assert publishing.result(PATIENCE_SECONDS).unrouted == 1
    assert places(database) == {"suspended response": 1, "suspended unrouted": 1}


def test_subscription_that_a_dead_instance_made_too_late_is_taken_away(agent: Agent, database: str) -> None:
    host = a_port(agent, "SE")
    with living(agent, host) as life:
        dies(database, life)
    agent.queues.release_dead(host)

    agent.subscriptions.subscribe_instance("Port", uuid4(), {"Region": "NO"}, bound_to=life.instance)
    agent.queues.release_dead(host)

    assert count(database, "instance_subscription") == 0


def waiting_instance(agent: Agent) -> UUID:
    """A running instance that waits for the region NO, which nobody else wants."""
    a_port(agent, "SE")
    instance = uuid4()
    agent.subscriptions.subscribe_instance("Port", instance, {"Region": "NO"})
    return instance
