"""A batch too large for one round trip meets changes of subscriptions or locations: it looks once more by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from crossdock.errors import EpochMovedError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.reroute import reroute
from interleave import (
    PATIENCE_SECONDS,
    a_message,
    a_port,
    open_transaction,
    places,
    publisher_before_its_commit,
    publisher_before_its_references,
    until_somebody_waits_for,
    waiting,
)
from walk import until

MANY = 40


def test_start_waits_for_a_large_batch_that_found_the_port_stopped_and_resumes_all_of_it(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="stopped")

    with publisher_before_its_commit(agent, database, a_message(agent, messages=MANY)):
        starting = aside.submit(agent.subscriptions.start, "Port")
        until(lambda: starting.done() or waiting(database) == 1, PATIENCE_SECONDS)

    assert starting.result(PATIENCE_SECONDS).resumed == MANY
    assert places(database) == {"queued": MANY}


def test_large_batch_that_matched_before_a_start_does_not_suspend_after_it(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="stopped")

    batch = a_message(agent, messages=MANY)
    with publisher_before_its_references(agent, database, aside, batch) as publishing:
        agent.subscriptions.start("Port")

    assert publishing.result(PATIENCE_SECONDS).references == MANY
    assert places(database) == {"queued": MANY}


def test_large_batch_that_matched_before_an_enlist_gives_to_the_new_subscription(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent, state="unenlisted")

    batch = a_message(agent, messages=MANY)
    with publisher_before_its_references(agent, database, aside, batch) as publishing:
        agent.subscriptions.enlist("Port")

    assert publishing.result(PATIENCE_SECONDS).unrouted == 0
    assert places(database) == {"suspended stopped": MANY}


@pytest.mark.parametrize("messages", [1, MANY])
def test_batch_that_was_read_by_a_location_which_changed_meanwhile_is_not_published(
    agent: Agent, database: str, aside: ThreadPoolExecutor, messages: int
) -> None:
    a_port(agent)
    batch, read_by = a_message(agent, messages=messages), agent.location_epoch()

    with open_transaction(database) as blocker:
        blocker.execute("LOCK TABLE part IN SHARE MODE")
        publishing = aside.submit(agent.publish, [batch], location_epoch=read_by)
        until_somebody_waits_for(database, blocker)
        agent.subscriptions.enable("orders.in", enabled=False)

    with pytest.raises(EpochMovedError):
        publishing.result(PATIENCE_SECONDS)
    assert places(database) == {}
    assert len(agent.ledger.read(0, 2**62)) == 1


def test_location_that_changes_waits_for_a_large_batch_that_was_read_by_it(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent)

    with publisher_before_its_commit(agent, database, a_message(agent, messages=MANY)):
        changing = aside.submit(agent.subscriptions.enable, "orders.in", enabled=False)
        until(lambda: changing.done() or waiting(database) == 1, PATIENCE_SECONDS)
        assert not changing.done()

    assert changing.result(PATIENCE_SECONDS)
    assert places(database) == {"queued": MANY}


def test_unrouted_messages_are_not_routed_again_by_subscriptions_that_have_changed_since(
    agent: Agent, database: str
) -> None:
    a_port(agent, "SE")
    agent.publish([a_message(agent, messages=MANY)])
    a_port(agent)
    before = agent.router()
    agent.subscriptions.unenlist("Port")

    unrouted = [row.id for row in agent.suspended.messages()]
    with open_transaction(database) as connection, pytest.raises(EpochMovedError):
        reroute(connection, before, unrouted, agent.messages.on)

    assert places(database) == {"suspended unrouted": MANY}
