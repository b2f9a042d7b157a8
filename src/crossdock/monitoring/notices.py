"""Says in the log what goes wrong for ports, receive locations and orchestrations: once, now and then, and its end.

A line names the artefact, the code, how many messages it concerns and the next step. It never quotes a message.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from crossdock.errors import TransientError, UnroutedError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.troubles import AWAY, Artefact, Trouble

SAY_AGAIN_SECONDS = 300.0
# One message may go through while others fail: only if none has failed for so long, it is over.
QUIET_SECONDS = 10.0
_WITH_PORT = ("send port", "receive port", "service")  # what is suspended for these is listed by their name

logger = logging.getLogger(__name__)

_Stored = tuple[int, int, Mapping[str, Any] | None]


class _Named(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.capitalize()} {self.name!r}"


@dataclass(slots=True)
class _State:
    """Of one artefact and code."""

    named: _Named
    since: float
    last: float
    said: float | None = None
    unsaid: int = 0
    count: int = 0
    works: bool = False


class Notices:
    """`tend` is to be called often, by one thread; `end` says what has not been said yet."""

    def __init__(self, agent: Agent, clock: Callable[[], float] = time.monotonic) -> None:
        self._agent = agent
        self._clock = clock
        self._states: dict[tuple[Artefact, int, str], _State] = {}
        self._names: dict[tuple[Artefact, int], _Named] = {}
        self._left: list[Trouble] = []

    def tend(self) -> None:
        """Say what there is to say. Where names cannot be read because PostgreSQL is away, it is said later."""
        self._left += self._agent.troubles.drain()
        if not self._left and not self._states:
            return
        try:
            while self._left:
                self._hear(self._left[0])
                self._left.pop(0)
        except TransientError as error:
            logger.debug("What goes wrong is said later: %s", error)
        now = self._clock()
        for key, state in list(self._states.items()):
            if state.unsaid and (state.said is None or now - state.said >= SAY_AGAIN_SECONDS):
                self._say(key, state)
            if state.works and now - state.last >= QUIET_SECONDS:
                self._say_over(key, state)
                del self._states[key]

    def end(self) -> None:
        """There will be no more."""
        self.tend()
        for key, state in self._states.items():
            if state.unsaid:
                self._say(key, state)
        self._states.clear()

    def _hear(self, trouble: Trouble) -> None:
        now = self._clock()
        artefact, id_, code, count = trouble
        if trouble.works:
            for key, state in self._states.items():
                if key[:2] == (artefact, id_):
                    state.works = True
            return
        key = artefact, id_, code
        if key not in self._states:
            self._states[key] = _State(self._named(artefact, id_), now, now)
        state = self._states[key]
        state.last, state.works = now, False
        state.unsaid += count
        state.count += count

    def _say(self, key: tuple[Artefact, int, str], state: _State) -> None:
        code, count = key[2], state.unsaid
        again = f", {state.count:,} in all" if state.said is not None else ""
        match code:
            case _ if code == AWAY:
                what = f"{_attempts(count)} failed ({code}){again}; they are tried again. See: {_waiting(state.named)}"
            case UnroutedError.code:
                what = f"nobody subscribes to {_messages(count)} ({code}){again}. See: {_suspended(state.named, code)}"
            case _ if state.named.kind == "orchestration":
                what = f"{_counted(count, 'instance')} suspended ({code}){again}. See: crossdock get instances"
            case _:
                what = f"{_counted(count, 'message')} suspended ({code}){again}. See: {_suspended(state.named, code)}"
        logger.warning("%s: %s", state.named, what, extra={"facts": _facts(state.named, code, count)})
        state.said, state.unsaid = self._clock(), 0

    def _say_over(self, key: tuple[Artefact, int, str], state: _State) -> None:
        code = key[2]
        seconds = state.last - state.since
        if state.unsaid:
            self._say(key, state)
        if code == UnroutedError.code:
            return  # the location has worked all the time, and whether the next one has a subscriber is not known
        stay = "" if code == AWAY else f"; what is suspended stays so. See: {_suspended(state.named, code)}"
        logger.warning(
            "%s works again%s, %s failed (%s)%s",
            state.named, f" after {seconds:.0f} s" if seconds >= 1 else "", f"{state.count:,}", code, stay,
            extra={"facts": _facts(state.named, code, state.count) | {"over": True}},
        )  # fmt: skip

    def _named(self, artefact: Artefact, id_: int) -> _Named:
        """Read again where it is not known: it may have been deployed since."""
        if (artefact, id_) not in self._names:
            known = self._agent.configuration
            if artefact == "location":
                self._learn(artefact, "receive location", known.locations())
                self._learn(artefact, "receive location", known.locations(enabled=False))
            else:
                self._learn(artefact, "send port", known.services())
                self._learn(artefact, "orchestration", known.orchestrations())
                self._learn_services()
        return self._names.get((artefact, id_), _Named(artefact, f"number {id_}"))

    def _learn(self, artefact: Artefact, kind: str, stored: Iterable[_Stored]) -> None:
        for id_, _, definition in stored:
            if definition is not None:
                self._names[artefact, id_] = _Named(kind, str(definition.get("name")))

    def _learn_services(self) -> None:
        """The two-way receive ports, by the name that their answers are listed under; then all else that has a name."""
        known = self._agent.configuration
        for name, id_ in known.waiting_services().items():
            self._names["service", id_] = _Named("receive port", name)
        for id_, name in known.service_names().items():
            self._names.setdefault(("service", id_), _Named("service", name))


def _waiting(named: _Named) -> str:
    """The command that shows why the deliveries of a port are tried again; of a location there is none, but its row."""
    if named.kind == "receive location":
        return "crossdock get locations"
    return f"crossdock get waiting --port {shlex.quote(named.name)}"


def _suspended(named: _Named, code: str) -> str:
    port = f" --port {shlex.quote(named.name)}" if named.kind in _WITH_PORT else ""
    return f"crossdock get suspended{port} --code {code}"


def _facts(named: _Named, code: str, count: int) -> dict[str, object]:
    return {"artefact": named.kind, "name": named.name, "code": code, "count": count}


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _attempts(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count:,} deliveries"


def _counted(count: int, what: str) -> str:
    return f"1 {what} is" if count == 1 else f"{count:,} {what}s are"
