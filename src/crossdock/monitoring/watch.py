"""What a process knows of itself and of the MessageBox: a thread looks every second, whoever asks is told at once.

So a scrape costs the MessageBox nothing, and a server that hangs does not let those hang who ask how it is.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from crossdock.errors import CrossdockError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.pulse import Beat
from crossdock.messagebox.sample import Sample

LOOK_SECONDS = 1.0
_REACHABLE_SECONDS = 5.0  # an answer that is older says nothing
_STALE_SECONDS = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """`healthy` decides the status. Hosts of other processes are told, and are not what this one is judged by."""

    healthy: bool
    problems: tuple[str, ...]
    database_reachable: bool
    hosts: Mapping[str, Mapping[str, Any]]
    sample_age_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen at a time by our monotonic clock."""

    beat: Beat
    at: float


@dataclass(slots=True)
class Watch:
    """Between `start` and `stop`. `in_hand` are the hosts of this process, with how many references each has in hand.

    `samples`: whether our database user may read samples, and takes them.
    """

    agent: Agent
    in_hand: Callable[[], Mapping[int, int]]
    samples: bool = True
    clock: Callable[[], float] = time.monotonic
    look_seconds: float = LOOK_SECONDS
    _seen: _Seen | None = None
    _sample: tuple[Sample, float] | None = None
    _problem: str = "has not been asked yet"
    _began: float = 0.0
    _stopping: Event = field(default_factory=Event)
    _thread: Thread | None = None
    _logged: LogCount = field(default_factory=lambda: LogCount())

    def start(self) -> None:
        self._began = self.clock()
        logging.getLogger("crossdock").addHandler(self._logged)
        self._thread = Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """A server that hangs is not waited for."""
        self._stopping.set()
        logging.getLogger("crossdock").removeHandler(self._logged)
        if self._thread is not None:
            self._thread.join(_REACHABLE_SECONDS)

    @property
    def reachable(self) -> bool:
        seen = self._seen
        return seen is not None and not self._problem and self.clock() - seen.at <= _REACHABLE_SECONDS

    def sample(self) -> tuple[Sample, float] | None:
        """The newest, with its age in seconds; None if there is none, it is old, or we may not read it."""
        if self._sample is None:
            return None
        sample, read_at = self._sample
        age = sample.age_seconds + self.clock() - read_at
        return (sample, age) if age <= _STALE_SECONDS else None

    def held(self) -> dict[str, int]:
        """By the name of the host: references that this process has claimed and not settled."""
        names = {} if self._seen is None else {each.host_id: each.host for each in self._seen.beat.lives}
        return {names[id_]: count for id_, count in self.in_hand().items() if id_ in names}

    def logged(self) -> Mapping[str, int]:
        """Lines by level."""
        return dict(self._logged.levels)

    def health(self) -> Health:
        reachable = self.reachable
        mine = set(self.held())
        beat = self._seen.beat if self._seen is not None else Beat((), None)
        hosts: dict[str, dict[str, Any]] = {
            name: {"here": name in mine, "instances": {}} for name in sorted(mine | {each.host for each in beat.lives})
        }
        for life in beat.lives:
            if life.state is not None:
                hosts[life.host]["instances"][life.state] = life.instances
        age = None if self._seen is None or beat.sample_age is None else self._aged(beat.sample_age, self._seen.at)
        problems = [] if reachable else [f"PostgreSQL {self._problem or 'does not answer'}"]
        dead = [name for name, each in hosts.items() if each["here"] and not each["instances"]]
        problems += [f"host {name!r} has no living instance" for name in dead]
        if reachable and self.samples and self._is_stale(age):
            problems.append("no sample of the MessageBox has been taken for a minute")
        return Health(not problems, tuple(problems), reachable, hosts, age)

    def _aged(self, age: float, at: float) -> float:
        return round(age + self.clock() - at, 1)

    def _is_stale(self, age: float | None) -> bool:
        if self.clock() - self._began <= _STALE_SECONDS:
            return False  # whoever takes them has just begun as well
        return age is None or age > _STALE_SECONDS

    def _run(self) -> None:
        pulse = self.agent.pulse()
        while not self._stopping.wait(self.look_seconds if self._seen else 0.0):
            try:
                beat = pulse.beat()
                self._seen, self._problem = _Seen(beat, self.clock()), ""
                if self.samples:
                    self._read_sample()
            except CrossdockError as error:
                self._problem = "cannot be reached"
                logger.debug("Watching waits: %s", error)
                self._stopping.wait(self.look_seconds)
            except Exception:
                self._problem = "refuses to be asked"
                logger.debug("Watching failed", exc_info=True)
                self._stopping.wait(self.look_seconds)
        pulse.close()

    def _read_sample(self) -> None:
        known = 0 if self._sample is None else self._sample[0].number
        if self.agent.samples.newest_number() != known and (newest := self.agent.samples.newest()) is not None:
            self._sample = newest, self.clock()


class LogCount(logging.Handler):
    """Counts what is logged, by level."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: Counter[str] = Counter(dict.fromkeys(("warning", "error"), 0))

    def emit(self, record: logging.LogRecord) -> None:
        self.levels[record.levelname.lower()] += 1
