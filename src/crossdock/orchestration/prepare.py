"""Before a step: the code of instances comes into memory, replayed from their history where it is not there.

What is suspended, gone or cannot be loaded is dealt with here, and none of its code runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import UUID

from crossdock.errors import ApplicationError, HistoryError, InstanceEndedError, Mismatch
from crossdock.messagebox.instance_change import WAKE_UP, InstanceChange
from crossdock.messagebox.instance_rows import StoredInstance
from crossdock.messagebox.settle import GiveBack, Hold, Retry, Settlement, Suspend
from crossdock.messagebox.step import Step
from crossdock.orchestration.environment import EngineEnvironment
from crossdock.orchestration.history import decode_history, messages_of
from crossdock.orchestration.program import RunTools
from crossdock.orchestration.run import InstanceRun
from crossdock.orchestration.runs import SeenOnce
from crossdock.orchestration.task import LATE, Live, Outcome, Task, wake_events

UNUSABLE_SECONDS = 5.0
_NOT_YET = "The message that begins the instance comes first."

logger = logging.getLogger(__name__)


class Preparation:
    """Threads share it."""

    def __init__(self, environment: EngineEnvironment) -> None:
        self._environment = environment
        self._agent = environment.agent
        self._programs = environment.programs
        self._seen = SeenOnce()

    def prepare(self, host_instance: int, tasks: Sequence[Task], settlements: list[Settlement]) -> Iterator[Task]:
        """Those whose code is in memory now, one after the other: each is replayed when it is asked for.

        What becomes of the references of others is added to `settlements`.
        """
        missing = []
        for task in tasks:
            task.live = self._environment.runs.take(task.id) if task.is_stored else None
            if task.is_stored and (task.live is None or WAKE_UP in task.timers):
                missing.append(task.id)
        loaded = self._agent.instances.load(self._environment.host_id, missing) if missing else {}
        parked = []
        for task in tasks:
            ready = False
            try:
                if task.live is not None and task.id not in missing:
                    ready = True
                elif (found := self._begun(host_instance, task, loaded)) is None:
                    settlements += self._without_instance(task)
                elif isinstance(found, Step):
                    parked.append(found)
                elif found.step == 0 and not _has_activation(task, found):
                    settlements += self._before_activation(task)
                else:
                    task.live = found
                    ready = True
            except ApplicationError as error:
                reason = f"The orchestration cannot run here: {error}"
                again = timedelta(seconds=UNUSABLE_SECONDS)
                settlements += [Retry(each, again, reason, tried=False) for each in task.references]
            except (Mismatch, HistoryError) as error:
                stored, reason = loaded[task.id], str(error)
                parked.append(self._set_aside(host_instance, task, stored, error.code, reason, line=error.line))
            if ready:
                yield task
        self._park(host_instance, parked)

    def set_aside(self, host_instance: int, task: Task, code: str, reason: str) -> list[Settlement]:
        """Suspend the instance of a task and run none of its code. Gives what becomes of references without one."""
        if not task.is_stored:
            begun = self._begun(host_instance, task, {})
            assert isinstance(begun, Live)
            self._park(host_instance, [Outcome(task, begun, host_instance).suspended(code, reason)])
            return []
        stored = self._agent.instances.load(self._environment.host_id, [task.id]).get(task.id)
        if stored is None:
            return self._without_instance(task)
        if stored.state == "suspended":
            step = self._parking(host_instance, task, stored)
        else:
            step = self._set_aside(host_instance, task, stored, code, reason)
        self._environment.runs.forget(task.id)
        self._park(host_instance, [step])
        return []

    def _begun(self, host_instance: int, task: Task, loaded: dict[UUID, StoredInstance]) -> Live | Step | None:
        """The instance with its code; if it is suspended a step that keeps what it was given; None if it is gone."""
        if task.live is not None:  # it is woken: what it is to be told is in its row
            task.live.run.drop()
            task.live = None
        if not task.is_stored:
            [reference] = task.references
            program = self._programs.of(reference.service_id)
            tools = RunTools(program)
            run = InstanceRun(program.orchestration, task.id, tools)
            history: list[bytes] | None = [] if self._environment.samples.has(program.version, task.id) else None
            return Live(task.id, program, reference.message.id, tools, run, history=history)
        stored = loaded.get(task.id)
        if stored is None:
            return None
        if stored.state == "suspended":
            return self._parking(host_instance, task, stored)
        task.parked = stored.parked
        task.wakes = wake_events(stored.state, stored.code)
        resumed = WAKE_UP in task.timers and not task.is_cancelled
        return (self._mended(stored) if resumed else None) or self._replayed(stored, stored.version)

    def _mended(self, stored: StoredInstance) -> Live | None:
        """An instance that was suspended goes on with the code that is deployed now, if that replays its history."""
        try:
            deployed = self._programs.of(stored.service_id).version
            return None if deployed == stored.version else self._replayed(stored, deployed)
        except (ApplicationError, HistoryError, Mismatch) as error:
            logger.info("Instance %s stays on version %s: %s", stored.id, stored.version[:12], error)
            return None

    def _replayed(self, stored: StoredInstance, version: str) -> Live:
        program = self._programs.of(stored.service_id, version)
        tools = RunTools(program)
        records = decode_history(stored.records)
        held = {stored.activation, *messages_of(records), *(message for _, message, _ in stored.parked)}
        # Those of all instances that are loaded together are there: each would keep them as long as itself.
        tools.give(message for id_, message in stored.messages.items() if id_ in held)
        run = InstanceRun(program.orchestration, stored.id, tools, replaying=records)
        history = list(stored.records) if self._environment.samples.has(program.version, stored.id) else None
        return Live(stored.id, program, stored.activation, tools, run, stored.step, True, stored.subscribed, history)

    def _before_activation(self, task: Task) -> list[Settlement]:
        """Another thread is about to take what begins the instance, and takes these with it; else they wait a while."""
        return [
            Retry(each, timedelta(0), _NOT_YET, tried=False) if self._seen.again(each, task.id) else GiveBack(each)
            for each in task.references
        ]

    def _without_instance(self, task: Task) -> list[Settlement]:
        """Its instance has ended. It may have been passed on since it was claimed, so it is looked at once more."""
        return [
            Suspend(each, LATE, kind="discarded", code=InstanceEndedError.code)
            if self._seen.again(each, task.id)
            else GiveBack(each)
            for each in task.references
        ]

    def _parking(self, host_instance: int, task: Task, stored: StoredInstance) -> Step:
        return self._kept(host_instance, task, _unchanged(stored, parks=True))

    def _set_aside(
        self, host_instance: int, task: Task, stored: StoredInstance, code: str, reason: str, *, line: str = ""
    ) -> Step:
        change = _unchanged(
            stored,
            state="suspended",
            code=code,
            reason=reason,
            line=line,
            timers_done=[WAKE_UP] if WAKE_UP in task.timers else [],
        )
        return self._kept(host_instance, task, change)

    def _kept(self, host_instance: int, task: Task, change: InstanceChange) -> Step:
        kept = [Hold(each, task.id, None) for each in task.references]
        return Step(self._environment.host_id, host_instance, kept, change=change)

    def _park(self, host_instance: int, steps: Sequence[Step]) -> None:
        if steps:
            for step, done in zip(steps, self._agent.step(steps), strict=True):
                if not done.done:
                    self._environment.settle(host_instance, [GiveBack(each.reference) for each in step.settles])


def _unchanged(stored: StoredInstance, **state: object) -> InstanceChange:
    """Of an instance that does no step."""
    known = stored.id, stored.service_id, stored.version, stored.activation, stored.step
    return InstanceChange(*known, stored=True, **state)  # type: ignore[arg-type]


def _has_activation(task: Task, live: Live) -> bool:
    given = [*(each.message.id for each in task.references), *(message for _, message, _ in task.parked)]
    return live.activation in given
