"""`explain`: every subscription of a message's day, what its filter says of the message, and where each copy is."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import index_cases
import settling
from box import a_publication, deployment, listed
from crossdock.administration.explain import ExplainedMessage, ExplainedSubscription, FailedPredicate
from crossdock.administration.message_ids import short_id
from crossdock.administration.service import Administration
from crossdock.errors import UsageError
from crossdock.message.property import Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort, Deployment
from crossdock.messagebox.settle import Complete, Retry, Settlement, Suspend
from crossdock.subscription.predicate import Filter, Group
from express import a_message, claim, deploy, living, port, publish
from server_clock import shift_clock

ORDER: dict[str, Value] = {"BTS.MessageType": "Order", "Region": "NO", "Amount": Decimal("12.50")}


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


def row(explained: ExplainedMessage, name: str) -> ExplainedSubscription:
    [found] = [each for each in explained.subscriptions if each.name == name]
    return found


def test_every_subscription_is_explained_with_what_it_met(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(
        deployment(Wants="Region = 'NO'", Large="Amount >= 1000 AND Region = 'NO'", Abroad="NOT EXISTS(Region)")
    )
    message = a_message(agent, ORDER)
    publish(agent, message)

    explained = service.explain(str(message.id))

    assert (explained.id, explained.type, explained.filters) == (str(message.id), "Order", "then")
    assert {each.name: each.state for each in explained.subscriptions} == {
        "Wants": "queued", "Large": "not matched", "Abroad": "not matched",
    }  # fmt: skip
    assert row(explained, "Large").failed == [FailedPredicate("Amount >= 1000", "12.50")]
    assert row(explained, "Abroad").failed == [FailedPredicate("NOT EXISTS(Region)", "NO")]
    assert [(each.name, each.holding) for each in explained.nearest] == [("Large", 1), ("Abroad", 0)]


def test_message_is_explained_by_the_filters_of_its_day_three_deployments_later(
    agent: Agent, service: Administration
) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'SE'"))
    message = a_message(agent, ORDER)
    publish(agent, message)
    for region in ("SE", "DK", "FI"):
        agent.subscriptions.deploy(deployment(A=f"Region = '{region}'", C="Region = 'NO'"))

    then, now = service.explain(str(message.id)), service.explain(str(message.id), now=True)

    assert {each.name: each.matched for each in then.subscriptions} == {"A": True, "B": False}
    assert {each.name: each.matched for each in now.subscriptions} == {"A": False, "C": True}
    assert row(now, "A").failed == [FailedPredicate("Region = 'FI'", "NO")]
    assert row(now, "C").state == "not given"


def test_refusal_names_the_labels(agent: Agent, service: Administration) -> None:
    hosts = {"Open": (), "Secret": ("secret",)}
    deploy(agent, port("A", "Region = 'NO'", host="Open"), port("B", "Region = 'NO'", host="Secret"), hosts=hosts)
    message = a_message(agent, ORDER, labels=["secret"])
    publish(agent, message)

    explained = service.explain(str(message.id))

    assert {each.name: (each.matched, each.state) for each in explained.subscriptions} == {
        "A": (True, "refused"), "B": (True, "queued"),
    }  # fmt: skip
    assert list(row(explained, "A").labels) == ["secret"]


def test_message_that_nobody_wanted_has_a_row_for_everybody_and_its_reason(
    agent: Agent, service: Administration
) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'SE'", B="Amount > 100"))
    message = a_message(agent, ORDER)
    publish(agent, message)

    explained = service.explain(str(message.id))

    assert {each.name: each.state for each in explained.subscriptions} == {"A": "not matched", "B": "not matched"}
    assert explained.code == "no-subscriber"


def test_message_that_is_tracked_no_longer_is_explained_from_the_box(
    agent: Agent, service: Administration, database: str
) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'SE'"))
    shift_clock(database, timedelta(minutes=1))
    given, unrouted = a_message(agent, ORDER), a_message(agent, {"Region": "XX"})
    publish(agent, given, unrouted)
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM crossdock.track_few")
    shift_clock(database, timedelta(minutes=2))
    agent.subscriptions.deploy(deployment(A="Region = 'DK'"))

    first, second = service.explain(str(given.id)), service.explain(str(unrouted.id))

    assert (first.tracked, first.epoch) == (False, None)
    assert {each.name: (each.matched, each.state) for each in first.subscriptions} == {
        "A": (True, "queued"), "B": (False, "not matched"),
    }  # fmt: skip
    assert second.code == "no-subscriber"
    assert [event.event for event in service.trace(str(given.id)).events] == ["published", "queued"]


def test_what_became_of_a_copy_is_not_made_up_where_the_message_is_not_tracked(
    agent: Agent, service: Administration, database: str
) -> None:
    deploy(agent, port("Delivered", "Region = 'NO'"), port("Waiting", "Region = 'NO'"))
    message = a_message(agent, ORDER)
    publish(agent, message)
    with living(agent) as life:
        first, second = sorted(claim(agent, life), key=lambda each: each.service_id)
        agent.settle(life.instance, [Complete(first), Suspend(second, "the partner refused it")])
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM crossdock.track_few")

    explained, now = service.explain(str(message.id)), service.explain(str(message.id), now=True)

    for each in (explained, now):
        assert (row(each, "Delivered").matched, row(each, "Delivered").state) == (True, "unknown")
        assert row(each, "Waiting").state == "suspended"


def test_message_that_was_routed_later_shows_the_copy_that_nobody_gave_at_first(
    agent: Agent, service: Administration
) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'SE'", B="Region = 'SE'"))
    message = a_message(agent, ORDER)
    publish(agent, message)
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'SE'"))
    agent.route_again([message.id])

    explained = service.explain(str(message.id))

    assert {each.name: (each.matched, each.state) for each in explained.subscriptions} == {
        "A": (False, "queued"), "B": (False, "not matched"),
    }  # fmt: skip


def test_one_subscription_can_be_asked_about(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(Invoices="Region = 'SE' OR Amount > 100", Other="Region = 'NO'"))
    message = a_message(agent, ORDER)
    publish(agent, message)

    [explained] = service.explain(str(message.id), subscription="Invoices").subscriptions

    shown = [[(each.predicate, each.actual, each.holds) for each in group] for group in explained.groups]
    assert shown == [[("Region = 'SE'", "NO", False)], [("Amount > 100", "12.50", False)]]
    with pytest.raises(UsageError, match="Did you mean 'Invoices'"):
        service.explain(str(message.id), subscription="Invoice")


def test_port_that_is_named_matches_by_its_address(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'SE'", B="Region = 'SE'"))
    message = a_message(agent, {"BTS.SPTransportID": agent.configuration.transport_id("A"), **ORDER})
    publish(agent, message)

    explained = service.explain(str(message.id))

    assert {each.name: each.state for each in explained.subscriptions} == {"A": "queued", "B": "not matched"}
    assert any("BTS.SPTransportID" in each.predicate for group in row(explained, "A").groups for each in group)


def test_short_id_names_the_message(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    [sequence] = listed(agent, "a")
    publication = a_publication(agent, sequence, ORDER, ORDER)
    agent.publish([publication])

    explained = service.explain(f"{sequence}-1")

    assert explained.id == str(publication.messages[1].id)
    assert short_id(publication.messages[1].id) == f"{sequence}-1"


@pytest.mark.parametrize("unknown", ["99999-0", "00000000-0000-8000-8000-00000000beef", "999999999999999-99999999999"])
def test_unknown_id_is_a_sentence_with_the_next_step(service: Administration, unknown: str) -> None:
    for ask in (service.explain, service.trace, service.describe):
        with pytest.raises(
            UsageError, match=f"There is no message {unknown}: .*with: crossdock get messages"
        ) as refused:
            ask(unknown)
        assert refused.value.exit_code == 2


def test_instance_is_no_message(service: Administration) -> None:
    with pytest.raises(UsageError, match="is an instance, not a message"):
        service.explain("0198c0de-0000-7000-8000-000000000001")


Filters = list[tuple[Group, ...]]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(index_cases.groups(), min_size=1, max_size=6), promoted=index_cases.messages())
def test_explained_is_what_the_router_says(
    agent: Agent, service: Administration, drawn: Filters, promoted: dict[str, Value]
) -> None:
    ports = [DeployedPort(f"P{n}", "Default", 5, Filter(groups), {}) for n, groups in enumerate(drawn)]
    agent.subscriptions.deploy(Deployment("drawn", index_cases.TYPES, [], ports))
    routed = {each.service for each in agent.router().route(promoted)}
    message = a_message(agent, promoted)
    publish(agent, message)

    explained = service.explain(str(message.id))

    said: dict[str, Any] = {each.name: each for each in explained.subscriptions}
    assert said.keys() == {each.name for each in ports}
    assert {name for name, each in said.items() if each.matched} == routed
    assert {name for name, each in said.items() if each.state == "queued"} == routed
    for name, each in said.items():
        held = [all(one.holds for one in group) and bool(group) for group in each.groups]
        assert any(held) == (name in routed)
        assert bool(each.failed) <= (name not in routed)


def test_delivered_message_is_explained(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    message = a_message(agent, ORDER)
    publish(agent, message)
    with living(agent) as life:
        agent.settle(life.instance, [Complete(each) for each in claim(agent, life)])
    agent.subscriptions.unenlist("A")
    with psycopg.connect(agent.database) as connection:
        connection.execute("DELETE FROM crossdock.message")

    explained = service.explain(str(message.id))

    assert [(each.name, each.matched, each.state) for each in explained.subscriptions] == [("A", True, "delivered")]


def test_where_each_copy_is(agent: Agent, service: Administration) -> None:
    names = ("Claimed", "Delivered", "Failed", "Queued", "Stopped", "Waiting")
    deploy(agent, *[port(name, "Region = 'NO'", priority=2 if name == "Queued" else 1) for name in names])
    agent.subscriptions.stop("Stopped")
    message = a_message(agent, ORDER)
    publish(agent, message)
    services = agent.configuration.service_names()
    with living(agent) as life:
        taken = {services[each.service_id]: each for each in claim(agent, life, limit=4)}
        outcomes: list[Settlement] = [
            Complete(taken["Delivered"]),
            Retry(taken["Waiting"], timedelta(hours=1), "the partner is away"),
            Suspend(taken["Failed"], "the partner refused it"),
        ]
        agent.settle(life.instance, outcomes)

        explained = service.explain(str(message.id))

    assert {each.name: each.state for each in explained.subscriptions} == {
        "Claimed": "claimed", "Delivered": "delivered", "Failed": "suspended", "Queued": "queued",
        "Stopped": "suspended", "Waiting": "waiting",
    }  # fmt: skip
    waiting, failed = row(explained, "Waiting"), row(explained, "Failed")
    assert (waiting.attempt, waiting.reason) == (2, "the partner is away")
    assert waiting.at is not None
    assert waiting.at > explained.received_at + timedelta(minutes=30)
    assert (failed.code, failed.reason) == ("delivery-failed", "the partner refused it")
    assert row(explained, "Stopped").code == "port-stopped"
    assert row(explained, "Delivered").attempt == 1


def test_copies_at_an_ordered_port_that_is_blocked_wait_and_say_for_what(agent: Agent, service: Administration) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    first, second = a_message(agent, ORDER), a_message(agent, ORDER)
    publish(agent, first)
    publish(agent, second)
    host = agent.configuration.hosts()["Default"]

    with living(agent) as life:
        [failed] = agent.queues.dequeue_ordered(host, life.instance, limit=1)
        outcome = settling.SubqueueOutcome(failed=failed.sequence, blocked_for=timedelta(minutes=5), reason="no answer")
        settling.settle_subqueue(agent, host, life.instance, failed.service_id, outcome)

    at_first, behind = (row(service.explain(str(each.id)), "Line") for each in (first, second))
    assert (at_first.state, at_first.attempt, at_first.reason) == ("waiting", 2, "no answer")
    assert (behind.state, behind.attempt) == ("waiting", 1)
    assert behind.reason == f"Its port is ordered, and message {first.id} is before it: no answer"
    assert at_first.at == behind.at == service.waiting()[0].due_at
    assert [each.state for each in service.messages().messages] == ["waiting", "waiting"]
    assert [each.event for each in service.trace(str(first.id)).events] == ["published", "retried"]
    assert [(each.event, each.reason) for each in service.trace(str(second.id)).events][1:] == [
        ("queued", behind.reason)
    ]


def test_copy_behind_a_suspended_one_of_an_ordered_port_names_it(agent: Agent, service: Administration) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    first, second = a_message(agent, ORDER), a_message(agent, ORDER)
    publish(agent, first)
    publish(agent, second)
    host = agent.configuration.hosts()["Default"]

    with living(agent) as life:
        [failed] = agent.queues.dequeue_ordered(host, life.instance, limit=1)
        outcome = settling.SubqueueOutcome(suspended=[(failed.sequence, "refused")], stopped_by=failed.sequence)
        settling.settle_subqueue(agent, host, life.instance, failed.service_id, outcome)

    behind = row(service.explain(str(second.id)), "Line")
    assert (behind.state, behind.at) == ("waiting", None)
    assert behind.reason == f"Its port is ordered, and first somebody has to deal with suspended message {first.id}."
