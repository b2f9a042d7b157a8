"""Publishing: one stored copy, one reference for each matching subscription, exactly once whatever happens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

import psycopg
import pytest

from box import a_publication, count, deployment, ids, listed
from crossdock.errors import EpochMovedError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import publish


def test_message_matching_two_subscriptions_is_stored_once_and_referenced_twice(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(Invoicing="Amount > 5", Shipping="Region = 'NO'", Elsewhere="Region = 'SE'"))
    [sequence] = listed(agent, "a")

    published = agent.publish([a_publication(agent, sequence, {"Region": "NO", "Amount": Decimal(7)})])

    assert (published.published, published.references) == (1, 2)
    assert count(database, "message") == 1
    assert count(database, "queue") == 2


def test_subscription_with_several_matching_groups_gets_one_reference(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(Both="Amount > 5 OR Region = 'NO'"))
    [sequence] = listed(agent, "a")

    agent.publish([a_publication(agent, sequence, {"Region": "NO", "Amount": Decimal(7)})])

    assert count(database, "queue") == 1


def test_message_nobody_wants_and_document_that_failed_are_suspended_with_the_reason(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Shipping="Region = 'NO'"))
    [sequence] = listed(agent, "a")

    published = agent.publish([a_publication(agent, sequence, {"Region": "SE"}, failures=1)])

    assert (published.received, published.published, published.unrouted, published.suspended) == (2, 0, 1, 1)
    assert {(row.kind, row.reason.split(":")[0]) for row in agent.suspended.messages()} == {
        ("unrouted", "No subscription matches"),
        ("receive", "the file is not JSON"),
    }


def test_publishing_the_same_source_twice_publishes_it_once(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(All="EXISTS(Region)"))
    [first, second] = listed(agent, "a", "b")

    agent.publish([a_publication(agent, first, {"Region": "NO"})])
    again = agent.publish(
        [a_publication(agent, first, {"Region": "NO"}), a_publication(agent, second, {"Region": "NO"})]
    )

    assert (again.publications, again.published) == (1, 1)
    assert count(database, "message") == 2
    assert count(database, "queue") == 2


def test_source_that_was_published_removed_and_forgotten_is_not_published_by_a_late_attempt(
    agent: Agent, database: str
) -> None:
    agent.subscriptions.deploy(deployment(All="EXISTS(Region)"))
    [sequence] = listed(agent, "a")
    late = a_publication(agent, sequence, {"Region": "NO"})
    agent.publish([late])
    agent.ledger.forget([sequence])

    assert agent.publish([late]).publications == 0
    assert count(database, "message") == 1


def test_many_attempts_at_once_publish_once(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(All="EXISTS(Region)"))
    sequences = listed(agent, *"abcdefgh")
    publications = [a_publication(agent, sequence, {"Region": "NO"}) for sequence in sequences]
    barrier = Barrier(4)

    def attempt(_: int) -> int:
        barrier.wait()
        return agent.publish(publications).publications

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(attempt, range(4)))

    assert sum(won) == len(sequences)
    assert count(database, "message") == len(sequences)
    assert count(database, "queue") == len(sequences)


def test_subscription_enlisted_while_publishing_is_not_missed(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(Old="Region = 'NO'"))
    [sequence] = listed(agent, "a")
    publication = a_publication(agent, sequence, {"Region": "NO"})
    stale = agent.router()
    agent.subscriptions.deploy(deployment(Old="Region = 'NO'", New="Region = 'NO'"))

    with psycopg.connect(database, options="-csearch_path=crossdock") as connection, pytest.raises(EpochMovedError):
        publish(connection, stale, [publication])
    assert count(database, "message") == 0
    agent.publish([publication])

    assert count(database, "queue") == 2


def test_stopped_port_gets_its_reference_suspended(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Stopped="Region = 'NO'"))
    agent.subscriptions.stop("Stopped")
    [sequence] = listed(agent, "a")

    published = agent.publish([a_publication(agent, sequence, {"Region": "NO"})])

    assert (published.published, published.unrouted, published.references) == (1, 0, 0)
    assert [(row.kind, row.port) for row in agent.suspended.messages()] == [("stopped", "Stopped")]


def test_text_that_sql_cannot_hold_is_kept_and_shown(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Nobody="Region = 'x'"))
    [sequence] = listed(agent, "a")

    agent.publish([a_publication(agent, sequence, {"Region": "nul \0 and 😀", "BTS.MessageType": "Order\0"})])

    [row] = agent.suspended.messages()
    assert row.type == "Order\0"
    assert agent.messages.load([row.id])[row.id].context.promoted["Region"] == "nul \0 and 😀"


def test_listing_the_same_source_again_adds_nothing(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment())
    location, _ = ids(agent)

    assert agent.ledger.enter([(location, b"a", 1), (location, b"b", 1)]) == 2
    assert agent.ledger.enter([(location, b"a", 1), (location, b"c", 1)]) == 1
