"""The flows of a host instance: which services have one, and how much all of them hold together.

A quick service has none. One that has been slow, takes only so many at once or likes batches has its own, and keeps it
while it is deployed as it was.
"""

from __future__ import annotations

from collections import defaultdict
from threading import Lock
from typing import Protocol

from crossdock.errors import TransientError
from crossdock.host.flow import Flow
from crossdock.host.outcome import BatchService, Service

IN_FLIGHT = 8
_ROOM = 2_000
_HOPED_SECONDS = 0.0005


class Services(Protocol):
    """Finds the service a reference is for; None if it is not deployed any more."""

    def __call__(self, service_id: int) -> Service | None: ...


class Flows:
    """Several threads use them at once."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = Lock()
        self._known: dict[int, tuple[Service, Flow | None]] = {}
        self._leaving: set[Flow] = set()  # of services that are gone; something may still wait in them

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
                known = service, self._new(service, None if known is None else known[1])
                self._known[service_id] = known
        return known[1]

    def slow(self, service_id: int, seconds: float) -> None:
        """It has been slow: from now on it has a flow of its own."""
        with self._lock:
            known = self._known.get(service_id)
            if known is not None and known[1] is None:
                self._known[service_id] = known[0], Flow(known[0].in_flight or IN_FLIGHT, seconds)

    def all(self) -> set[Flow]:
        with self._lock:
            self._leaving = {flow for flow in self._leaving if flow.held}
            return {flow for _, flow in self._known.values() if flow is not None} | self._leaving

    def behind(self) -> dict[Flow, list[int]]:
        """The services of which more is queued than there is room for; they are claimed for by themselves."""
        behind: defaultdict[Flow, list[int]] = defaultdict(list)
        slow = [service for service, (_, flow) in list(self._known.items()) if flow is not None and flow.behind]
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
        batches = isinstance(service, BatchService) and service.batches
        # A port and the same port in a group are one service under two ids: together they take so many at once.
        shared = next((flow for other, flow in self._known.values() if other is service and flow is not None), before)
        if shared is not None:
            shared.limit, shared.batches = service.in_flight or IN_FLIGHT, batches
            return shared
        if not batches and service.in_flight is None:
            return None
        return Flow(service.in_flight or IN_FLIGHT, _HOPED_SECONDS, batches=batches)

    def _forget(self, service_id: int) -> None:
        with self._lock:
            _, flow = self._known.pop(service_id, (None, None))
            if flow is not None:
                self._leaving.add(flow)
