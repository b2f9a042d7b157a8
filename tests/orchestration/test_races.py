"""Races and crashes of steps: each meeting is arranged with real connections, and ends as docs/states.md says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from crossdock.errors import TransientError
from crossdock.host.limits import DEFAULT_LIMITS
from crossdock.message.publication import Publication
from crossdock.messagebox import queues
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.instance_change import InstanceChange
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.publish import publish as publish_on
from crossdock.messagebox.queues import ORCHESTRATIONS
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.settle import Hold
from crossdock.messagebox.step import Step
from crossdock.orchestration.history import decode_record, encode_record
from crossdock.orchestration.work import Worker, tasks_of
from express import living, rows, unbalanced
from interleave import dies, open_transaction, until_somebody_waits_for
from running import clean, deploy, engine, instances, message, publish, run, sent, settled
from server_clock import shift_clock
from walk import until

WAITS = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def wait(process: Process, order: Message) -> None:
    answer = await process.receive(case, timeout=timedelta(hours=1))
    await process.send(out, process.message("Note", {"id": order["OrderId"], "paid": answer is not None}))
"""


@pytest.fixture
def waiting(agent: Agent, folder: Path) -> Agent:
    """An instance that waits for a payment, for an hour."""
    deploy(agent, folder, WAITS, "wait")
    publish(agent, message(agent, "Order", "a"))
    run(agent)
    assert instances(agent) == [("wait", "running", 1)]
    return agent


def host(agent: Agent) -> int:
    return agent.configuration.hosts()["Default"]


def claimed(agent: Agent, life: Lifeline) -> list[Reference]:
    return agent.queues.dequeue(host(agent), life.instance, limit=100, subqueue=ORCHESTRATIONS)


@contextmanager
def a_worker(agent: Agent) -> Iterator[Worker]:
    def persist(record: object) -> bool:
        assert callable(record)
        record()
        return True

    made = Worker(agent, host(agent), DEFAULT_LIMITS, persist)
    yield made
    made.forget()


def only_instance(agent: Agent) -> UUID:
    [row] = agent.instances.list()
    return row.id


def test_message_that_is_committed_before_the_step_of_a_timer_goes_first(waiting: Agent, database: str) -> None:
    shift_clock(database, timedelta(hours=2))
    payment = message(waiting, "Payment", "a")
    with (
        living(waiting) as life,
        Agent(database) as another,
        a_worker(another) as worker,
        ThreadPoolExecutor(1) as aside,
    ):
        due = another.instances.due(host(waiting), limit=10)
        with open_transaction(database) as connection:
            publish_on(connection, waiting.router(), [Publication(host(waiting), (payment,))])
            timed = aside.submit(worker.work, life.instance, [], due)
            until_somebody_waits_for(database, connection)
        timed.result(60)

    assert instances(waiting) == [("wait", "running", 1)]
    assert sent(waiting) == []
    run(waiting)
    assert sent(waiting) == [("Note", {"id": "a", "paid": True})]
    clean(waiting)


def test_publisher_that_comes_after_the_step_of_a_timer_finds_nobody(waiting: Agent, database: str) -> None:
    shift_clock(database, timedelta(hours=2))
    run(waiting)

    published = publish(waiting, message(waiting, "Payment", "a"))

    assert sent(waiting) == [("Note", {"id": "a", "paid": False})]
    assert published.unrouted == 1
    clean(waiting)


def test_of_two_processes_with_one_instance_one_does_the_step(waiting: Agent, database: str) -> None:
    publish(waiting, message(waiting, "Payment", "a", 1), message(waiting, "Payment", "a", 2))
    with living(waiting) as one, living(waiting) as two, Agent(database) as another:
        first = waiting.queues.dequeue(host(waiting), one.instance, limit=1, subqueue=ORCHESTRATIONS)
        second = another.queues.dequeue(host(waiting), two.instance, limit=1, subqueue=ORCHESTRATIONS)
        with a_worker(waiting) as left, a_worker(another) as right:
            earlier = list(right._stepped(two.instance, tasks_of(second, []), []))
            later = list(left._stepped(one.instance, tasks_of(first, []), []))
            assert (len(earlier), len(later)) == (1, 1)
            right._commits.commit(two.instance, earlier)
            left._commits.commit(one.instance, later)
    run(waiting)

    assert sent(waiting) == [("Note", {"id": "a", "paid": True})]
    assert [each.kind for each in waiting.suspended.messages()] == ["discarded"]
    clean(waiting)


def test_answer_of_the_commit_is_lost_and_the_step_is_done_once(
    waiting: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(waiting, message(waiting, "Payment", "a"))
    step = waiting.step

    def lost(steps: list[Step]) -> object:
        step(steps)
        raise TransientError("the answer is lost")

    with living(waiting) as life, a_worker(waiting) as worker:
        references = claimed(waiting, life)
        monkeypatch.setattr(waiting, "step", lost)
        worker.work(life.instance, references, [])
        monkeypatch.undo()
    run(waiting)

    assert sent(waiting) == [("Note", {"id": "a", "paid": True})]
    clean(waiting)


def test_commit_that_did_not_happen_is_done_again(waiting: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(waiting, message(waiting, "Payment", "a"))

    def fails(_: list[Step]) -> object:
        raise TransientError("PostgreSQL is away")

    with living(waiting) as life, a_worker(waiting) as worker:
        references = claimed(waiting, life)
        monkeypatch.setattr(waiting, "step", fails)
        worker.work(life.instance, references, [])
        monkeypatch.undo()
    assert sent(waiting) == []
    run(waiting)

    assert sent(waiting) == [("Note", {"id": "a", "paid": True})]
    clean(waiting)


def test_process_that_ends_after_its_claim_leaves_the_step_to_another(
    waiting: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_DEAD_GRACE", timedelta(0))
    publish(waiting, message(waiting, "Payment", "a"))
    with living(waiting) as life:
        assert len(claimed(waiting, life)) == 1
        dies(database, life)

    run(waiting)

    assert sent(waiting) == [("Note", {"id": "a", "paid": True})]
    clean(waiting)


def test_step_that_died_too_often_suspends_its_instance(waiting: Agent, database: str) -> None:
    publish(waiting, message(waiting, "Payment", "a"))
    rows(database, "UPDATE queue SET deaths = 4 RETURNING 1")

    run(waiting)

    [row] = waiting.instances.list()
    assert (row.state, row.code) == ("suspended", "too-many-deaths")
    assert unbalanced(database) == []
    waiting.instances.resume([row.id])
    run(waiting)
    assert sent(waiting) == [("Note", {"id": "a", "paid": True})]
    clean(waiting)


def test_terminate_waits_for_the_step_that_is_being_done(waiting: Agent, database: str) -> None:
    publish(waiting, message(waiting, "Payment", "a"))
    instance = only_instance(waiting)
    with living(waiting) as life, Agent(database) as another, ThreadPoolExecutor(1) as aside:
        [reference] = claimed(waiting, life)
        row = waiting.instances.load(host(waiting), [instance])[instance]
        change = InstanceChange(
            instance, row.service_id, row.version, row.activation, row.step, True, records=[b"record"]
        )
        step = Step(host(waiting), life.instance, [Hold(reference, instance, 2)], change=change)
        with waiting.open_step(step) as opened:
            ending = aside.submit(another.instances.terminate, [instance])
            waits = "SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"

            def blocked() -> bool:
                opened.execute("SELECT pg_stat_clear_snapshot()")
                return bool(opened.execute(waits).rowcount)

            until(blocked, 30)
        assert ending.result(60) == [instance]

    assert rows(database, "SELECT count(*) FROM suspended") == [(0,)]
    clean(waiting)


def test_step_of_a_terminated_instance_is_not_done_and_its_message_is_kept(waiting: Agent, database: str) -> None:
    publish(waiting, message(waiting, "Payment", "a"))
    with living(waiting) as life, a_worker(waiting) as worker:
        references = claimed(waiting, life)
        waiting.instances.terminate([only_instance(waiting)])
        worker.work(life.instance, references, [])
    run(waiting)

    assert sent(waiting) == []
    assert [each.kind for each in waiting.suspended.messages()] == ["discarded"]
    clean(waiting)
    assert rows(database, "SELECT count(*) FROM claimed") == [(0,)]


def test_epoch_that_moves_while_code_runs_is_matched_again_and_the_code_is_not_run_again(
    waiting: Agent, database: str
) -> None:
    publish(waiting, message(waiting, "Payment", "a"))
    with living(waiting) as life, a_worker(waiting) as worker, Agent(database) as another:
        outcomes = list(worker._stepped(life.instance, tasks_of(claimed(waiting, life), []), []))
        another.subscriptions.stop("Out")
        worker._commits.commit(life.instance, outcomes)

    assert [each.kind for each in waiting.suspended.messages()] == ["stopped"]
    clean(waiting)


def test_code_that_does_something_else_than_it_did_is_suspended_with_the_difference(
    waiting: Agent, database: str
) -> None:
    [(stored,)] = rows(database, "SELECT record FROM history")
    record = decode_record(stored)
    other = [replace(record.commands[0], name="something else"), *record.commands[1:]]
    rows(database, "UPDATE history SET record = %s RETURNING 1", encode_record(replace(record, commands=other)))
    publish(waiting, message(waiting, "Payment", "a"))

    run(waiting)

    [row] = waiting.instances.list()
    assert (row.state, row.code) == ("suspended", "history-mismatch")
    assert "something else" in str(row.reason)
    assert unbalanced(database) == []


def test_references_of_an_engine_that_stops_are_not_left_claimed(agent: Agent, folder: Path, database: str) -> None:
    deploy(agent, folder, WAITS, "wait")
    with engine(agent):
        publish(agent, *(message(agent, "Order", str(number)) for number in range(50)))
        settled(agent)
    assert rows(database, "SELECT count(*) FROM claimed") == [(0,)]
    assert agent.statistics().waiting == 50
    assert agent.queues.idle(host(agent))
