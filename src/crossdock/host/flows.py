"""The flows of a host instance: which services have one, and how much all of them hold together.

A quick service has none. One that takes only so many at once or likes batches has its own while it is deployed as it
was; one that has been slow, until it has been quick for a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from crossdock.errors import TransientError
from crossdock.host.flow import Flow
from crossdock.host.outcome import BatchService, Service
from crossdock.host.siblings import Siblings

IN_FLIGHT = 8
_AT_ONCE = 256  # of all services that do not say, before each may have fewer
_ROOM = 2_000
_HOPED_SECONDS = 0.0005


class Services(Protocol):
    """Finds the service a reference is for; None if it is not deployed any more."""

    def __call__(self, service_id: int) -> Service | None: ...


class Flows:
    """Several threads use them at once."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._siblings = Siblings()
        self._in_flight = IN_FLIGHT
        self._lock = Lock()
        self._known: dict[int, tuple[Service, Flow | None]] = {}
        self._with_flow: dict[int, tuple[Service, Flow]] = {}  # the few of them that every claim looks at
        self._leaving: set[Flow] = set()  # of services that are gone or quick again; something may still wait in them

    def of(self, service_id: int) -> Flow | None:
        """None for a service that needs none."""
        known = self._known.get(service_id)
        try:
            service = self._services(service_id)
        except TransientError:
            return None if known is None else known[1]
        if service is None:
            if known is not None:
                self._forget(service_id)
            return None
        if known is None or known[0] is not service:
            with self._lock:
                _, before = self._known.get(service_id, (None, None))
                known = service, self._new(service, before)
                self._keep(service_id, *known)
        return known[1]

    def slow(self, service_id: int, seconds: float) -> None:
        """It has been slow: from now on it has a flow of its own."""
        with self._lock:
            known = self._known.get(service_id)
            if known is not None and known[1] is None:
                self._in_flight = self._fair()
                self._keep(service_id, known[0], self._shared(known[0]) or Flow(self._limit(known[0]), seconds))

    def forget_needless(self) -> None:
        """Services that were slow and are quick again share the workers; what waits in their flows ends there."""
        with self._lock:
            slow = self._with_flow.values()
            needless = {flow for service, flow in slow if flow.needless() and not _needs_flow(service)}
            self._leaving |= needless
            for id_, (service, flow) in list(self._with_flow.items()):
                if flow in needless:
                    self._keep(id_, service, None)

    def share(self, instance: int, living: Sequence[int]) -> None:
        """What a service says it takes at once is shared with these instances of the host."""
        with self._lock:
            self._siblings.look(instance, living)
            self._in_flight = self._fair()
            for service, flow in self._with_flow.values():
                flow.change(self._limit(service))

    def all(self) -> set[Flow]:
        with self._lock:
            self._leaving = {flow for flow in self._leaving if flow.held}
            return {flow for _, flow in self._with_flow.values()} | self._leaving

    def behind(self) -> dict[Flow, list[int]]:
        """The services of which more is queued than there is room for; they are claimed for by themselves."""
        behind: defaultdict[Flow, list[int]] = defaultdict(list)
        with self._lock:
            slow = [service for service, (_, flow) in self._with_flow.items() if flow.behind]
        for service in slow:
            if (flow := self.of(service)) is not None:
                behind[flow].append(service)
        return behind

    @property
    def held(self) -> int:
        """How many references they hold."""
        return sum(flow.held for flow in self.all())

    @property
    def spare(self) -> int:
        """Room for so many more in all flows together, whatever each may hold at least."""
        return max(0, _ROOM - self.held)

    def _new(self, service: Service, before: Flow | None) -> Flow | None:
        shared = self._shared(service) or before
        if shared is not None:
            shared.change(self._limit(service))
            shared.batches = _likes_batches(service)
            return shared
        if not _needs_flow(service):
            return None
        return Flow(self._limit(service), _HOPED_SECONDS, batches=_likes_batches(service))

    def _shared(self, service: Service) -> Flow | None:
        """A port and the same port in a group are one service under two ids: together they take so many at once."""
        return next((flow for other, flow in self._with_flow.values() if other is service), None)

    def _keep(self, service_id: int, service: Service, flow: Flow | None) -> None:
        self._known[service_id] = service, flow
        if flow is None:
            self._with_flow.pop(service_id, None)
        else:
            self._with_flow[service_id] = service, flow

    def _limit(self, service: Service) -> int:
        """Our part of what it says; one that says nothing is only kept from taking all workers here."""
        return self._in_flight if service.in_flight is None else self._siblings.share(service.in_flight, service.name)

    def _fair(self) -> int:
        """For each that does not say: the more of them are at work, the fewer, down to one."""
        busy = {flow for service, flow in self._with_flow.values() if service.in_flight is None and flow.held}
        return max(1, min(IN_FLIGHT, _AT_ONCE // (len(busy) + 1)))

    def _forget(self, service_id: int) -> None:
        with self._lock:
            _, flow = self._known.pop(service_id, (None, None))
            self._with_flow.pop(service_id, None)
            if flow is not None:
                self._leaving.add(flow)


def _needs_flow(service: Service) -> bool:
    """Whether it has one from the start, however quick it is."""
    return service.in_flight is not None or _likes_batches(service)


def _likes_batches(service: Service) -> bool:
    return isinstance(service, BatchService) and service.batches
