"""The http locations of a process: one server for each address, whose routes follow the configuration."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from crossdock.adapter.http_receive import HttpReceiveAdapter
from crossdock.adapter.http_server import HttpServer, Room, Route
from crossdock.errors import CrossdockError
from crossdock.host.isolated import IsolatedInstance
from crossdock.host.publisher import Publisher
from crossdock.messagebox.agent import Agent
from crossdock.pipeline.build_send import send_pipeline
from crossdock.receive.express import HttpLocation
from crossdock.receive.interchange import Interchange
from crossdock.receive.location import ReceiveLocation
from crossdock.receive.threads import PipelineThreads

_TRY_AGAIN_SECONDS = 5.0

logger = logging.getLogger(__name__)

Address = tuple[str, int, str | None, str | None]


class HttpServers:
    """Between `start` and `stop`. `follow` brings servers and routes up to date, and tries again what did not work."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._publisher = Publisher(agent)
        self._room = Room()
        self._threads: dict[int, PipelineThreads] = {}
        self._servers: dict[Address, HttpServer] = {}
        self._closed: list[HttpServer] = []
        self._isolated: dict[int, IsolatedInstance] = {}
        self._serving: Mapping[int, ReceiveLocation] | None = None
        self._failing: dict[Address, float] = {}

    def start(self) -> None:
        self._publisher.start()

    def stop(self) -> None:
        """No new requests; those in progress get their answers, for a while."""
        for server in self._servers.values():
            server.close()
        for server in [*self._servers.values(), *self._closed]:
            server.stop()
        for isolated in self._isolated.values():
            isolated.stop()
        self._publisher.stop()

    def check(self) -> None:
        """Raise what ended an isolated instance, if anything did."""
        for isolated in self._isolated.values():
            isolated.check()

    def follow(self, locations: Mapping[int, ReceiveLocation]) -> None:
        """Serve these locations and no others."""
        waits = self._failing and time.monotonic() < min(self._failing.values())
        if locations is self._serving and (waits or not self._failing):
            return
        wanted: defaultdict[Address, list[ReceiveLocation]] = defaultdict(list)
        for location in locations.values():
            wanted[_address(location)].append(location)
        for address in set(self._servers) - set(wanted):
            self._servers[address].close()
            self._closed = [each for each in self._closed if each.is_running()] + [self._servers.pop(address)]
        self._threads = {id_: threads for id_, threads in self._threads.items() if id_ in locations}
        self._failing = {}
        for address, mine in wanted.items():
            try:
                self._serve(address, mine)
            except CrossdockError as error:
                logger.warning("Receive location %s: %s; trying again", _names(mine), error)
                self._failing[address] = time.monotonic() + _TRY_AGAIN_SECONDS
        self._serving = locations

    def _serve(self, address: Address, locations: Iterable[ReceiveLocation]) -> None:
        host, port, certificate, key = address
        server = self._servers.get(address)
        server = server or HttpServer(host, port, certificate=certificate, key=key, room=self._room)
        server.routes([self._route(location) for location in _first_on_each_path(locations)])
        server.start()
        self._servers[address] = server

    def _route(self, location: ReceiveLocation) -> Route:
        adapter = _adapter(location)
        handler = HttpLocation(
            location,
            send_pipeline(location.definition.response),
            self._publish,
            self._responder(location.host_id),
            self._agent.message_id,
            self._threads_of(location),
            timeout=adapter.options.timeout,
        )
        return Route(adapter.address.path, adapter.options, handler.handle)

    def _threads_of(self, location: ReceiveLocation) -> PipelineThreads:
        """The same as before: those that are lost stay so though the location is changed."""
        made = PipelineThreads(location.definition.name, location.time_limit)
        return self._threads.setdefault(location.id, made)

    async def _publish(self, interchange: Interchange) -> None:
        await self._publisher.publish_soon(interchange)

    def _responder(self, host_id: int) -> IsolatedInstance:
        """One for every host, with the ports that wait for responses as they are deployed now."""
        services = self._agent.waiting_services()
        if host_id not in self._isolated:
            isolated = IsolatedInstance(self._agent, host_id, self._publisher, services)
            isolated.start()  # if that fails there is none, and the next time another is made
            self._isolated[host_id] = isolated
        self._isolated[host_id].services = services
        return self._isolated[host_id]


def _first_on_each_path(locations: Iterable[ReceiveLocation]) -> list[ReceiveLocation]:
    """Of two applications, or two hosts in one process, the older location is served; the others are as they were."""
    served: dict[str, ReceiveLocation] = {}
    for location in sorted(locations, key=lambda each: each.id):
        first = served.setdefault(_adapter(location).address.path, location)
        if first is not location:
            name, other = location.definition.name, first.definition.name
            logger.error("Receive location %r is not served: %r listens on the same path", name, other)
    return list(served.values())


def _adapter(location: ReceiveLocation) -> HttpReceiveAdapter:
    assert isinstance(location.adapter, HttpReceiveAdapter)
    return location.adapter


def _address(location: ReceiveLocation) -> Address:
    adapter = _adapter(location)
    return adapter.address.host, adapter.address.port, adapter.options.certificate, adapter.options.key


def _names(locations: Iterable[ReceiveLocation]) -> str:
    return ", ".join(repr(location.definition.name) for location in locations)
