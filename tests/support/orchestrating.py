"""Runs an orchestration in memory, as the engine would: after each step it replays the whole history and compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from crossdock.message.context import Context
from crossdock.message.document import parse_json
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.message.property import Value
from crossdock.orchestration.atomic import perform
from crossdock.orchestration.body import encode_body
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.history import (
    Activated,
    Arrived,
    Event,
    RequestFailed,
    StepRecord,
    TimerFired,
    decode_record,
    encode_record,
)
from crossdock.orchestration.run import AtomicWanted, ContinuedWith, InstanceRun, MadeMessage, Send, State, Stepped

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryTools:
    """Messages in a dict; `schemas` say for a type which field of its JSON becomes which property."""

    def __init__(self, schemas: Mapping[str, Mapping[str, str]], maps: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.messages: dict[UUID, Message] = {}
        self.loaded: list[UUID] = []
        self._schemas = schemas
        self._maps = maps

    def load(self, message: UUID) -> Message:
        self.loaded.append(message)
        return self.messages[message]

    def make(self, type: str, body: object, promote: Mapping[str, Value]) -> MadeMessage:  # noqa: A002
        content = encode_body(body)
        fields = self._schemas.get(type, {})
        document = parse_json(content) if fields else {}
        found = {name: document[field] for name, field in fields.items() if field in document}
        return content, {**found, **promote}, {}

    def map(self, name: str, message: Message) -> tuple[str, bytes]:
        return name, self._maps[name](message.body)


class Driver:
    """One instance. `sent` is everything that it has sent so far."""

    def __init__(
        self,
        orchestration: Orchestration,
        *,
        schemas: Mapping[str, Mapping[str, str]] | None = None,
        maps: Mapping[str, Callable[[bytes], bytes]] | None = None,
        replay: bool = True,
        instance: UUID | None = None,
    ) -> None:
        self.orchestration = orchestration
        self.instance = instance or uuid4()
        self.tools = MemoryTools(schemas or {}, maps or {})
        self.run = InstanceRun(orchestration, self.instance, self.tools)
        self.now = BEGIN
        self.records: list[StepRecord] = []
        self.steps: list[Stepped] = []
        self.sent: list[Send] = []
        self.timers: dict[int, datetime] = {}
        self._replay = replay

    def state(self) -> State:
        assert self.run.state is not None
        return self.run.state

    @property
    def sends(self) -> list[tuple[str, str, Any]]:
        """Port or kind, type and body of everything sent."""
        return [(each.port.name if each.port else each.kind, each.type, parse_json(each.body)) for each in self.sent]

    def message(
        self,
        type_: str,
        body: object = None,
        *,
        promote: Mapping[str, Value] | None = None,
        labels: Sequence[str] = (),
        written: Mapping[str, Value] | None = None,
        parts: Sequence[Part | StreamedPart] = (),
    ) -> UUID:
        """Store a message."""
        content, found, _ = self.tools.make(type_, body, promote or {})
        context = Context({**found, "BTS.MessageType": type_}, written or {}, frozenset(labels))
        id_ = uuid4()
        self.tools.messages[id_] = Message(MessageId(id_), context, (Part("body", content), *parts))
        return id_

    def activate(self, type_: str = "Order", body: object = None, *, receive: int = 0, **promoted: Value) -> Stepped:
        return self.step(Activated(self.message(type_, body, promote=promoted), receive))

    def arrive(self, correlation: str, type_: str, body: object = None, **promoted: Value) -> Stepped:
        return self.step(Arrived(self.message(type_, body, promote=promoted), correlation))

    def respond(self, request: int, type_: str = "Response", body: object = None) -> Stepped:
        return self.step(Arrived(self.message(type_, body), request=request))

    def fail_request(self, request: int, reason: str = "the partner is away") -> Stepped:
        return self.step(RequestFailed(request, reason))

    def fire(self) -> Stepped:
        """The timer that is due first fires."""
        number, due = min(self.timers.items(), key=lambda timer: (timer[1], timer[0]))
        del self.timers[number]
        self.now = max(self.now, due)
        return self.step(TimerFired(number))

    def perform(self, *leading: object) -> Stepped:
        """Call the atomic function that the instance wants."""
        wanted = self.state()
        assert isinstance(wanted, AtomicWanted)
        return self.step(perform(wanted, *leading))

    def step(self, *events: Event) -> Stepped:
        self.now += timedelta(seconds=1)
        stepped = self.run.step(self.now, events)
        self._store(stepped)
        while isinstance(stepped.state, ContinuedWith):
            self.records.clear()
            stepped = self.run.step(self.now, stepped.state.events)
            self._store(stepped)
        if self._replay:
            self.check_replay()
        return stepped

    def replayed(self, records: Sequence[StepRecord] | None = None) -> InstanceRun:
        stored = [decode_record(encode_record(each)) for each in (self.records if records is None else records)]
        return InstanceRun(self.orchestration, self.instance, self.tools, replaying=stored)

    def evict(self) -> None:
        """Forget the run, and make it anew from its history."""
        self.run.drop()
        self.run = self.replayed()

    def check_replay(self) -> None:
        replayed = self.replayed()
        assert replayed.state == self.run.state
        replayed.drop()

    def _store(self, stepped: Stepped) -> None:
        self.steps.append(stepped)
        self.records.append(stepped.record)
        self.sent += stepped.sends
        self.timers |= dict(stepped.timers)
        for number in stepped.cancelled_timers:
            self.timers.pop(number, None)
