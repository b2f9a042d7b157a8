"""Delivers a slice of an ordered service: in order, under the lease of its subqueue, which is given up at the end."""

from __future__ import annotations

from crossdock.host.backlog import Slice
from crossdock.host.delivery import Delivery
from crossdock.host.environment import HostEnvironment
from crossdock.host.outcome import Postpone, Retry, Suspend
from crossdock.host.settler import Settler, Told


class OrderedDelivery:
    """Threads share it. `host_instance` is the id that leases are held under; 0 while that is not known."""

    def __init__(self, host: HostEnvironment, delivery: Delivery, settler: Settler) -> None:
        self._host = host
        self._delivery = delivery
        self._settler = settler
        self.host_instance = 0

    def slice(self, slice_: Slice) -> int:
        """Until one has to wait, or stops the subqueue, or the instance ends; gives how many were tried."""
        told: list[Told] = []
        tried = settled = 0
        stops = False
        for reference in slice_.references:
            # Where the lease is gone with the life of the instance, another one may be delivering.
            if stops or self._host.stopping.is_set() or slice_.host_instance != self.host_instance:
                break
            outcome = self._delivery.one(slice_.host_instance, reference)
            tried += 1
            if outcome is None:
                settled += 1
            else:
                told.append((reference, outcome))
            stops = isinstance(outcome, Retry | Postpone) or (isinstance(outcome, Suspend) and outcome.stops)
        told += [(reference, None) for reference in slice_.references[tried:]]
        self._settler.settle_leased(slice_.host_instance, told, slice_.references[0])
        self._host.in_hand.release(settled)
        return tried
