"""A version of an orchestration ready to run: its code, what activates it, and what its ports are bound to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from crossdock.errors import ApplicationError, DocumentError
from crossdock.message.message import Message, StreamedPart
from crossdock.message.property import PropertyRegistry, Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Version
from crossdock.messagebox.load import read_receive
from crossdock.orchestration.body import encode_body
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.stepped import MadeMessage
from crossdock.orchestration.version import load
from crossdock.pipeline.build import document_map, receive_pipeline
from crossdock.pipeline.definition import PipelineDefinition
from crossdock.pipeline.limits import body_bytes
from crossdock.pipeline.receive import ReceivePipeline
from crossdock.subscription.router import ActivatingReceive

_MESSAGE_BYTES = 2_048  # besides its texts
_VALUES = 8  # times the bytes of a body take the values in it: up to thirty times, and mostly less
_LARGE_BYTES = 8 * 1024 * 1024  # the values in a body that is fetched when it is read


@dataclass(frozen=True, slots=True)
class Program:
    """Threads share it."""

    service_id: int
    host_id: int
    version: str
    definition: Mapping[str, Any]
    orchestration: Orchestration
    receives: list[ActivatingReceive]
    schemas: Mapping[str, ReceivePipeline]
    maps: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.definition["name"])

    @property
    def passes_on(self) -> bool:
        """Whether what comes too late begins the next instance."""
        return bool(self.definition["late"] == "next")

    def make(self, type_: str, body: object, promote: Mapping[str, Value]) -> MadeMessage:
        content = encode_body(body)
        pipeline = self.schemas.get(type_)
        if pipeline is None:
            return content, {"BTS.MessageType": type_, **promote}, {}
        documents = pipeline.execute(content)
        if len(documents) != 1:
            raise DocumentError(f"the body of a message of type {type_!r} is {len(documents)} documents, and not one")
        made = documents[0]
        if made.error is not None:
            raise DocumentError(f"the body does not fit the type {type_!r}: {made.error}")
        return made.body, {**made.promoted, **promote}, made.written

    def map(self, name: str, message: Message) -> tuple[str, bytes]:
        if name not in self.maps:
            known = ", ".join(self.maps) or "none"
            raise DocumentError(f"orchestration {self.name!r} has no map {name!r} (there are: {known})")
        transform, disassembler = self.maps[name]
        made = next(iter(disassembler.disassemble(transform(message.body))))
        if made.error is not None or made.type is None:
            raise DocumentError(f"the map {name!r} makes what is no message: {made.error}")
        return made.type, made.body


class RunTools:
    """What one run needs: its messages, and its program. `messages` are those that the instance was given.

    `size` is about what they take in memory, in bytes, if the code holds on to the values in them. `has_large`: one of
    them has a part that is fetched when it is read.
    """

    __slots__ = ("_program", "has_large", "messages", "size")

    def __init__(self, program: Program) -> None:
        self._program = program
        self.messages: dict[UUID, Message] = {}
        self.size = 0
        self.has_large = False

    def give(self, messages: Iterable[Message]) -> None:
        for each in messages:
            if each.id not in self.messages:
                large = sum(isinstance(part, StreamedPart) for part in each.parts)
                self.size += _size(each) + large * _LARGE_BYTES
                self.has_large = self.has_large or large > 0
            self.messages[each.id] = each

    def keep(self, ids: Collection[UUID]) -> None:
        """Nothing but these is read again."""
        kept = [each for id_, each in self.messages.items() if id_ in ids]
        self.messages, self.size, self.has_large = {}, 0, False
        self.give(kept)

    def load(self, message: UUID) -> Message:
        found = self.messages.get(message)
        if found is None:
            raise DocumentError(f"message {message}, which this instance was given, is not in the MessageBox any more")
        return found

    def make(self, type: str, body: object, promote: Mapping[str, Value]) -> MadeMessage:  # noqa: A002
        return self._program.make(type, body, promote)

    def map(self, name: str, message: Message) -> tuple[str, bytes]:
        return self._program.map(name, message)


def _size(message: Message) -> int:
    values = (*message.context.promoted.values(), *message.context.written.values())
    return _MESSAGE_BYTES + _VALUES * body_bytes([message]) + sum(len(each) for each in values if isinstance(each, str))


class Programs:
    """Every version that is needed here, loaded once. A version that cannot be loaded is an ApplicationError."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = Lock()
        self._loaded: dict[tuple[int, str], Program] = {}
        self._epoch: object = None
        self._definitions: Mapping[int, tuple[int, Mapping[str, Any] | None]] = {}
        self._types = PropertyRegistry()
        self.addresses: Mapping[tuple[str, str], str] = {}
        self.case_sensitive = False

    def refresh(self) -> bool:
        """Follow a new deployment; False if there is none."""
        router = self._agent.router()
        if router.epoch == self._epoch:
            return False
        with self._lock:
            services = self._agent.configuration.orchestrations()
            self._definitions = {id_: (host, definition) for id_, host, definition in services}
            self._types = PropertyRegistry(self._agent.configuration.properties())
            self.addresses = self._agent.instances.addresses()
            self._loaded.clear()
            self.case_sensitive = router.case_sensitive
            self._epoch = router.epoch
            return True

    def of(self, service_id: int, version: str | None = None) -> Program:
        """The version that new instances run, or this one."""
        if service_id not in self._definitions:
            self._epoch = None
            self.refresh()
        host, definition = self._definitions.get(service_id, (0, None))
        if definition is None:
            raise ApplicationError("the orchestration is not deployed any more, or has moved to another host")
        wanted = version or str(definition["version"])
        with self._lock:
            known = self._loaded.get((service_id, wanted))
            if known is None:
                known = self._loaded[service_id, wanted] = self._load(service_id, host, wanted, definition)
            return known

    def _load(self, service_id: int, host: int, version: str, definition: Mapping[str, Any]) -> Program:
        stored = self._agent.instances.version(version)
        if stored is None:
            raise ApplicationError(f"the code of version {version[:12]} is not in the MessageBox")
        bundle, packages = stored
        return made_program(service_id, host, Version(version, bundle, packages), definition, self._types)


def made_program(
    service_id: int, host_id: int, version: Version, definition: Mapping[str, Any], types: PropertyRegistry
) -> Program:
    """A version with the definition of its orchestration. Raises ApplicationError if it cannot be loaded here."""
    return Program(
        service_id,
        host_id,
        version.digest,
        definition,
        load(version.bundle, definition["function"], version.packages),
        [read_receive(types, each) for each in definition["receives"]],
        _schemas(definition),
        {name: _map(each) for name, each in definition.get("maps", {}).items()},
    )


def _schemas(definition: Mapping[str, Any]) -> dict[str, ReceivePipeline]:
    stored = definition.get("schemas", {})
    return {type_: receive_pipeline(PipelineDefinition.model_validate(each)) for type_, each in stored.items()}


def _map(stored: Mapping[str, Any]) -> Any:
    pipeline = PipelineDefinition.model_validate(stored)
    [each] = pipeline.maps
    return document_map(pipeline, each)
