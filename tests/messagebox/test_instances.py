"""Subscriptions of running instances: found by correlation values, bound to a process, gone with the instance."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from uuid import uuid4

import pytest

import acting
import settling
from box import AT_ONCE, count
from crossdock.errors import UsageError
from crossdock.message.property import Value
from crossdock.messagebox.agent import Agent
from express import a_message, at_ports, claim, delivered_now, deploy, kinds, living, port, publish, rows, unbalanced
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


@pytest.fixture
def waiting(agent: Agent) -> Agent:
    """A service that is given nothing but what its instances wait for."""
    deploy(agent, port("Process"), port("Activated", "Region = 'NEW'"))
    return agent


def test_values_that_compare_as_equal_correlate_and_others_do_not(waiting: Agent, database: str) -> None:
    waited: Mapping[str, Value] = {"Region": "Straße ", "Amount": Decimal("1.00")}
    instance = uuid4()
    waiting.subscriptions.subscribe_instance("Process", instance, waited)
    same: list[Mapping[str, Value]] = [
        {"Region": "straSSE", "Amount": Decimal("1.0"), "BTS.MessageType": "Order"},
        {"Region": "STRASSE   ", "Amount": Decimal("1E+0")},
    ]
    different: list[Mapping[str, Value]] = [
        {"Region": "straSSE", "Amount": Decimal("1.000000000000000001")},
        {"Region": " strasse", "Amount": Decimal(1)},
        {"Region": "strasse"},
        {"Amount": Decimal(1)},
        {"Region": "strasse1", "Amount": Decimal("1.00")},
    ]

    published = publish(waiting, *same, *different)

    assert (published.published, published.unrouted, published.references) == (2, 5, 2)
    references = delivered_now(waiting)
    assert [each.instance for each in references] == [instance, instance]
    assert unbalanced(database) == []


def test_what_is_published_together_comes_to_an_instance_in_its_order(waiting: Agent) -> None:
    instance = uuid4()
    for waited in ({"Region": "A"}, {"Region": "B"}, {"Amount": Decimal(7)}):
        waiting.subscriptions.subscribe_instance("Process", instance, waited)
    drawn: list[Mapping[str, Value]] = [{"Region": "A"}, {"Amount": Decimal(7)}, {"Region": "B"}]
    messages = [a_message(waiting, drawn[number * 7 % 3]) for number in range(60)]

    publish(waiting, *messages)

    assert [each.message.id for each in delivered_now(waiting)] == [message.id for message in messages]


def test_decimals_correlate_by_all_of_their_38_digits(waiting: Agent) -> None:
    waiting.subscriptions.subscribe_instance(
        "Process", uuid4(), {"Amount": Decimal("12345678901234567890.123456789012345678")}
    )

    published = publish(
        waiting,
        {"Amount": Decimal("12345678901234567890.123456789012345679")},
        {"Amount": Decimal("12345678901234567890.123456789012345678")},
    )

    assert (published.published, published.unrouted) == (1, 1)


def test_written_property_correlates_nothing(waiting: Agent) -> None:
    waiting.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "NO"})

    assert publish(waiting, a_message(waiting, written={"Region": "NO"})).unrouted == 1


def test_activation_and_every_instance_that_waits_are_each_given_the_message_once(
    waiting: Agent, database: str
) -> None:
    first, second, other = uuid4(), uuid4(), uuid4()
    waiting.subscriptions.subscribe_instance("Process", first, {"Region": "NEW"})
    waiting.subscriptions.subscribe_instance("Process", second, {"Region": "new", "Amount": Decimal(5)})
    waiting.subscriptions.subscribe_instance("Process", other, {"Region": "NEW", "Amount": Decimal(6)})

    published = publish(waiting, {"Region": "NEW", "Amount": Decimal(5)}, {"Region": "NEW"})

    assert published.references == 5
    given = [each.instance for each in delivered_now(waiting)]
    assert sorted(map(str, given)) == sorted(map(str, [None, first, second, None, first]))
    assert unbalanced(database) == []


def test_ended_instance_is_given_nothing_more_and_what_it_did_not_take_is_discarded(
    waiting: Agent, database: str
) -> None:
    instance, other, host = uuid4(), uuid4(), waiting.configuration.hosts()["Default"]
    for each in (instance, other):
        waiting.subscriptions.subscribe_instance("Process", each, {"Region": "NO"})
    publish(waiting, {"Region": "NO"}, {"Region": "NO"})
    with living(waiting) as life:
        mine = [each for each in claim(waiting, life) if each.instance == instance]
        rest = [each.sequence for each in claim(waiting, life)]
        assert (len(mine), rest) == (2, [])
        settling.retry(waiting, host, life.instance, [(mine[0].sequence, AT_ONCE, "later")])
        settling.give_back(waiting, host, life.instance, [mine[1].sequence])

        assert waiting.subscriptions.end_instance(instance) == 2
        assert waiting.subscriptions.end_instance(instance) == 0

    assert kinds(waiting) == [("discarded", "Process")] * 2
    assert [row.instance for row in waiting.configuration.list_subscriptions() if row.kind == "instance"] == [other]
    assert publish(waiting, {"Region": "NO"}).references == 1
    [row, _] = waiting.suspended.messages()
    assert acting.resume(waiting, [str(row.id)])[0].result == "still nobody wants it"
    assert unbalanced(database) == []


def test_nothing_is_left_in_the_queue_for_an_instance_that_ends_while_others_publish(
    waiting: Agent, database: str
) -> None:
    instances = [uuid4() for _ in range(12)]
    for instance in instances:
        waiting.subscriptions.subscribe_instance("Process", instance, {"Region": "NO"})

    with ThreadPoolExecutor(2) as pool:
        published = [pool.submit(publish, waiting, {"Region": "NO"}, {"Region": "NO"}) for _ in range(12)]
        discarded = sum(waiting.subscriptions.end_instance(instance) for instance in instances)
        given = sum(each.result().references for each in published)

    assert (count(database, "queue"), given) == (0, discarded)
    assert unbalanced(database) == []


def test_unknown_service_has_no_instances(waiting: Agent) -> None:
    with pytest.raises(UsageError, match="There is no service 'Nobody'"):
        waiting.subscriptions.subscribe_instance("Nobody", uuid4(), {"Region": "NO"})


def test_publisher_that_never_heard_of_a_correlation_finds_its_instances(waiting: Agent, database: str) -> None:
    with Agent(database) as publisher:
        publish(publisher, {"Region": "NEW"})

        waiting.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "NO"})

        assert publish(publisher, {"Region": "NO"}).references == 1


def test_only_the_host_instance_that_waits_is_given_a_bound_message(waiting: Agent) -> None:
    with living(waiting) as waiter, living(waiting) as stranger:
        waiting.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "NO"}, bound_to=waiter.instance)
        publish(waiting, {"Region": "NO"}, {"Region": "NEW"})

        assert len(claim(waiting, stranger)) == 1
        [bound] = claim(waiting, waiter)

        assert (bound.subqueue, bound.message.context.promoted["Region"]) == (-waiter.instance, "NO")
        settling.give_back(waiting, waiting.configuration.hosts()["Default"], waiter.instance, [bound.sequence])
        assert claim(waiting, stranger) == []
        assert len(claim(waiting, waiter)) == 1


def test_bound_message_that_is_resumed_is_still_only_for_the_host_instance_that_waits(waiting: Agent) -> None:
    host = waiting.configuration.hosts()["Default"]
    with living(waiting) as waiter, living(waiting) as stranger:
        waiting.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "NO"}, bound_to=waiter.instance)
        publish(waiting, {"Region": "NO"})
        [bound] = claim(waiting, waiter)
        settling.suspend(waiting, host, waiter.instance, [(bound.sequence, "refused")])

        waiting.suspended.resume([bound.message.id])

        assert claim(waiting, stranger) == []
        assert len(claim(waiting, waiter)) == 1


def test_bound_message_stays_with_its_host_instance_when_the_port_moves_to_another_host(waiting: Agent) -> None:
    with living(waiting) as waiter:
        waiting.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "NO"}, bound_to=waiter.instance)
        publish(waiting, {"Region": "NO"})

        deploy(waiting, port("Process", host="Elsewhere"), port("Activated", "Region = 'NEW'"))

        assert len(claim(waiting, waiter)) == 1


def test_response_nobody_waits_for_any_more_is_suspended(waiting: Agent, database: str) -> None:
    host = waiting.configuration.hosts()["Default"]
    with living(waiting) as waiter:
        waiting.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "NO"}, bound_to=waiter.instance)
        publish(waiting, {"Region": "NO"}, {"Region": "NO"}, {"Region": "NO"})
        [claimed, retried] = claim(waiting, waiter, limit=2)
        settling.retry(waiting, host, waiter.instance, [(retried.sequence, AT_ONCE, "later")])
        waiting.queues.release_dead(host)
        assert kinds(waiting) == []

    def gone() -> bool:
        waiting.queues.requeue_due(host)
        waiting.queues.release_dead(host)
        return count(database, "suspended") == 3

    until(gone, 10)

    assert kinds(waiting) == [("response", "Process")] * 3
    assert [row.kind for row in waiting.configuration.list_subscriptions()] == ["activation"] * 2
    assert claimed.sequence in {row.sequence for row in waiting.suspended.messages()}
    assert publish(waiting, {"Region": "NO"}).unrouted == 1
    assert unbalanced(database) == []
    acting.terminate(waiting, [str(row.id) for row in waiting.suspended.messages()])
    assert kinds(waiting) == []


def test_subscription_of_a_host_instance_that_was_gone_already_does_not_stay(waiting: Agent, database: str) -> None:
    host = waiting.configuration.hosts()["Default"]
    with living(waiting) as waiter:
        pass

    def forgotten() -> bool:
        waiting.queues.release_dead(host)
        return count(database, "host_instance") == 0

    until(forgotten, 10)
    waiting.subscriptions.subscribe_instance("Process", uuid4(), {"Region": "NO"}, bound_to=waiter.instance)
    waiting.queues.release_dead(host)

    assert count(database, "instance_subscription") == 0


def test_request_that_two_would_answer_is_given_to_nobody_and_its_publisher_is_told(
    agent: Agent, database: str
) -> None:
    deploy(
        agent,
        port("Stock", "Region = 'NO'", two_way=True),
        port("Prices", "Amount > 5", two_way=True),
        port("Archive", "EXISTS(Region)"),
    )
    agent.subscriptions.subscribe_instance("Archive", uuid4(), {"Region": "NO"})
    promoted: Mapping[str, Value] = {"Region": "NO", "Amount": Decimal(7)}
    request = a_message(agent, promoted, written={"BTS.IsRequestResponse": True})
    answerable = a_message(agent, {"Region": "SE", "Amount": Decimal(7)}, written={"BTS.IsRequestResponse": True})
    one_way = a_message(agent, promoted, written={"BTS.IsRequestResponse": False})

    published = publish(agent, answerable, request, one_way)

    reason = "The request matches more than one two-way subscriber: Stock, Prices."
    assert published.refused == {request.id: reason}
    assert (published.published, published.unrouted, published.references) == (2, 1, 6)
    assert [(row.id, row.kind, row.reason) for row in agent.suspended.messages()] == [(request.id, "unrouted", reason)]
    assert rows(database, "SELECT FROM queue WHERE message_id = %s", request.id) == []
    assert acting.resume(agent, [str(request.id)])[0].result == "still nobody wants it"
    agent.subscriptions.unenlist("Prices")
    assert acting.resume(agent, [str(request.id)])[0].result == "routed"
    assert at_ports(agent) == {"Stock": 2, "Prices": 2, "Archive": 5}
    assert unbalanced(database) == []
