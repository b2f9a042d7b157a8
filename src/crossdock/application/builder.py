"""Applications written in Python: the same model as YAML, built by calls."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossdock.application.model import ApplicationModel, Track
from crossdock.application.problems import Lines, Place, Problems
from crossdock.errors import FilterError
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.pipeline.definition import Format
from crossdock.subscription.expression import Expression, compile_expression
from crossdock.subscription.predicate import groups_of_filter


@dataclass(frozen=True, slots=True)
class TypedPath:
    """The path of a field, and the type of the property it is promoted to."""

    type: PropertyType
    path: str


def text(path: str) -> TypedPath:
    return TypedPath(PropertyType.TEXT, path)


def integer(path: str) -> TypedPath:
    return TypedPath(PropertyType.INTEGER, path)


def decimal(path: str) -> TypedPath:
    return TypedPath(PropertyType.DECIMAL, path)


def float_(path: str) -> TypedPath:
    return TypedPath(PropertyType.FLOAT, path)


def boolean(path: str) -> TypedPath:
    return TypedPath(PropertyType.BOOLEAN, path)


def datetime(path: str) -> TypedPath:
    return TypedPath(PropertyType.DATETIME, path)


class Application:
    """Collects what is declared; `model()` gives the application that the same YAML would give."""

    def __init__(self, name: str, *, track: Track = "events") -> None:
        """`track`: what is tracked of its locations, ports and orchestrations that do not say it themselves."""
        self.name = name
        self._track = track
        self._properties: dict[str, PropertyType] = {}
        self._personal: set[str] = set()
        self._hosts: list[dict[str, Any]] = []
        self._schemas: list[dict[str, Any]] = []
        self._pipelines: list[dict[str, Any]] = []
        self._receive_ports: list[ReceivePort] = []
        self._send_ports: list[SendPort] = []
        self._groups: list[SendPortGroup] = []
        self._orchestrations: list[dict[str, Any]] = []
        self._declared_at: dict[Place, tuple[str, int]] = {}

    def host(self, name: str, *, labels: Sequence[str] = ()) -> Application:
        """A host that ports and locations may name; it is given messages that carry these labels."""
        self._note("hosts", self._hosts)
        self._hosts.append({"name": name, "labels": list(labels)})
        return self

    def property(self, name: str, type_: str, *, personal: bool = False) -> Application:
        """Declare a property that no schema of this application promotes, or one whose values are personal."""
        self._declare(name, PropertyType(type_))
        if personal:
            self._personal.add(name)
        return self

    def schema(
        self,
        type_: str,
        *,
        format: Format,  # noqa: A002
        promote: Mapping[str, TypedPath] | None = None,
        **options: Any,
    ) -> Application:
        """A kind of document, and the properties promoted from it; each is declared by being promoted.

        `options`: whatever else a schema has in YAML, such as namespaces, body, columns, validate.
        """
        self._note("schemas", self._schemas)
        self._schemas.append({"type": type_, "format": format, "promote": self._paths(promote or {}), **options})
        return self

    def pipeline(self, name: str, *, disassemble: str, **options: Any) -> Application:
        """A pipeline of one's own. `options`: decode, charset, components."""
        self._note("pipelines", self._pipelines)
        self._pipelines.append({"name": name, "disassemble": disassemble, **options})
        return self

    def receive_port(self, name: str, **options: Any) -> ReceivePort:
        """`options`: maps, failed_messages, two_way, response, response_maps."""
        port = ReceivePort(name, options)
        self._note("receive_ports", self._receive_ports)
        self._receive_ports.append(port)
        return port

    def send_port(self, name: str, *, filter: Expression | str | None = None, **options: Any) -> SendPort:  # noqa: A002
        """`options`: host, priority, ordered, retry, service_window and whatever else a send port has in YAML."""
        port = SendPort(name, filter, options)
        self._note("send_ports", self._send_ports)
        self._send_ports.append(port)
        return port

    def send_port_group(
        self,
        name: str,
        *,
        ports: Sequence[str],
        filter: Expression | str | None = None,  # noqa: A002
    ) -> Application:
        """Ports that are given messages together."""
        self._note("send_port_groups", self._groups)
        self._groups.append(SendPortGroup(name, filter, {"ports": list(ports)}))
        return self

    def orchestration(self, function: str, *, bind: Mapping[str, str] | None = None, **options: Any) -> Application:
        """Run the coroutine `module:name` for messages that activate it.

        `bind`: for each port of the coroutine the name of a send port, a group or an orchestration, or `direct`.
        `options`: name, host, maps, track.
        """
        self._note("orchestrations", self._orchestrations)
        self._orchestrations.append({"function": function, "bind": dict(bind or {}), **options})
        return self

    def model(self) -> ApplicationModel:
        """Raises ApplicationError or ValidationError."""
        problems = Problems(Path(self.name), {})
        declared = self.declared(problems)
        problems.raise_any()
        return ApplicationModel.model_validate(declared)

    def declared(self, problems: Problems) -> dict[str, Any]:
        """As YAML would say it; a filter that is wrong is one of the problems, and left out."""
        registry = PropertyRegistry(self._properties)
        return {
            "application": self.name,
            "track": self._track,
            "hosts": self._hosts,
            "properties": {
                name: {"type": type_, "personal": name in self._personal} for name, type_ in self._properties.items()
            },
            "schemas": self._schemas,
            "pipelines": self._pipelines,
            "receive_ports": [port.declared() for port in self._receive_ports],
            "send_ports": [
                port.declared(registry, ("send_ports", number), problems)
                for number, port in enumerate(self._send_ports)
            ],
            "send_port_groups": [
                group.declared(registry, ("send_port_groups", number), problems)
                for number, group in enumerate(self._groups)
            ],
            "orchestrations": self._orchestrations,
        }

    def lines_in(self, file: str) -> Lines:
        """The lines of this file at which artefacts are declared."""
        return {place: line for place, (name, line) in self._declared_at.items() if name == file}

    def _note(self, key: str, declared: Sequence[object]) -> None:
        """The artefact that comes next is declared where we are called from."""
        frame = sys._getframe(2)
        self._declared_at[key, len(declared)] = frame.f_code.co_filename, frame.f_lineno

    def _paths(self, promote: Mapping[str, TypedPath]) -> dict[str, str]:
        for name, promoted in promote.items():
            self._declare(name, promoted.type)
        return {name: promoted.path for name, promoted in promote.items()}

    def _declare(self, name: str, type_: PropertyType) -> None:
        PropertyRegistry(self._properties).declare(name, type_)
        self._properties[name] = type_


class ReceivePort:
    """Add locations by their adapter."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._options = options
        self._locations: list[dict[str, Any]] = []

    def file(self, address: str, *, pipeline: str, **options: Any) -> ReceivePort:
        """Read the files that match the mask at the end of `address`."""
        return self.adapter("file", address, pipeline=pipeline, **options)

    def sql(
        self, address: str, *, query: str, key: str, done: str, pipeline: str = "json", **options: Any
    ) -> ReceivePort:
        """Read the rows that `query` gives, each as a JSON object, and run `done` for those that are published."""
        adapter = {"query": query, "key": key, "done": done, **options.pop("options", {})}
        return self.adapter("sql", address, pipeline=pipeline, options=adapter, **options)

    def http(self, address: str, *, pipeline: str, **options: Any) -> ReceivePort:
        """Take what is sent to `address`, such as http://0.0.0.0:8080/orders; the port may be `two_way`."""
        return self.adapter("http", address, pipeline=pipeline, **options)

    def adapter(self, adapter: str, address: str, *, pipeline: str, **options: Any) -> ReceivePort:
        """Receive by an adapter of one's own, such as `notes:NoteAdapter`."""
        self._locations.append({"adapter": adapter, "address": address, "pipeline": pipeline, **options})
        return self

    def declared(self) -> dict[str, Any]:
        return {"name": self.name, "locations": self._locations, **self._options}


class SendPortGroup:
    """Ports that are given messages together."""

    kind = "send port group"

    def __init__(self, name: str, filter_: Expression | str | None, options: Mapping[str, Any]) -> None:
        self.name = name
        self._filter = filter_
        self._options = options

    def declared(self, registry: PropertyRegistry, place: Place, problems: Problems) -> dict[str, Any]:
        declared = {"name": self.name, **self._options}
        if isinstance(self._filter, Expression):
            try:
                return declared | {"filter": groups_of_filter(compile_expression(registry, self._filter))}
            except FilterError as error:
                problems.add(place, f"{self.kind} {self.name!r}, filter: {error.reason}")
                return declared
        return declared if self._filter is None else declared | {"filter": self._filter}


class SendPort(SendPortGroup):
    """Say where it sends by its adapter."""

    kind = "send port"

    def file(self, address: str) -> SendPort:
        """Write one file per message."""
        return self._to("file", address, {})

    def http(self, address: str, **options: Any) -> SendPort:
        """Send each message as a request. `options`: method, headers, timeout and whatever else the adapter has."""
        return self._to("http", address, options)

    def sql(self, address: str, *, statement: str, **options: Any) -> SendPort:
        """Run a statement for each message, in the database at this SQLAlchemy URL."""
        return self._to("sql", address, {"statement": statement, **options})

    def adapter(self, adapter: str, address: str, **options: Any) -> SendPort:
        """Send by an adapter of one's own, such as `letters:LetterAdapter`."""
        return self._to(adapter, address, options)

    def dynamic(self, *, allow: Sequence[str | Mapping[str, Any]] = (), **options: Any) -> SendPort:
        """Where a message goes is in its context, as far as `allow` names the place.

        `options`: for each adapter, by its name, its options.
        """
        self._options = {**self._options, "dynamic": True, "allow": list(allow), "options": options}
        return self

    def _to(self, adapter: str, address: str, options: Mapping[str, Any]) -> SendPort:
        given = {"adapter": adapter, "address": address}
        self._options = {**self._options, **given, **({"options": options} if options else {})}
        return self
