"""Replay of samples: after a step, the history of some instances is replayed at once, and has to give the same again.

Code that depends on the clock, on chance or on a global variable differs there, before anything of its step is done,
and not weeks later at another machine. The first instances of each version are replayed, then one in a hundred.
"""

from __future__ import annotations

import logging
from threading import Lock
from uuid import UUID

from crossdock.errors import Mismatch
from crossdock.foreign import FOREIGN_CODE
from crossdock.orchestration.history import decode_record
from crossdock.orchestration.run import AtomicWanted, Failed, InstanceRun
from crossdock.orchestration.task import Outcome

FIRST_INSTANCES = 20
ONE_IN = 100
# Of a longer history only lengths that are powers of two are replayed, or a long loop would take ever longer.
_EACH_STEP_UNTIL = 32

logger = logging.getLogger(__name__)


class Samples:
    """Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._first: dict[str, set[UUID]] = {}

    def has(self, version: str, instance: UUID) -> bool:
        """Whether an instance is one of those that are replayed. The ends of ids are random."""
        first = self._first.get(version)
        if first is None or len(first) < FIRST_INSTANCES:
            with self._lock:
                first = self._first.setdefault(version, set())
                if len(first) < FIRST_INSTANCES:
                    first.add(instance)
        return instance in first or instance.int % ONE_IN == 0


def check_replay(outcome: Outcome) -> None:
    """Note the mismatch if the history with this step, in a sample, does not give the same again."""
    live, state = outcome.live, outcome.last.state
    if live.history is None or isinstance(state, Failed | AtomicWanted):
        return
    records = outcome.history
    if len(records) > _EACH_STEP_UNTIL and len(records).bit_count() > 1:
        return
    try:
        with FOREIGN_CODE:
            replayed = [decode_record(each) for each in records]
            InstanceRun(live.program.orchestration, live.id, live.tools, replaying=replayed).drop()
    except Mismatch as error:
        logger.warning("Instance %s is suspended: %s", live.id, error)
        outcome.mismatch = error
