"""Host instances meet at the queues: settlements and deaths, numbers that were drawn early or that come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

import settling
from box import AT_ONCE, a_publication, count, deployment, ids, listed
from crossdock.messagebox import queues, scan_start
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.database import Database
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.suspended import Suspended
from interleave import (
    PATIENCE_SECONDS,
    a_message,
    an_application,
    dies,
    gate,
    living,
    places,
    publisher_before_its_commit,
    until_waiting,
)
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


# Settling and dying


def test_release_waits_for_the_last_settlement_of_a_dead_instance_and_frees_nothing(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = published(agent)
    with living(agent, host) as life:
        [reference] = agent.queues.dequeue(host, life.instance, limit=9)
        with gate(database, f"AFTER DELETE ON claimed_{host}") as closed, Agent(closed.database) as slow:
            completing = aside.submit(settling.complete, slow, host, life.instance, [reference.sequence])
            closed.until_reached()
            dies(database, life)
            releasing = aside.submit(agent.queues.release_dead, host)
            until_waiting(database, 2)
            closed.open()
            completing.result(PATIENCE_SECONDS)

    assert releasing.result(PATIENCE_SECONDS) == 0
    assert places(database) == {}
    assert agent.statistics().delivered == 1


def test_settlement_that_comes_while_its_dead_instance_is_released_changes_nothing(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    host = published(agent)
    with living(agent, host) as life:
        [reference] = agent.queues.dequeue(host, life.instance, limit=9)
        dies(database, life)
        with gate(database, f"AFTER DELETE ON claimed_{host}") as closed, Agent(closed.database) as slow:
            releasing = aside.submit(slow.queues.release_dead, host)
            closed.until_reached()
            completing = aside.submit(settling.complete, agent, host, life.instance, [reference.sequence])
            until_waiting(database, 2)
            closed.open()
            assert releasing.result(PATIENCE_SECONDS) == 1

    completing.result(PATIENCE_SECONDS)
    assert places(database) == {"queued": 1}
    assert agent.statistics().delivered == 0


def test_reference_that_an_instance_claims_after_it_was_released_as_dead_comes_free_again(
    agent: Agent, database: str
) -> None:
    host = published(agent)
    with living(agent, host) as life:
        dies(database, life)
    agent.queues.release_dead(host)
    assert len(agent.queues.dequeue(host, life.instance, limit=9)) == 1

    assert agent.queues.release_dead(host) == 1
    assert places(database) == {"queued": 1}


def test_late_outcomes_of_an_instance_taken_for_dead_do_not_touch_what_another_has_claimed_since(
    agent: Agent, database: str
) -> None:
    host = published(agent)
    with living(agent, host) as dead, living(agent, host) as life:
        [lost] = agent.queues.dequeue(host, dead.instance, limit=9)
        dies(database, dead)
        agent.queues.release_dead(host)
        [claimed] = agent.queues.dequeue(host, life.instance, limit=9)
        assert claimed.sequence == lost.sequence

        settling.complete(agent, host, dead.instance, [lost.sequence])
        settling.retry(agent, host, dead.instance, [(lost.sequence, AT_ONCE, "down")])
        settling.suspend(agent, host, dead.instance, [(lost.sequence, "refused")])
        settling.give_back(agent, host, dead.instance, [lost.sequence])

        assert places(database) == {"claimed": 1}


# Numbers that were drawn early, or that come back


def test_references_with_low_numbers_of_a_slow_publisher_are_claimed_as_soon_as_it_commits(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = published(agent)
    with living(agent, host) as life:
        with publisher_before_its_commit(agent, database, a_message(agent, "slow", messages=3)):
            agent.publish([a_message(agent, "fast", messages=5)])
            sweep_every_time(monkeypatch)
            passed = [len(deliver(agent, host, life)) for _ in range(6)]
            sweep_no_more(monkeypatch)

        slow = deliver(agent, host, life)

    assert passed == [6, 0, 0, 0, 0, 0]
    assert [reference.message.body.split(b"/")[1] for reference in slow] == [b"0", b"1", b"2"]
    assert places(database) == {}


def test_mark_waits_for_a_slow_publisher_though_others_come_and_go_and_then_passes_it(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = published(agent)
    sweep_every_time(monkeypatch)
    with living(agent, host) as life:
        deliver(agent, host, life)
        with publisher_before_its_commit(agent, database, a_message(agent, "slow")):
            for number in range(5):
                agent.publish([a_message(agent, f"fast {number}")])
                with publisher_before_its_commit(agent, database, a_message(agent, f"between {number}")):
                    assert len(deliver(agent, host, life)) == 1
                assert len(deliver(agent, host, life)) == 1
            sweep_no_more(monkeypatch)

        [slow] = deliver(agent, host, life)
        sweep_every_time(monkeypatch)
        mark_passes(agent, host, life, slow.sequence)
    assert places(database) == {}


def retried_and_due(agent: Agent, host: int, life: Lifeline, reference: Reference) -> None:
    settling.retry(agent, host, life.instance, [(reference.sequence, AT_ONCE, "down")])
    agent.queues.requeue_due(host)


def left_by_the_dead(agent: Agent, host: int, life: Lifeline, _: Reference) -> None:
    dies(agent.database, life)
    agent.queues.release_dead(host)


def suspended_and_resumed(agent: Agent, host: int, life: Lifeline, reference: Reference) -> None:
    settling.suspend(agent, host, life.instance, [(reference.sequence, "refused")])
    assert agent.suspended.resume([reference.message.id]) == {reference.message.id: 1}


def given_back(agent: Agent, host: int, life: Lifeline, reference: Reference) -> None:
    settling.give_back(agent, host, life.instance, [reference.sequence])


WAYS_BACK = pytest.mark.parametrize(
    "comes_back",
    [retried_and_due, left_by_the_dead, suspended_and_resumed, given_back],
    ids=lambda way: way.__name__,
)


@WAYS_BACK
def test_reference_that_another_process_brings_back_with_its_old_number_is_found(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch, comes_back: Callable[..., None]
) -> None:
    host = published(agent)
    with living(agent, host) as life, living(agent, host) as other_life, Agent(database) as other:
        [old] = other.queues.dequeue(host, other_life.instance, limit=1)
        with monkeypatch.context() as patch:
            sweep_every_time(patch)
            agent.publish([a_message(agent, "new")])
            deliver(agent, host, life)
            mark_passes(agent, host, life, old.sequence)

        comes_back(other, host, other_life, old)

        until(lambda: [each.sequence for each in deliver(agent, host, life)] == [old.sequence], PATIENCE_SECONDS)
    assert places(database) == {}


def test_reference_that_a_start_in_another_process_resumes_with_its_old_number_is_found(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.subscriptions.deploy(deployment(Started="Region = 'SE'", Stopped="Region = 'NO'"))
    host = ids(agent)[1]
    agent.subscriptions.stop("Stopped")
    agent.publish([a_message(agent, "old")])
    [old] = agent.suspended.messages()
    [sequence] = listed(agent, "new")
    agent.publish([a_publication(agent, sequence, {"Region": "SE"})])
    with living(agent, host) as life, Agent(database) as other:
        with monkeypatch.context() as patch:
            sweep_every_time(patch)
            deliver(agent, host, life)
            mark_passes(agent, host, life, old.sequence)

        assert other.subscriptions.start("Stopped").resumed == 1

        until(lambda: [each.sequence for each in deliver(agent, host, life)] == [old.sequence], PATIENCE_SECONDS)
    assert places(database) == {}


def test_reference_that_comes_back_is_found_while_newer_ones_keep_coming(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = published(agent)
    with living(agent, host) as life, living(agent, host) as other_life, Agent(database) as other:
        [old] = other.queues.dequeue(host, other_life.instance, limit=1)
        with monkeypatch.context() as patch:
            sweep_every_time(patch)
            agent.publish([a_message(agent, "new")])
            deliver(agent, host, life)
            mark_passes(agent, host, life, old.sequence)
        monkeypatch.setattr(scan_start, "_SWEEP_SECONDS", 0.02)
        monkeypatch.setattr(scan_start, "_IDLE_SWEEP_SECONDS", 600.0)
        agent.publish([a_message(agent, "many", messages=500)])

        given_back(other, host, other_life, old)

        until(lambda: [each.sequence for each in deliver(agent, host, life, limit=1)] == [old.sequence])
        assert count(database, "queue") > 0


class SlowSweeper(Agent):
    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.slow = SlowDatabase(database, connections=8)
        self.queues = Queues(self.slow, self.messages)
        self.suspended = Suspended(self.slow, self.queues)

    def close(self) -> None:
        self.slow.close()
        super().close()


class SlowDatabase(Database):
    """Between the answer to a sweep and what it makes of it something else happens, once."""

    def __init__(self, database: str, *, connections: int) -> None:
        super().__init__(database, connections=connections)
        self.meanwhile: Callable[[], None] | None = None

    @contextmanager
    def claiming(self) -> Iterator[psycopg.Connection]:
        with super().claiming() as connection:
            yield connection
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()


@WAYS_BACK
def test_reference_that_comes_back_just_after_a_sweep_looked_is_claimed_next(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch, comes_back: Callable[..., None]
) -> None:
    host = published(agent)
    with living(agent, host) as life, living(agent, host) as other_life, SlowSweeper(database) as slow:
        [old] = slow.queues.dequeue(host, other_life.instance, limit=1)
        with monkeypatch.context() as patch:
            sweep_every_time(patch)
            agent.publish([a_message(agent, "new")])
            deliver(slow, host, life)
            mark_passes(slow, host, life, old.sequence)
            slow.slow.meanwhile = lambda: comes_back(slow, host, other_life, old)
            slow.queues._sweep(host, slow.queues._scan_starts[host], queues._EVERYTHING)
        sweep_no_more(monkeypatch)

        assert [each.sequence for each in deliver(slow, host, life)] == [old.sequence]
    assert places(database) == {}


def published(agent: Agent) -> int:
    """One message in the queue of a port; gives the host."""
    agent.subscriptions.deploy(an_application("Port"))
    agent.publish([a_message(agent)])
    return ids(agent)[1]


def deliver(agent: Agent, host: int, life: Lifeline, *, limit: int = 100) -> list[Reference]:
    """Claim and complete what is found."""
    references = agent.queues.dequeue(host, life.instance, limit=limit)
    settling.complete(agent, host, life.instance, [reference.sequence for reference in references])
    return references


def sweep_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_start, "_SWEEP_SECONDS", -1.0)
    monkeypatch.setattr(scan_start, "_IDLE_SWEEP_SECONDS", -1.0)


def sweep_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_start, "_SWEEP_SECONDS", 3600.0)
    monkeypatch.setattr(scan_start, "_IDLE_SWEEP_SECONDS", 3600.0)


def mark_passes(agent: Agent, host: int, life: Lifeline, sequence: int) -> None:
    """Sweep until claims of this process begin after a number: otherwise there would be nothing to find again."""

    def passed() -> bool:
        assert deliver(agent, host, life) == []
        return min(agent.queues._scan_starts[host].positions) > sequence

    until(passed, PATIENCE_SECONDS)
