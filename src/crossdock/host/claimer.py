"""Claims references for a host instance, as many as there is room for, and hands them to the dispatcher."""

from __future__ import annotations

from threading import Event

from crossdock.errors import TransientError
from crossdock.host.dispatcher import Dispatcher
from crossdock.host.environment import HostEnvironment
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.queues import FEW
from crossdock.messagebox.rows import Reference


class Claimer:
    """`run` is for a few threads. It is `broken` when the answer to a claim may be lost: a new life has to begin."""

    def __init__(self, host: HostEnvironment, lifeline: Lifeline, dispatcher: Dispatcher, polling: float) -> None:
        self._host = host
        self._queues = host.agent.queues
        self._in_hand = host.in_hand
        self._limits = host.limits
        self._lifeline = lifeline
        self._dispatcher = dispatcher
        self._backlogs = dispatcher.backlogs
        self._polling = polling
        self.broken = Event()
        self.has_ordered = True

    def run(self) -> None:
        size = FEW
        while not self._host.stopping.is_set():
            if self.broken.is_set():
                self._host.stopping.wait(self._limits.reconnect_seconds)
                continue
            try:
                claimed, more = self._claim(size)
            except TransientError as error:
                self._host.agent.outage.waits(error)
                self._dispatcher.lease_as(0)
                self.broken.set()
                continue
            except Exception as error:
                self._host.refused(error, "claiming references")
                self._host.stopping.wait(self._limits.reconnect_seconds)
                size = 1  # two rows that cannot be claimed together may be claimed one after the other
                continue
            if claimed >= self._limits.claim_size:
                self._in_hand.wake()  # there is more than one can take
            elif not more:
                self._in_hand.wait(self._limits.pause_seconds if claimed else self._polling)
            size = self._limits.claim_size if claimed >= FEW else FEW  # after a rest there will be few

    @property
    def room(self) -> int:
        """For so many more there is room; backlogs that are apart have room of their own."""
        return self._limits.in_hand + self._backlogs.held_apart - self._in_hand.count

    def _claim(self, size: int) -> tuple[int, bool]:
        """Claim once for everybody, and for those that are claimed for apart: how many, and whether to look on."""
        room = self.room
        host_instance = self._lifeline.instance
        references = self._claim_shared(host_instance, size, room)
        apart = self._claim_ordered(host_instance) + self._fill_backlogs(host_instance)
        if room <= 0 and not apart and not references:
            self._in_hand.wait_for_room(self._polling)
            return 1, True
        return len(references) + apart, apart > 0 or len(references) >= min(size, max(room, 1))

    def _claim_shared(self, host_instance: int, size: int, room: int) -> list[Reference]:
        """From all services but those that are behind; without room, only what running instances wait for."""
        excluding = [service for services in self._backlogs.behind().values() for service in services]
        host = self._host.host_id
        references: list[Reference] = []
        if room > 0:
            hurry = size == FEW  # after a rest: somebody may wait for each
            limit = min(size, room)
            references = self._queues.dequeue(host, host_instance, limit=limit, excluding=excluding, hurry=hurry)
        elif room > -self._limits.urgent_in_hand:
            references = self._queues.dequeue_correlated(host, host_instance, limit=FEW, excluding=excluding)
        if references:
            self._in_hand.hold(len(references))
            self._dispatcher.accept(host_instance, references)
        return references

    def _claim_ordered(self, host_instance: int) -> int:
        """For the ordered service that has waited longest."""
        crowded = self._dispatcher.crowded or self._backlogs.ordered_waiting() >= self._limits.ordered_waiting
        if not self.has_ordered or crowded:
            return 0
        references = self._queues.dequeue_ordered(
            self._host.host_id, host_instance, limit=self._backlogs.ordered_size, excluding=self._backlogs.leased()
        )
        if references:
            self._in_hand.hold(len(references))
            self._dispatcher.accept_for(self._backlogs.ordered(references[0].subqueue), host_instance, references)
        return len(references)

    def _fill_backlogs(self, host_instance: int) -> int:
        """For each service that is behind, what its backlog has room for."""
        count = 0
        for backlog, services in self._backlogs.behind().items():
            if not (room := backlog.fill(self._backlogs.spare(backlog))):
                continue
            references: list[Reference] = []
            more = True
            try:
                references = self._queues.dequeue(self._host.host_id, host_instance, limit=room, only=services)
                self._in_hand.hold(len(references))
                more = len(references) == room
            finally:
                self._dispatcher.accept_for(backlog, host_instance, references, more=more)
            count += len(references)
        return count
