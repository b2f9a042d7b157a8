"""After the code has run: the steps of many instances are committed together, atomic work in a transaction of its own.

A step whose fence does not hold drops out: its references go back, and its code is forgotten. What the MessageBox
refuses is found by halving, and its instance is suspended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from crossdock.errors import CrossdockError, StepLostError, TransientError, UndoneError
from crossdock.foreign import described
from crossdock.messagebox.settle import GiveBack, Settlement
from crossdock.messagebox.step import Step
from crossdock.orchestration.atomic import perform
from crossdock.orchestration.environment import EngineEnvironment
from crossdock.orchestration.history import messages_of
from crossdock.orchestration.run import AtomicWanted, Failed, Waiting
from crossdock.orchestration.samples import check_replay
from crossdock.orchestration.task import Live, Outcome, Task

logger = logging.getLogger(__name__)


class Commits:
    """Threads share it."""

    def __init__(self, environment: EngineEnvironment) -> None:
        self._environment = environment
        self._agent = environment.agent

    def commit(self, host_instance: int, outcomes: Sequence[Outcome]) -> None:
        """All of them together, but those that want atomic work."""
        steps: list[tuple[Outcome, Step]] = []
        for each in outcomes:
            if isinstance(each.last.state, AtomicWanted):
                continue
            try:
                steps.append((each, self._step(each)))
            except TransientError:
                raise
            except CrossdockError as error:
                each.live.run.drop()
                self._agent.step([each.suspended("not-sent", str(error))])
        self._commit(host_instance, steps)
        for each in outcomes:
            if isinstance(each.last.state, AtomicWanted):
                self._perform(each)

    def suspend(self, host_instance: int, task: Task, live: Live, error: Exception) -> list[Settlement]:
        """Nothing of the step is done. Gives what becomes of its references if somebody else has the instance."""
        reason = f"Unexpected {described(error)}"
        step = Outcome(task, live, host_instance).suspended("unexpected-error", reason)
        return [] if self._agent.step([step])[0].done else [GiveBack(each) for each in task.references]

    def _step(self, outcome: Outcome) -> Step:
        return outcome.step(self._agent.message_id, self._environment.programs.addresses)

    def _perform(self, outcome: Outcome) -> None:
        """Atomic work in a transaction of its own, with everything that comes before and after it in the step."""
        references, host_instance = outcome.task.references, outcome.host_instance
        try:
            with self._agent.open_step(self._step(outcome)) as opened:
                while isinstance(wanted := outcome.last.state, AtomicWanted):
                    with opened.work() as work:
                        done = perform(wanted, work.connection)
                        work.undone = done.error is not None
                    outcome.run([done])
                check_replay(outcome)
                opened.step = self._step(outcome)
                if isinstance(outcome.last.state, Failed) or outcome.mismatch is not None:
                    raise UndoneError  # the atomic work is undone with everything else
            self._done(outcome)
        except UndoneError:
            outcome.live.run.drop()
            if not self._agent.step([opened.step])[0].done:
                self._environment.settle(host_instance, [GiveBack(each) for each in references])
        except StepLostError:
            outcome.live.run.drop()
            self._environment.settle(host_instance, [GiveBack(each) for each in references])
        except TransientError:
            outcome.live.run.drop()
            raise
        except Exception as error:
            outcome.live.run.drop()
            left = self.suspend(host_instance, outcome.task, outcome.live, error)
            self._environment.settle(host_instance, left)

    def _commit(self, host_instance: int, steps: Sequence[tuple[Outcome, Step]]) -> None:
        if not steps:
            return
        try:
            done = self._agent.step([step for _, step in steps])
        except TransientError:
            raise
        except Exception as error:
            self._commit_apart(host_instance, steps, error)
            return
        lost: list[Settlement] = []
        for (outcome, _), each in zip(steps, done, strict=True):
            if each.done:
                self._done(outcome)
            else:
                outcome.live.run.drop()
                lost += [GiveBack(reference) for reference in outcome.task.references]
        self._environment.settle(host_instance, lost)

    def _commit_apart(self, host_instance: int, steps: Sequence[tuple[Outcome, Step]], error: Exception) -> None:
        if len(steps) > 1:
            middle = len(steps) // 2
            self._commit(host_instance, steps[:middle])
            self._commit(host_instance, steps[middle:])
            return
        [(outcome, _)] = steps
        logger.error("The step of instance %s is refused: %r", outcome.live.id, error)
        outcome.live.run.drop()
        left = self.suspend(host_instance, outcome.task, outcome.live, error)
        self._environment.settle(host_instance, left)

    def _done(self, outcome: Outcome) -> None:
        live, state = outcome.live, outcome.last.state
        # A large part is read by the claim of its message, which ends here; after a replay it is read as what is held.
        if isinstance(state, Waiting) and outcome.mismatch is None and not outcome.task.has_streams:
            live.history = None if live.history is None else outcome.history
            live.step, live.stored, live.subscribed = live.step + outcome.recorded, True, True
            if outcome.continued is not None:
                live.tools.keep(set(messages_of(each.record for each in outcome.recorded_steps)))
            self._environment.runs.keep(live)
        else:
            live.run.drop()
