"""Cleanup meets whoever writes to the reference logs: a message goes when nobody refers to it, and not before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import settling
from box import count, deployment, ids
from crossdock.maintenance.references import NUMBER, CleanReferences
from crossdock.messagebox.agent import Agent
from interleave import (
    PATIENCE_SECONDS,
    a_message,
    an_application,
    gate,
    living,
    open_transaction,
    places,
    publisher_before_its_commit,
    publisher_before_its_references,
)

# Publishing


def test_publisher_in_whose_middle_the_logs_are_summed_is_counted(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    with publisher_before_its_references(agent, database, aside, a_message(agent), table="queue") as publishing:
        aside.submit(summed, agent).result(PATIENCE_SECONDS)
    publishing.result(PATIENCE_SECONDS)

    summed(agent)
    assert places(database) == {"queued": 1}
    settled(agent)
    cleaned(agent, database)


def test_publisher_that_has_not_committed_when_the_logs_are_summed_is_counted(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    agent.publish([a_message(agent, "earlier")])

    with publisher_before_its_commit(agent, database, a_message(agent, "late")):
        settled(agent)
        aside.submit(summed, agent).result(PATIENCE_SECONDS)
        assert count(database, "message") == 0

    assert places(database) == {"queued": 1}
    settled(agent)
    cleaned(agent, database)


# Settling


def test_settlement_that_writes_to_a_log_which_was_summed_meanwhile_is_counted_in_a_later_round(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    host = ids(agent)[1]
    agent.publish([a_message(agent)])
    with living(agent, host) as life:
        [reference] = agent.queues.dequeue(host, life.instance, limit=9)
        with gate(database, "BEFORE INSERT ON message_ref_log_1") as closed, Agent(closed.database) as slow:
            completing = aside.submit(settling.complete, slow, host, life.instance, [reference.sequence])
            closed.until_reached()
            assert agent.cleanup.sum_log("message", agent.cleanup.swap_log("message")) == 0
            assert places(database) == {"claimed": 1}
            closed.open()
            completing.result(PATIENCE_SECONDS)

    assert count(database, "message_ref_log_1 WHERE delta = -1") == 1
    assert count(database, "reference_log WHERE message = 2") == 1
    assert places(database) == {}
    cleaned(agent, database)


def test_message_whose_settlement_has_not_committed_is_kept(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    host = ids(agent)[1]
    agent.publish([a_message(agent)])
    with living(agent, host) as life:
        [reference] = agent.queues.dequeue(host, life.instance, limit=9)
        with gate(database, f"AFTER DELETE ON claimed_{host}") as closed, Agent(closed.database) as slow:
            completing = aside.submit(settling.complete, slow, host, life.instance, [reference.sequence])
            closed.until_reached()
            cleanup_does_not_wait(agent, aside)
            cleanup_does_not_wait(agent, aside)
            assert places(database) == {"claimed": 1}
            assert count(database, "message") == 1
            closed.open()
            completing.result(PATIENCE_SECONDS)

    cleaned(agent, database)


# Routing again


def test_message_routed_again_to_two_is_kept_when_one_is_settled_and_summed_before_the_second_is_counted(
    agent: Agent, database: str
) -> None:
    unrouted = an_unrouted_message_that_two_want_now(agent)
    agent.route_again([unrouted])
    agent.cleanup.swap_log("message")  # and then this cleanup dies: the reference of the second stays in the closed log

    settled(agent, limit=1)
    assert agent.cleanup.sum_log("message", agent.cleanup.swap_log("message")) == 0

    assert places(database) == {"queued": 1}
    assert count(database, "message") == 1
    settled(agent)
    cleaned(agent, database)


def test_message_routed_again_through_a_log_that_was_summed_meanwhile_is_kept_until_both_are_settled(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    unrouted = an_unrouted_message_that_two_want_now(agent)
    active = 3 - agent.cleanup.swap_log("message")
    with gate(database, f"BEFORE INSERT ON message_ref_log_{active}") as closed, Agent(closed.database) as slow:
        routing = aside.submit(slow.route_again, [unrouted])
        closed.until_reached()
        assert agent.cleanup.sum_log("message", agent.cleanup.swap_log("message")) == 0
        closed.open()
        assert routing.result(PATIENCE_SECONDS) == {unrouted: True}
    assert count(database, f"message_ref_log_{active}") == 1
    assert count(database, f"reference_log WHERE message = {active}") == 0

    settled(agent, limit=1)
    assert agent.cleanup.sum_log("message", agent.cleanup.swap_log("message")) == 0

    assert places(database) == {"queued": 1}
    assert count(database, "message") == 1
    settled(agent)
    cleaned(agent, database)


def test_message_whose_closed_log_adds_up_to_nothing_is_kept_while_the_other_log_has_a_reference(
    agent: Agent, database: str
) -> None:
    unrouted = an_unrouted_message_that_two_want_now(agent, counted=False)
    agent.cleanup.swap_log("message")  # this cleanup dies before it sums, and so does the next
    agent.route_again([unrouted])
    agent.cleanup.swap_log("message")
    settled(agent, limit=1)

    assert agent.cleanup.sum_log("message", agent.cleanup.swap_log("message")) == 0

    assert places(database) == {"queued": 1}
    assert count(database, "message") == 1
    settled(agent)
    cleaned(agent, database)


def test_message_that_is_being_routed_again_is_kept(agent: Agent, database: str, aside: ThreadPoolExecutor) -> None:
    unrouted = an_unrouted_message_that_two_want_now(agent)

    with gate(database, "AFTER INSERT ON queue") as closed, Agent(closed.database) as slow:
        routing = aside.submit(slow.route_again, [unrouted])
        closed.until_reached()
        cleanup_does_not_wait(agent, aside)
        cleanup_does_not_wait(agent, aside)
        assert places(database) == {"suspended unrouted": 1}
        closed.open()
        assert routing.result(PATIENCE_SECONDS) == {unrouted: True}

    assert places(database) == {"queued": 2}
    settled(agent)
    cleaned(agent, database)


# Cleanup itself


def test_reader_who_holds_the_logs_open_does_not_keep_delivered_messages_from_going(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    agent.publish([a_message(agent, "delivered", messages=3)])
    settled(agent)
    agent.publish([a_message(agent, "waiting", messages=2)])

    with open_transaction(database) as reader:
        for log in ("message_ref_log_1", "message_ref_log_2", "part_ref_log_1", "part_ref_log_2"):
            reader.execute(f"SELECT FROM {log}")
        cleanup_does_not_wait(agent, aside)
        cleanup_does_not_wait(agent, aside)
        assert places(database) == {"queued": 2}
        assert (count(database, "message"), count(database, "part")) == (2, 2)

    settled(agent)
    cleaned(agent, database)


def test_message_of_several_references_that_are_summed_one_by_one_while_somebody_reads_goes_with_the_last(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    agent.subscriptions.deploy(deployment(One="Region = 'NO'", Two="Region = 'NO'", Three="Region = 'NO'"))
    agent.publish([a_message(agent)])

    with open_transaction(database) as reader:
        for log in ("message_ref_log_1", "message_ref_log_2", "part_ref_log_1", "part_ref_log_2"):
            reader.execute(f"SELECT FROM {log}")
        for left in (2, 1, 0):
            settled(agent, limit=1)
            aside.submit(summed, agent).result(PATIENCE_SECONDS)
            assert places(database) == ({"queued": left} if left else {})
            assert count(database, "message") == bool(left)

    cleaned(agent, database)


def test_cleanup_that_died_between_the_swap_and_the_sum_is_made_up_for(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    agent.publish([a_message(agent)])
    agent.cleanup.swap_log("message")
    agent.cleanup.swap_log("part")

    settled(agent)
    assert places(database) == {}

    cleaned(agent, database)


def test_second_cleanup_leaves_the_work_to_the_first(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(an_application("Port"))
    agent.publish([a_message(agent)])
    settled(agent)

    with Agent(database) as other, other.cleanup.alone(NUMBER) as mine:
        assert mine
        assert CleanReferences(agent).run_once() == 0
    assert count(database, "message") == 1

    cleaned(agent, database)


def an_unrouted_message_that_two_want_now(agent: Agent, *, counted: bool = True) -> UUID:
    """The message; its one reference is in the totals already, or else stands beside it."""
    agent.subscriptions.deploy(deployment(One="Region = 'SE'", Two="Region = 'SE'"))
    agent.publish([a_message(agent)])
    if counted:
        with open_transaction(agent.database) as connection:
            connection.execute("INSERT INTO message_ref_total SELECT id, reference_count FROM message")
    [row] = agent.suspended.messages()
    agent.subscriptions.deploy(deployment(One="Region = 'NO'", Two="Region = 'NO'"))
    return row.id


def cleanup_does_not_wait(agent: Agent, aside: ThreadPoolExecutor) -> None:
    """A round of it, while somebody else is in the middle of something."""
    aside.submit(CleanReferences(agent).run_once).result(PATIENCE_SECONDS)


def summed(agent: Agent) -> None:
    """Both logs, though nothing in them has been taken away."""
    agent.cleanup.sum_log("message", agent.cleanup.swap_log("message"))
    agent.cleanup.sum_log("part", agent.cleanup.swap_log("part"))


def settled(agent: Agent, *, limit: int = 100) -> None:
    """Claim and complete what is queued, up to a limit."""
    host = ids(agent)[1]
    with living(agent, host) as life:
        references = agent.queues.dequeue(host, life.instance, limit=limit)
        settling.complete(agent, host, life.instance, [reference.sequence for reference in references])
    assert references


def cleaned(agent: Agent, database: str) -> None:
    """Three rounds are enough for what nobody refers to; then nothing of it may be left."""
    for _ in range(3):
        CleanReferences(agent).run_once()
    tables = ("message", "part", "message_ref_total", "part_ref_total")
    logs = ("message_ref_log_1", "message_ref_log_2", "part_ref_log_1", "part_ref_log_2")
    assert {table: count(database, table) for table in (*tables, *logs)} == dict.fromkeys((*tables, *logs), 0)
