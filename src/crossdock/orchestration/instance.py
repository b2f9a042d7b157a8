"""The state of one instance that its verbs share: sets, labels, counters, waits, and the journal of the step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from random import Random
from uuid import UUID

from crossdock.errors import MisuseError
from crossdock.message.message import Message
from crossdock.message.property import TOKEN, Value
from crossdock.orchestration.declare import Correlation, Orchestration
from crossdock.orchestration.history import Activated, Continued
from crossdock.orchestration.journal import Journal
from crossdock.orchestration.line import defining_line
from crossdock.orchestration.scheduler import Scheduler
from crossdock.orchestration.snapshot import restored_sets
from crossdock.orchestration.stepped import Tools
from crossdock.orchestration.waits import Waits

_TWO_WAY = "BTS.IsRequestResponse"


class Instance:
    """Of one run, from its first event, Activated or Continued, to its end."""

    def __init__(self, orchestration: Orchestration, id_: UUID, tools: Tools) -> None:
        self.orchestration = orchestration
        self.id = id_
        self.tools = tools
        self.scheduler = Scheduler(self.misuse)
        self.waits = Waits(self)
        self.journal = Journal(None)
        self.step = 0
        self.at: datetime | None = None
        self.sets: dict[str, Mapping[str, Value]] = {}
        self.labels: frozenset[str] = frozenset()
        self.open_requests: dict[UUID, None] = {}
        self.given: set[UUID] = set()
        self.patches: dict[str, bool] = {}
        self.counters: dict[str, int] = {}
        self.secret = b""
        self.cancelling = False
        self.continues_with: tuple[object, ...] | None = None
        self._random: Random | None = None

    def number(self, what: str) -> int:
        """The next number of a kind of thing, from 1."""
        self.counters[what] = number = self.counters.get(what, 0) + 1
        return number

    def draw(self, what: str, size: int) -> bytes:
        """Bytes that differ between instances and from call to call, and are the same in every replay."""
        seed = self.id.bytes + self.secret + f"{what}:{self.number(what)}".encode()
        return blake2b(seed, digest_size=size).digest()

    @property
    def random(self) -> Random:
        if self._random is None:
            self._random = Random(self.draw("random", 32))  # noqa: S311 - it has to be the same in a replay
        return self._random

    def misuse(self, what: str, line: str | None = None) -> MisuseError:
        """One sentence with the orchestration, the step and the author's line."""
        place = self.scheduler.line() if line is None else line
        place = place or defining_line(self.orchestration.function.__code__)
        return MisuseError(f"Orchestration {self.orchestration.name!r}, step {self.step}, {place}: {what}", line=place)

    def activate(self, event: Activated) -> Message:
        """The message that starts the instance; the sets of its receive are initialized by it."""
        self.secret = event.secret
        message = self.take(event.message)
        for correlation in self.orchestration.receives[event.receive].initializes:
            self.initialize(correlation, message.context.promoted, "")
        return message

    def restore(self, event: Continued) -> None:
        """What `continue_with` kept."""
        self.sets |= restored_sets(event)
        self.labels = frozenset(event.labels)
        self.open_requests = dict.fromkeys(event.open_requests)
        self.patches = dict(event.patches)
        self.counters = dict(event.counters)
        self.secret = event.secret
        self.waits.inbox = list(event.inbox)

    def take(self, id_: UUID) -> Message:
        """The code receives a message: what it sends from now on has the labels of the message too."""
        message = self.tools.load(id_)
        context = message.context
        self.journal.taken.append(id_)
        self.given.add(id_)
        self.labels |= context.labels
        if TOKEN in context.written or context.get(_TWO_WAY) is True:
            self.open_requests[id_] = None
        return message

    def known(self, correlation: object) -> Correlation:
        """The set, if the orchestration has it; it has a name then."""
        if not isinstance(correlation, Correlation):
            raise self.misuse(f"{correlation!r} is not a correlation set")
        if correlation not in self.orchestration.correlations:
            raise self.misuse(
                f"{correlation!r} is not found in the module; make it a global, or declare it: "
                "@orchestration(..., correlations=[...])"
            )
        return correlation

    def initialize(self, correlation: Correlation, promoted: Mapping[str, Value], line: str | None = None) -> None:
        """Give a set its values, once. The engine subscribes the instance to them."""
        self.known(correlation)
        if correlation.name in self.sets:
            raise self.misuse(f"the set {correlation.name!r} is initialized already; a set gets its values once", line)
        values = {}
        for name in correlation.properties:
            full = name if name in promoted else f"BTS.{name}"
            if full not in promoted:
                raise self.misuse(
                    f"the message that initializes the set {correlation.name!r} has no promoted property {name!r}", line
                )
            values[full] = promoted[full]
        self.sets[correlation.name] = values
        self.journal.subscribes.append((correlation, values))
        self.journal.command("set", correlation.name, line or "", [repr(sorted(values.items())).encode()])
