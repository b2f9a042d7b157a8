"""An application at work in this process, without Spark: real hosts, send ports and http servers on a real MessageBox."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread
from typing import Any

from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.application.runtime import Runtime
from crossdock.application.store import Store
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.property import Value
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.settings import Settings
from server_clock import JumpingClock
from walk import until


class Office:
    """`open` it for as long as the application is to run."""

    def __init__(
        self,
        database: str,
        folder: Path,
        application: Mapping[str, Any],
        *,
        host_limits: HostLimits = DEFAULT_LIMITS,
    ) -> None:
        self._host_limits = host_limits
        self.settings = Settings(database=database, home=folder / ".crossdock")
        self.folder = folder
        self.clock = JumpingClock(database)
        self.agent = Agent(database)
        self.deploy(application)

    def deploy(self, application: Mapping[str, Any]) -> None:
        model = ApplicationModel.model_validate({"application": "office", **application})
        self.agent.subscriptions.deploy(deployment_of(model, self.folder / "app.yaml", text_limit=256))

    @contextmanager
    def open(self) -> Iterator[Office]:
        stop = Event()
        with ExitStack() as stack:
            store = Store(self.settings)
            store.open()
            stack.callback(store.close)
            runtime = Runtime(self.settings, store, lambda *_: None, receives=False, host_limits=self._host_limits)
            runtime.start(stack)
            rounds = Thread(target=runtime.work, args=[stop], kwargs={"until_idle": False})
            rounds.start()
            try:
                yield self
            finally:
                stop.set()
                rounds.join()

    def publish(self, body: bytes | str = b"content", to: str | None = None, **promoted: Value) -> Message:
        """Publish a message from running code; `to` names the port it surely has to reach."""
        named = {name.replace("__", "."): value for name, value in promoted.items()}
        if to is not None:
            named["BTS.SPTransportID"] = self.agent.configuration.transport_id(to)
        content = body.encode() if isinstance(body, str) else body
        message = Message(self.agent.message_id(), Context(named), (Part("body", content),))
        self.agent.publish([Publication(self.agent.configuration.hosts()["Default"], (message,))])
        return message

    def settled(self, seconds: float = 60) -> None:
        """Wait until nothing is ready or claimed; what waits or is suspended stays."""

        def quiet() -> bool:
            statistics = self.agent.statistics()
            return not (statistics.ready or statistics.claimed)

        until(quiet, seconds)

    def suspended(self) -> list[tuple[str, str | None]]:
        return [(row.kind, row.port) for row in self.agent.suspended.messages()]

    def port(self, name: str) -> dict[str, Any]:
        [row] = [row for row in self.agent.configuration.list_ports() if row.name == name]
        return asdict(row)


def free_port() -> int:
    """Nobody listens there now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def written(folder: Path) -> dict[str, bytes]:
    """The files in a folder, by their names."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("[!.]*")) if path.is_file()}


def eventually(value: Callable[[], Any], expected: Any, seconds: float = 30) -> None:
    """Wait until it has this value."""
    until(lambda: bool(value() == expected), seconds)
