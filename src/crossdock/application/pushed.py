"""The locations of a process that partners send to: their adapters run as long as the configuration has them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Thread

from crossdock.adapter.calling import called
from crossdock.adapter.contract import PushedReceiveAdapter, SharingPushedAdapter, place_of
from crossdock.errors import CrossdockError
from crossdock.host.isolated import IsolatedInstance
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.host.publisher import Publisher
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.pipeline.build_send import send_pipeline
from crossdock.receive.express import PushedReceiver
from crossdock.receive.location import ReceiveLocation
from crossdock.receive.threads import PipelineThreads

_TRY_AGAIN_SECONDS = 5.0
_PATIENCE_SECONDS = 10.0
_END_SECONDS = 5.0  # beyond the patience: to cancel what is in progress

logger = logging.getLogger(__name__)


class PushedLocations:
    """Between `start` and `stop`. `follow` starts and ends adapters, and tries again what did not work."""

    def __init__(self, agent: Agent, limits: HostLimits = DEFAULT_LIMITS) -> None:
        self._agent = agent
        self._publisher = Publisher(agent, limits)
        self._threads: dict[int, PipelineThreads] = {}
        self._isolated: dict[int, IsolatedInstance] = {}
        self._running: dict[int, ReceiveLocation] = {}
        self._failing: set[int] = set()
        self._ending: list[Thread] = []
        self._followed: Mapping[int, ReceiveLocation] | None = None
        self._try_again: float | None = None

    def start(self) -> None:
        self._publisher.start()

    def stop(self) -> None:
        """Nothing new is taken; what is in progress is finished, for a while."""
        for location in self._running.values():
            self._end(location)
        for thread in self._ending:
            thread.join(_PATIENCE_SECONDS + _END_SECONDS)
        for isolated in self._isolated.values():
            isolated.stop()
        self._publisher.stop()

    def check(self) -> None:
        """Raise what ended an isolated instance, if anything did."""
        for isolated in self._isolated.values():
            isolated.check()

    def follow(self, locations: Mapping[int, ReceiveLocation]) -> None:
        """Run the adapters of these locations and no others. One whose location has not changed goes on."""
        due = self._try_again is not None and time.monotonic() >= self._try_again
        if locations is self._followed and not due:
            return
        wanted = _first_at_each_place(locations.values())
        changed = [each for each in wanted if not _is_same(each, self._running.get(each.id))]
        # What changes is closed first, since the new one may listen where the old one did, unless they share that.
        closed = {each.id for each in changed if not self._shares(each)}
        for id_ in self._running.keys() - ({each.id for each in wanted} - closed):
            self._end(self._running.pop(id_))
        self._threads = {id_: threads for id_, threads in self._threads.items() if id_ in locations}
        self._refresh_services()
        self._try_again = None
        for location in changed:
            self._start(location)
        self._followed = locations

    def _start(self, location: ReceiveLocation) -> None:
        """In place of the one that runs, if there is one: it goes on if this one cannot be started."""
        try:
            receiver = self._receiver(location)
            self._shares(location)
            called(_listener(location).start, receiver)
        except CrossdockError as error:
            told = location.without_secrets(str(error))
            level = logging.INFO if location.id in self._failing else logging.WARNING
            logger.log(level, "Receive location %r: %s; trying again", location.definition.name, told)
            self._failing.add(location.id)
            self._try_again = time.monotonic() + _TRY_AGAIN_SECONDS
            return
        if location.id in self._failing:
            self._failing.discard(location.id)
            logger.warning("Receive location %r is served again", location.definition.name)
        before = self._running.get(location.id)
        self._running[location.id] = location
        if before is not None:
            self._end(before)

    def _shares(self, location: ReceiveLocation) -> bool:
        """Whether it will listen together with one that runs."""
        listener = _listener(location)
        if not isinstance(listener, SharingPushedAdapter):
            return False
        running = [_listener(each) for each in self._running.values()]
        return bool(_told(location, listener.share, running))

    def _end(self, location: ReceiveLocation) -> None:
        """Nothing new is taken from now on; what is in progress is not waited for here."""
        listener = _listener(location)
        _told(location, listener.close)
        name, given = f"stop {location.definition.name}", [location, listener.stop, _PATIENCE_SECONDS]
        thread = Thread(target=_told, args=given, name=name, daemon=True)
        thread.start()
        self._ending = [each for each in self._ending if each.is_alive()] + [thread]

    def _receiver(self, location: ReceiveLocation) -> PushedReceiver:
        return PushedReceiver(
            location,
            send_pipeline(location.definition.response),
            self._publish,
            self._responder(location.host_id),
            self._agent.message_id,
            self._threads_of(location),
            self._agent.tracer,
            lambda: self._publisher.has_room(location.id),
        )

    def _threads_of(self, location: ReceiveLocation) -> PipelineThreads:
        """The same as before: those that are lost stay so though the location is changed."""
        made = PipelineThreads(location.definition.name, location.time_limit)
        return self._threads.setdefault(location.id, made)

    async def _publish(self, publication: Publication) -> None:
        await self._publisher.publish_soon(publication)

    def _responder(self, host_id: int) -> IsolatedInstance:
        """One for every host, with the ports that wait for responses as they are deployed now."""
        if host_id not in self._isolated:
            services = self._agent.configuration.waiting_services()
            isolated = IsolatedInstance(self._agent, host_id, self._publisher, services)
            isolated.start()  # if that fails there is none, and the next time another is made
            self._isolated[host_id] = isolated
        return self._isolated[host_id]

    def _refresh_services(self) -> None:
        if self._isolated:
            services = self._agent.configuration.waiting_services()
            for isolated in self._isolated.values():
                isolated.services = services


def _first_at_each_place(locations: Iterable[ReceiveLocation]) -> list[ReceiveLocation]:
    """Of two applications, or two hosts in one process, the older location is served; the others are as they were."""
    served: dict[object, ReceiveLocation] = {}
    for location in sorted(locations, key=lambda each: each.id):
        definition = location.definition
        first = served.setdefault(place_of(definition.adapter, definition.address, location.listener), location)
        if first is not location:
            name, other = definition.name, first.definition.name
            logger.error("Receive location %r is not served: %r listens at the same place", name, other)
    return list(served.values())


def _is_same(location: ReceiveLocation, running: ReceiveLocation | None) -> bool:
    return running is not None and (location.definition, location.host_id, location.time_limit) == (
        running.definition,
        running.host_id,
        running.time_limit,
    )


def _listener(location: ReceiveLocation) -> PushedReceiveAdapter:
    assert location.listener is not None
    return location.listener


def _told(location: ReceiveLocation, method: Callable[..., object], *given: object) -> object:
    """What the method of an adapter gives, which may be foreign code; None if it fails, and that is logged."""
    try:
        return called(method, *given)
    except CrossdockError as error:
        told = location.without_secrets(str(error))
        logger.warning("Receive location %r: %s", location.definition.name, told)
        return None
