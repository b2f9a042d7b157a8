"""Publishing: one stored copy, one reference for each matching subscription, exactly once whatever happens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

import psycopg
import pytest

from box import an_interchange, count, deployment, ids, listed
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import EpochMovedError, publish


def test_message_matching_two_subscriptions_is_stored_once_and_referenced_twice(agent: Agent, database: str) -> None:
    agent.deploy(deployment(Invoicing="Amount > 5", Shipping="Region = 'NO'", Elsewhere="Region = 'SE'"))
    [sequence] = listed(agent, "a")

    published = agent.publish([an_interchange(agent, sequence, {"Region": "NO", "Amount": Decimal(7)})])

    assert (published.published, published.references) == (1, 2)
    assert count(database, "message") == 1
    assert count(database, "queue") == 2


def test_subscription_with_several_matching_groups_gets_one_reference(agent: Agent, database: str) -> None:
    agent.deploy(deployment(Both="Amount > 5 OR Region = 'NO'"))
    [sequence] = listed(agent, "a")

    agent.publish([an_interchange(agent, sequence, {"Region": "NO", "Amount": Decimal(7)})])

    assert count(database, "queue") == 1


def test_message_nobody_wants_and_document_that_failed_are_suspended_with_the_reason(agent: Agent) -> None:
    agent.deploy(deployment(Shipping="Region = 'NO'"))
    [sequence] = listed(agent, "a")

    published = agent.publish([an_interchange(agent, sequence, {"Region": "SE"}, failures=1)])

    assert (published.received, published.published, published.unrouted, published.suspended) == (2, 0, 1, 1)
    assert {(row.kind, row.reason.split(":")[0]) for row in agent.suspended()} == {
        ("unrouted", "No subscription matches"),
        ("receive", "the file is not JSON"),
    }


def test_publishing_the_same_source_twice_publishes_it_once(agent: Agent, database: str) -> None:
    agent.deploy(deployment(All="EXISTS(Region)"))
    [first, second] = listed(agent, "a", "b")

    agent.publish([an_interchange(agent, first, {"Region": "NO"})])
    again = agent.publish(
        [an_interchange(agent, first, {"Region": "NO"}), an_interchange(agent, second, {"Region": "NO"})]
    )

    assert (again.interchanges, again.published) == (1, 1)
    assert count(database, "message") == 2
    assert count(database, "queue") == 2


def test_source_that_was_published_removed_and_forgotten_is_not_published_by_a_late_attempt(
    agent: Agent, database: str
) -> None:
    agent.deploy(deployment(All="EXISTS(Region)"))
    [sequence] = listed(agent, "a")
    late = an_interchange(agent, sequence, {"Region": "NO"})
    agent.publish([late])
    agent.forget_intake([sequence])

    assert agent.publish([late]).interchanges == 0
    assert count(database, "message") == 1


def test_many_attempts_at_once_publish_once(agent: Agent, database: str) -> None:
    agent.deploy(deployment(All="EXISTS(Region)"))
    sequences = listed(agent, *"abcdefgh")
    interchanges = [an_interchange(agent, sequence, {"Region": "NO"}) for sequence in sequences]
    barrier = Barrier(4)

    def attempt(_: int) -> int:
        barrier.wait()
        return agent.publish(interchanges).interchanges

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(attempt, range(4)))

    assert sum(won) == len(sequences)
    assert count(database, "message") == len(sequences)
    assert count(database, "queue") == len(sequences)


def test_subscription_enlisted_while_publishing_is_not_missed(agent: Agent, database: str) -> None:
    agent.deploy(deployment(Old="Region = 'NO'"))
    [sequence] = listed(agent, "a")
    interchange = an_interchange(agent, sequence, {"Region": "NO"})
    stale = agent.router()
    agent.deploy(deployment(Old="Region = 'NO'", New="Region = 'NO'"))

    with psycopg.connect(database, options="-csearch_path=crossdock") as connection, pytest.raises(EpochMovedError):
        publish(connection, stale, [interchange])
    assert count(database, "message") == 0
    agent.publish([interchange])

    assert count(database, "queue") == 2


def test_stopped_port_gets_its_reference_suspended(agent: Agent) -> None:
    agent.deploy(deployment(Stopped="Region = 'NO'"))
    agent.stop("Stopped")
    [sequence] = listed(agent, "a")

    published = agent.publish([an_interchange(agent, sequence, {"Region": "NO"})])

    assert (published.published, published.unrouted, published.references) == (1, 0, 0)
    assert [(row.kind, row.port) for row in agent.suspended()] == [("stopped", "Stopped")]


def test_text_that_sql_cannot_hold_is_kept_and_shown(agent: Agent) -> None:
    agent.deploy(deployment(Nobody="Region = 'x'"))
    [sequence] = listed(agent, "a")

    agent.publish([an_interchange(agent, sequence, {"Region": "nul \0 and 😀", "BTS.MessageType": "Order\0"})])

    [row] = agent.suspended()
    assert row.type == "Order\0"
    assert agent.messages([row.id])[row.id].context.promoted["Region"] == "nul \0 and 😀"


def test_listing_the_same_source_again_adds_nothing(agent: Agent) -> None:
    agent.deploy(deployment())
    location, _ = ids(agent)

    assert agent.list_intake([(location, b"a", 1), (location, b"b", 1)]) == 2
    assert agent.list_intake([(location, b"a", 1), (location, b"c", 1)]) == 1


def test_batch_ends_at_the_limit_of_items_or_bytes_but_takes_at_least_one(agent: Agent) -> None:
    agent.deploy(deployment())
    location, _ = ids(agent)
    agent.list_intake([(location, str(n).encode(), 100) for n in range(10)])
    first = agent.read_intake(0, 2**62)[0].sequence

    assert agent.next_intake_offset(0, items=4, size=10_000) == first + 3
    assert agent.next_intake_offset(0, items=100, size=250) == first + 1
    assert agent.next_intake_offset(0, items=100, size=1) == first
    assert agent.next_intake_offset(first + 9, items=100, size=1) == first + 9
