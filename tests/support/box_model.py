"""What the MessageBox promises, as a few dictionaries: who has a reference to which message, and where it waits.

One verb here for each verb of the agent. Nothing is stored twice and nothing is fast; that is the point. `test_model.py`
lets both do the same and compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal
from uuid import UUID

from crossdock.message.message import Message
from crossdock.message.property import Value

State = Literal["started", "stopped", "unenlisted"]
Place = Literal["queued", "claimed", "scheduled", "suspended"]
# A message, the service that wants it, and the subscription if it is one of a running instance.
Key = tuple[UUID, str | None, int | None]


@dataclass(frozen=True, slots=True)
class Port:
    """A send port as it is deployed; `filter` is a key of FILTERS."""

    host: str
    filter: str
    priority: int = 5
    ordered: bool = False
    two_way: bool = False


@dataclass(slots=True)
class Service:
    """A port that has been deployed at least once."""

    id: int
    port: Port
    state: State = "started"
    deployed: bool = True

    @property
    def subqueue(self) -> int:
        return self.id if self.port.ordered else 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """The subscription of a running instance."""

    instance: UUID
    service: str
    host: str
    values: Mapping[str, Value]
    bound_to: int | None

    def wants(self, promoted: Mapping[str, Value]) -> bool:
        return all(name in promoted and same(promoted[name], value) for name, value in self.values.items())


@dataclass(slots=True)
class Reference:
    """One row of a queue. `sequence` is what the MessageBox chose, once it has been seen there; it never changes."""

    message: UUID
    host: str
    service: str | None = None
    subscription: int | None = None
    instance: UUID | None = None
    place: Place = "queued"
    subqueue: int = 0
    priority: int = 5
    attempt: int = 0
    kind: str | None = None
    holder: int | None = None
    due: datetime | None = None
    sequence: int = 0
    new: bool = True

    @property
    def key(self) -> Key:
        return (self.message, self.service, self.subscription)

    def queue(self) -> None:
        """It comes back, with the number that it has."""
        self.place, self.kind, self.holder, self.due, self.new = "queued", None, None, None, False

    def suspend(self, kind: str) -> None:
        self.place, self.kind, self.holder, self.due = "suspended", kind, None, None

    def set_aside(self, kind: str) -> None:
        """Nobody waits for it any more."""
        self.suspend(kind)
        self.subqueue = 0


def by_sequence(reference: Reference) -> int:
    return reference.sequence


def same(one: Value, other: Value) -> bool:
    """Text compares without regard to case and trailing blanks."""
    if isinstance(one, str) and isinstance(other, str):
        return one.casefold().rstrip(" ") == other.casefold().rstrip(" ")
    return one == other


def _region(promoted: Mapping[str, Value], *values: str) -> bool:
    return any("Region" in promoted and same(promoted["Region"], value) for value in values)


def _large(promoted: Mapping[str, Value]) -> bool:
    amount = promoted.get("Amount")
    return isinstance(amount, Decimal) and amount >= 10


FILTERS: dict[str, Callable[[Mapping[str, Value]], bool]] = {
    "Region = 'NO'": lambda promoted: _region(promoted, "NO"),
    "Region = 'SE' OR Amount >= 10": lambda promoted: _region(promoted, "SE") or _large(promoted),
    "Amount >= 10": _large,
    "EXISTS(Region)": lambda promoted: "Region" in promoted,
    "Region IN ('NO', 'SE') AND NOT EXISTS(Amount)": lambda promoted: (
        _region(promoted, "NO", "SE") and "Amount" not in promoted
    ),
}


@dataclass(slots=True)
class Model:
    """The whole MessageBox. Instances of hosts are those that are registered; some of them are no longer alive."""

    labels: dict[str, frozenset[str]] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    messages: dict[UUID, Message] = field(default_factory=dict)
    references: dict[Key, Reference] = field(default_factory=dict)
    registered: dict[int, str] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)
    leases: dict[int, int] = field(default_factory=dict)
    blocked: dict[int, datetime] = field(default_factory=dict)
    held_at: dict[int, datetime] = field(default_factory=dict)
    unordered: set[int] = field(default_factory=set)  # subqueues that wait for what began before they were ordered
    delivered: Counter[str] = field(default_factory=Counter)

    # Who wants what

    def deploy(self, ports: Mapping[str, Port], labels: Mapping[str, frozenset[str]]) -> None:
        """A port that is gone is unenlisted; one that comes back begins anew, as if an operator had started it."""
        poorer = [host for host, before in self.labels.items() if before - labels.get(host, before)]
        self.labels |= labels
        for name, service in self.services.items():
            back = name in ports and not service.deployed
            service.deployed = name in ports
            before, service.port = service.port, ports.get(name, service.port)
            if service.port.host != before.host:
                self._move(name, service.port.host)
            if service.port.ordered and not before.ordered:
                self._line_up(name, service)
            if back:
                service.state = "started"
                self._resume_stopped(name)
        for host in poorer:
            for reference in self.at(host, "queued", "scheduled", "suspended"):
                if reference.kind in (None, "stopped"):
                    self._withhold(reference, host)

    def _move(self, name: str, host: str) -> None:
        """What waits for a service goes where it goes, except what only one instance of its old host may take.

        What the new host lacks a label of is suspended where it is.
        """
        for reference in self.references.values():
            if (
                reference.service != name
                or reference.place == "claimed"
                or reference.subqueue < 0
                or reference.host == host
            ):
                continue
            if self._may(host, self.messages[reference.message]):
                reference.new, reference.host = False, host
            elif reference.place != "suspended":
                self._withhold(reference, host)

    def _line_up(self, name: str, service: Service) -> None:
        """What is queued goes into the subqueue, which waits for what was claimed or put aside before it was ordered."""
        mine = [each for each in self.references.values() if each.service == name and each.subqueue == 0]
        for reference in mine:
            if reference.place == "queued":
                reference.subqueue = service.subqueue
        if any(each.place in ("claimed", "scheduled") for each in mine):
            self.unordered.add(service.subqueue)
            self.blocked[service.subqueue] = datetime.max.replace(tzinfo=UTC)

    def unblock_subqueues(self, host: str) -> None:
        left = {each.service for each in self.all_at("claimed", "scheduled") if each.subqueue == 0}
        for name, service in self.services.items():
            if service.port.host == host and service.id in self.unordered and name not in left:
                self.unordered.discard(service.id)
                del self.blocked[service.id]

    def _withhold(self, reference: Reference, host: str) -> bool:
        """Whether that host lacks a label of the message; it is suspended where it is then."""
        if self._may(host, self.messages[reference.message]):
            return False
        reference.suspend("response" if reference.subqueue < 0 else "send")
        return True

    def change(self, name: str, after: State) -> int:
        """Gives how many references were resumed."""
        service = self.services[name]
        before, service.state = service.state, after
        return self._resume_stopped(name) if after == "started" and before != "started" else 0

    def _resume_stopped(self, name: str) -> int:
        return self._resume(self.suspended(name, {"stopped"}))

    def _resume(self, references: Sequence[Reference]) -> int:
        """From the first attempt on, in the subqueue that the service has now; but for what its host lacks a label of."""
        resumed = 0
        for reference in references:
            assert reference.service is not None
            if not self._may(self._home(reference), self.messages[reference.message]):
                reference.suspend("send")
                continue
            if reference.subqueue >= 0:
                reference.subqueue = self.services[reference.service].subqueue
            reference.attempt = 0
            self.give_back([reference])
            resumed += 1
        return resumed

    def end_instance(self, instance: UUID) -> int:
        self.waiting = {id_: each for id_, each in self.waiting.items() if each.instance != instance}
        left = [
            each
            for each in self.references.values()
            if each.instance == instance and each.place in ("queued", "scheduled")
        ]
        for reference in left:
            reference.set_aside("discarded")
        return len(left)

    # Publishing

    def wanted(self, message: Message) -> list[Reference]:
        """The references that a message gets now."""
        found = self._activations(message)
        if self._answers_twice(message, found):
            return []
        return found + [
            Reference(
                message.id, each.host, each.service, id_, each.instance, subqueue=-(each.bound_to or 0), priority=0
            )
            for id_, each in self.waiting.items()
            if each.wants(message.context.promoted) and self._may(each.host, message)
        ]

    def refused(self, message: Message) -> bool:
        """A request that two services would answer goes to nobody."""
        return self._answers_twice(message, self._activations(message))

    def _answers_twice(self, message: Message, activations: Iterable[Reference]) -> bool:
        answering = [each for each in activations if each.service and self.services[each.service].port.two_way]
        return message.context.get("BTS.IsRequestResponse") is True and len(answering) > 1

    def _may(self, host: str, message: Message) -> bool:
        return message.context.labels <= self.labels[host]

    def _activations(self, message: Message) -> list[Reference]:
        return [
            self._activation(message.id, name)
            for name, service in self.services.items()
            if service.deployed and service.state != "unenlisted" and self._may(service.port.host, message)
            if FILTERS[service.port.filter](message.context.promoted)
        ]

    def _activation(self, message: UUID, name: str) -> Reference:
        service = self.services[name]
        reference = Reference(
            message, service.port.host, name, subqueue=service.subqueue, priority=service.port.priority
        )
        if service.state == "stopped":
            reference.suspend("stopped")
        return reference

    def add(self, references: Iterable[Reference]) -> None:
        for reference in references:
            assert reference.key not in self.references
            self.references[reference.key] = reference

    # Host instances

    def ready(self, host: str, instance: int, limit: int | None, locked: Collection[Key] = ()) -> list[Reference]:
        """What a claim gets: the most urgent first, of those its own before those of everybody."""
        subqueues = {-instance: 0, 0: 1}
        found = [each for each in self.at(host, "queued") if each.subqueue in subqueues and each.key not in locked]
        found.sort(key=lambda each: (each.priority, subqueues[each.subqueue], each.sequence))
        return sorted(found[:limit], key=lambda each: (each.priority, each.sequence))

    def claim(self, references: Iterable[Reference], instance: int) -> None:
        for reference in references:
            reference.place, reference.holder = "claimed", instance

    def claim_line(self, host: str, instance: int, limit: int, now: datetime) -> list[Reference]:
        """The first references of the subqueue with work that waits longest, is not blocked and nobody holds, in order."""
        subqueues = {each.subqueue for each in self.at(host, "queued") if each.subqueue > 0} - self.leases.keys()
        open_ = [each for each in subqueues if each not in self.blocked or self.blocked[each] <= now]
        if not open_:
            return []
        subqueue = min(open_, key=lambda each: (self.held_at.get(each, datetime.min.replace(tzinfo=UTC)), each))
        self.leases[subqueue] = instance
        hosts = {service.id: service.port.host for service in self.services.values()}
        taken = [at for each, at in self.held_at.items() if hosts[each] == host]
        self.held_at[subqueue] = max([now, *(at + timedelta(microseconds=1) for at in taken)])
        self.blocked.pop(subqueue, None)
        first = sorted((each for each in self.at(host, "queued") if each.subqueue == subqueue), key=by_sequence)[:limit]
        self.claim(first, instance)
        return first

    def leave_lease(
        self, subqueue: int, instance: int, rest: Sequence[Reference], blocked_until: datetime | None = None
    ) -> None:
        """The rest goes back, and if the first of it has been tried it blocks the subqueue; unless another has it by now."""
        self.give_back(rest)
        if blocked_until is not None and rest[0].place == "queued":
            rest[0].attempt += 1
        if self.leases.get(subqueue) == instance:
            del self.leases[subqueue]
            if blocked_until is not None and subqueue not in self.unordered:
                self.blocked[subqueue] = blocked_until

    def complete(self, references: Iterable[Reference]) -> None:
        for reference in references:
            assert reference.service is not None
            self.delivered[reference.service] += 1
            del self.references[reference.key]

    def retry(self, references: Iterable[Reference], due: datetime) -> None:
        for reference in references:
            if not self._withhold(reference, self._home(reference)):
                reference.host = self._home(reference)
                reference.place, reference.holder, reference.due = "scheduled", None, due
                reference.attempt += 1

    def suspend(self, references: Iterable[Reference]) -> None:
        """One that stops an ordered subqueue goes where the subqueue is now."""
        for reference in references:
            if reference.subqueue > 0 and self._may(self._home(reference), self.messages[reference.message]):
                reference.host = self._home(reference)
            reference.suspend("send")
            reference.attempt += 1

    def give_back(self, references: Iterable[Reference]) -> None:
        for reference in references:
            if not self._withhold(reference, self._home(reference)):
                reference.host = self._home(reference)
                if reference.subqueue == 0 and reference.service is not None:
                    reference.subqueue = self.services[reference.service].subqueue
                reference.queue()

    def _home(self, reference: Reference) -> str:
        """The host that has the service now, except for what only one host instance may take."""
        assert reference.service is not None
        return reference.host if reference.subqueue < 0 else self.services[reference.service].port.host

    def requeue_due(self, host: str, now: datetime) -> int:
        due = [each for each in self.references.values() if each.host == host and each.due and each.due <= now]
        self.give_back(due)
        return len(due)

    def release_dead(self, host: str) -> int:
        """What the dead of a host had comes free; what only they could take is suspended."""
        dead = {each for each, theirs in self.registered.items() if theirs == host and each not in self.alive}
        known = self.registered.keys() - dead
        freed = [each for each in self.at(host, "claimed") if each.holder not in known]
        self.give_back(freed)
        subqueues = {service.id for service in self.services.values() if service.port.host == host}
        self.leases = {
            subqueue: held for subqueue, held in self.leases.items() if subqueue not in subqueues or held in known
        }
        self.waiting = {
            id_: each for id_, each in self.waiting.items() if each.host != host or each.bound_to in {None, *known}
        }
        self.registered = {each: theirs for each, theirs in self.registered.items() if each in known}
        for reference in self.at(host, "queued"):
            if reference.subqueue < 0 and -reference.subqueue not in known:
                reference.set_aside("response")
        return len(freed)

    def is_left(self, reference: Reference, host: str) -> bool:
        """Whether releasing the dead of a host has to do with it."""
        owner = reference.holder or -min(reference.subqueue, 0)
        return reference.host == host and owner != 0 and owner not in self.alive

    # Suspended

    def resume(self, messages: Iterable[UUID]) -> dict[UUID, int]:
        wanted = set(messages)
        found = [each for each in self.suspended(kinds={"send", "stopped"}) if each.message in wanted]
        self._resume(found)
        return dict(Counter(each.message for each in found if each.place == "queued"))

    def route_again(self, messages: Iterable[UUID]) -> tuple[dict[UUID, bool], list[Reference]]:
        """Whether somebody wants each of those that nobody wanted, and the references they get."""
        wanted = set(messages)
        routed: dict[UUID, bool] = {}
        given: list[Reference] = []
        for reference in sorted(self.suspended(kinds={"unrouted"}), key=by_sequence):
            if reference.message not in wanted:
                continue
            found = self.wanted(self.messages[reference.message])
            routed[reference.message] = bool(found)
            if found:
                del self.references[reference.key]
                self.add(found)
                given += found
        return routed, given

    def terminate(self, messages: Iterable[UUID]) -> dict[UUID, int]:
        wanted = set(messages)
        ended = [each for each in self.suspended() if each.message in wanted]
        for reference in ended:
            del self.references[reference.key]
        return dict(Counter(each.message for each in ended))

    # Questions

    def busy(self, host: str, now: datetime) -> bool:
        """What waits behind a failed one is not ready."""
        blocked = self._blocked(now)
        return any(each.subqueue not in blocked for each in self.at(host, "queued")) or bool(self.at(host, "claimed"))

    def behind_a_failed_one(self, now: datetime) -> int:
        """How many are queued and have to wait all the same."""
        return sum(each.subqueue in self._blocked(now) for each in self.all_at("queued"))

    def _blocked(self, now: datetime) -> set[int]:
        return {subqueue for subqueue, until in self.blocked.items() if until > now}

    def dead(self) -> bool:
        """Whether a host instance is gone, or has claimed something since it was taken for dead."""
        holders = {each.holder for each in self.all_at("claimed")}
        return bool((self.registered.keys() | holders) - self.alive)

    def bound(self) -> bool:
        """Whether anything waits for one host instance."""
        return any(each.bound_to for each in self.waiting.values())

    def all_at(self, *places: Place) -> list[Reference]:
        return [each for each in self.references.values() if each.place in places]

    def at(self, host: str, *places: Place) -> list[Reference]:
        return [each for each in self.all_at(*places) if each.host == host]

    def suspended(self, service: str | None = None, kinds: set[str] | None = None) -> list[Reference]:
        return [
            each
            for each in self.references.values()
            if each.kind is not None and (kinds is None or each.kind in kinds)
            if service is None or each.service == service
        ]
