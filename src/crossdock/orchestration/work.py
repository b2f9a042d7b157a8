"""A batch of work: runs the code of many instances with no transaction open, then commits all their steps together.

What does not hold drops out: references go back, and the code is forgotten. The next attempt replays the history, which
says what has happened. `prepare.py` is before the code runs, `commit.py` after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from uuid import UUID

from crossdock.errors import DeathsError, TransientError
from crossdock.host.limits import HostLimits
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.instance_rows import DueTimer, new_instance_id
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.settle import GiveBack, Settlement, Suspend
from crossdock.orchestration.commit import Commits
from crossdock.orchestration.environment import EngineEnvironment, Persist
from crossdock.orchestration.notes import Notes
from crossdock.orchestration.prepare import Preparation
from crossdock.orchestration.program import Program, Programs
from crossdock.orchestration.samples import check_replay
from crossdock.orchestration.task import TOGETHER_BYTES, Outcome, Task, is_ambiguous

logger = logging.getLogger(__name__)


class Worker:
    """Does batches of work. `persist` calls until PostgreSQL is there, or the engine has to stop."""

    def __init__(self, agent: Agent, host_id: int, limits: HostLimits, persist: Persist) -> None:
        self._environment = EngineEnvironment(agent, host_id, limits, persist, Programs(agent))
        self._agent = agent
        self._limits = limits
        self._preparation = Preparation(self._environment)
        self._commits = Commits(self._environment)
        self._notes = Notes(self._environment)

    def forget(self) -> None:
        """Nobody waits for anything: what is not needed is replayed when it is."""
        self._environment.runs.clear()

    def work(self, host_instance: int, references: Sequence[Reference], due: Sequence[DueTimer]) -> None:
        """Give instances what they were sent, and what time it is. References are settled then, or given back."""
        try:
            if self._environment.programs.refresh():
                self._environment.runs.clear()  # other bindings hold for running instances too
            self._environment.settle(
                host_instance, [_unreadable(each) for each in references if each.undeliverable is not None]
            )
            tasks = tasks_of([each for each in references if each.undeliverable is None], due)
            quick = [task for task in tasks if not task.deaths]
            with self._notes.together(host_instance, quick):
                self._together(host_instance, quick)
            for task in tasks:
                if task.deaths:
                    self._alone(host_instance, task)
        except TransientError as error:
            # Whether the last commit happened is not known: what is settled stays so, and the rest comes again.
            self._agent.outage.waits(error)
            self._environment.runs.clear()
            self._environment.settle(host_instance, [GiveBack(each) for each in references])

    def _together(self, host_instance: int, tasks: Sequence[Task]) -> None:
        settlements: list[Settlement] = []
        outcomes: list[Outcome] = []
        size = 0
        for outcome in self._stepped(host_instance, tasks, settlements):
            outcomes.append(outcome)
            size += outcome.size
            if size >= TOGETHER_BYTES:  # else the values in hundreds of large bodies would be in memory at once
                self._commits.commit(host_instance, outcomes)
                outcomes, size = [], 0
        self._commits.commit(host_instance, outcomes)
        self._environment.settle(host_instance, settlements)

    def _stepped(self, host_instance: int, tasks: Sequence[Task], settlements: list[Settlement]) -> Iterator[Outcome]:
        """What the code has done. What becomes of references that no code was given is added to `settlements`."""
        for task in self._preparation.prepare(host_instance, tasks, settlements):
            outcome = self._run(host_instance, task, settlements)
            if outcome is not None:
                yield outcome

    def _alone(self, host_instance: int, task: Task) -> None:
        """A process has ended that had some of it in hand: first it is noted, then it is tried by itself."""
        if task.deaths >= self._limits.deaths_before_alone + self._limits.deaths_alone:
            reason = f"The process that ran it has ended {task.deaths} times; it was not tried again."
            left = self._preparation.set_aside(host_instance, task, DeathsError.code, reason)
            self._environment.settle(host_instance, left)
            return
        with self._notes.alone(host_instance, task) as lives:
            if lives:
                self._together(host_instance, [task])

    def _run(self, host_instance: int, task: Task, settlements: list[Settlement]) -> Outcome | None:
        live = task.live
        assert live is not None
        try:
            live.tools.give(each.message for each in task.references)
            outcome = Outcome(task, live, host_instance)
            if task.is_cancelled and live.step == 0:
                outcome.cancel_unbegun()
                return outcome
            correlations = self._correlations(task, live.program)
            outcome.run(task.events(live, correlations, case_sensitive=self._environment.programs.case_sensitive))
            check_replay(outcome)
            return outcome
        except TransientError:
            raise
        except Exception as error:
            logger.exception("Instance %s of orchestration %r cannot be stepped", task.id, live.program.name)
            live.run.drop()
            settlements += self._commits.suspend(host_instance, task, live, error)
            return None

    def _correlations(self, task: Task, program: Program) -> dict[int, str | None]:
        """By what it was given messages, where the messages do not say it."""
        sought = [each.subscription_id for each in task.references if is_ambiguous(program, task.id, each.message)]
        sought += [subscription for _, _, subscription in task.parked]
        return self._agent.instances.correlations(sought) if sought else {}


def tasks_of(references: Sequence[Reference], due: Sequence[DueTimer]) -> list[Task]:
    """One for each instance, with everything that it is given now."""
    tasks: dict[UUID, Task] = {}
    for each in sorted(references, key=lambda reference: reference.sequence):
        id_ = each.instance or new_instance_id()
        tasks.setdefault(id_, Task(id_, each.claimed_at.now())).references.append(each)
    for timer in due:
        task = tasks.setdefault(timer.instance, Task(timer.instance, timer.now))
        task.timers.append(timer.number)
        task.timer_deaths = max(task.timer_deaths, timer.deaths)
    return list(tasks.values())


def _unreadable(reference: Reference) -> Settlement:
    assert reference.undeliverable is not None
    return Suspend(reference, str(reference.undeliverable), code=reference.undeliverable.code)
