"""All backlogs of a host instance: which one a service has, with which limit, and how much they hold together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from threading import Lock

from crossdock.errors import TransientError
from crossdock.host.backlog import Backlog
from crossdock.host.limit_share import LimitShare
from crossdock.host.limits import HostLimits
from crossdock.host.outcome import BatchService, Service, Services


class Backlogs:
    """Threads share them. A service that is deployed anew keeps its backlog; one that is gone loses it."""

    def __init__(self, services: Services, limits: HostLimits) -> None:
        self._services = services
        self._limits = limits
        self._share = LimitShare()
        self._unlimited = limits.deliveries_at_once
        self._lock = Lock()
        self._known: dict[int, tuple[Service | None, Backlog]] = {}
        self._of_service: dict[int, Backlog] = {}  # by the identity of the service
        self._ordered: dict[int, Backlog] = {}  # by the subqueue
        self.shared = Backlog(limits, min(limits.workers, limits.quick_workers), shared=True)
        self._busy: set[Backlog] = set()  # those that hold something or are behind, and perhaps some more

    def of(self, service_id: int) -> Backlog:
        known = self._known.get(service_id)
        try:
            service = self._services(service_id)
        except TransientError:
            service = None if known is None else known[0]
        if known is None or known[0] is not service:
            with self._lock:
                known = self._known[service_id] = service, self._found(service_id, service)
        return known[1]

    def keep_busy(self, backlog: Backlog) -> None:
        """It holds something, or is behind: from now on it is looked after."""
        with self._lock:
            self._busy.add(backlog)

    def ordered(self, subqueue: int) -> Backlog:
        """The one of an ordered service: it delivers one slice at a time, under a lease."""
        with self._lock:
            return self._ordered.setdefault(subqueue, Backlog(self._limits, 1, ordered=True))

    def ordered_size(self, subqueue: int) -> int:
        """How many references of an ordered service to claim."""
        limits, backlog = self._limits, self._ordered.get(subqueue)
        wanted = limits.ordered_first
        if backlog is not None and backlog.measured:
            wanted = max(1, min(limits.ordered_most, int(limits.ordered_seconds / backlog.pace)))
        held = sum(each.held for each in self.busy() if each.ordered)
        return min(wanted, max(limits.ordered_least, limits.ordered_in_hand - held))

    def leased(self) -> list[int]:
        """The subqueues whose lease is not known to be given up."""
        with self._lock:
            return [subqueue for subqueue, backlog in self._ordered.items() if backlog.held]

    def ordered_waiting(self) -> int:
        """How many ordered services wait for a worker."""
        return sum(1 for each in self.busy() if each.ordered and each.waiting)

    def busy(self) -> list[Backlog]:
        with self._lock:
            self._busy = {each for each in self._busy if each.held or (each.behind and each.services)}
            return list(self._busy)

    def behind(self) -> dict[Backlog, list[int]]:
        """Those that are claimed for by themselves, with their services."""
        with self._lock:
            services = [service for each in self._busy if each.behind for service in each.services]
        found: defaultdict[Backlog, list[int]] = defaultdict(list)
        for service in services:
            if (backlog := self.of(service)).behind:  # asked for anew: the service may be gone, or take more at once
                found[backlog].append(service)
        return found

    @property
    def held_apart(self) -> int:
        """How many references are held beside those of quick services."""
        return sum(each.held for each in self.busy() if each.apart or each.ordered)

    def spare(self, backlog: Backlog) -> int:
        """Room for so many more, whatever the backlog may hold at least."""
        if not backlog.apart:
            return self._limits.most_held
        held = sum(each.held for each in self.busy() if each.apart and not each.ordered)
        return max(0, self._limits.apart_in_hand - held)

    def share(self, host_instance: int, living: Sequence[int]) -> None:
        """These instances of the host live: what a service takes at once is for all of them together."""
        with self._lock:
            slow = sum(1 for each in self._busy if each.waits and each.held and not each.limited and not each.ordered)
            limits = self._limits
            self._unlimited = max(1, min(limits.deliveries_at_once, limits.unlimited_at_once // (slow + 1)))
            self._share.read(host_instance, living)
            for service, backlog in self._known.values():
                backlog.change(self._limit(service))
                if backlog.behind:
                    self._busy.add(backlog)

    def _found(self, service_id: int, service: Service | None) -> Backlog:
        before, backlog = self._known.get(service_id, (None, None))
        if backlog is not None and before is not None:
            self._of_service.pop(id(before), None)
            if service is None:
                backlog.services.discard(service_id)  # what it holds is delivered; what comes is not for it
                backlog = None
        # A port and the same port in a group are one service under two ids: together they take so many at once.
        found = self._of_service.get(id(service)) or backlog or Backlog(self._limits, self._limit(service))
        found.services.add(service_id)
        if service is not None:
            self._of_service[id(service)] = found
        found.batched = isinstance(service, BatchService) and service.batches
        found.limited = found.batched or (service is not None and service.in_flight is not None)
        found.change(self._limit(service))
        return found

    def _limit(self, service: Service | None) -> int:
        """Our part of what it says; one that says nothing is only kept from taking all workers here."""
        if service is None or service.in_flight is None:
            return self._unlimited
        return self._share.of(service.in_flight, service.name)
