"""Where a message is now: what is stored of it, and the place of each of its copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from crossdock.message.message import ids_at
from crossdock.messagebox.database import Database
from crossdock.messagebox.track_segment import Segment

_ALL_NUMBERS = (0, 2**63 - 1)

Place = Literal["queued", "claimed", "waiting", "suspended", "held"]


@dataclass(frozen=True, slots=True)
class Copy:
    """A reference to the message that is not settled. `attempt` counts the attempts that failed.

    `at` is when it was claimed, is due or was suspended. `waiting`: for its next attempt, or because its ordered port
    is blocked. `held`: its instance keeps it until it ends.
    """

    message_id: UUID
    place: Place
    host: str
    sequence: int
    subscription_id: int | None
    service_id: int | None
    service: str | None
    attempt: int | None
    instance: UUID | None
    at: datetime | None
    kind: str | None
    code: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message that is in the box. `refusals`: subscriptions that were not given it, and the labels that lacked."""

    id: UUID
    at: datetime
    context: str
    parts: tuple[tuple[str, int], ...]
    refusals: tuple[tuple[int, tuple[str, ...]], ...]

    @classmethod
    def from_row(cls, *, names: Sequence[str], sizes: Sequence[int], refusals: Any, **columns: Any) -> StoredMessage:
        refused = tuple((number, tuple(labels)) for number, labels in refusals)
        return cls(parts=tuple(zip(names, sizes, strict=True)), refusals=refused, **columns)


class Whereabouts:
    """`agent.whereabouts`: the questions about where messages are."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find_at(self, sequence: int, position: int) -> list[UUID]:
        """The ids of the messages at this place of the ledger, in the box or in the track."""
        lowest, highest = ids_at(sequence, position)
        sought = {"lowest": lowest, "highest": highest}
        found = {id_ for (id_,) in self._database.rows("find_at", sought)}
        if not found:
            for (content,) in self._database.rows("list_segments_at", sought):
                segment = Segment.unpack(content)
                ids = map(segment.id, range(len(segment)))
                found |= {id_ for id_ in ids if lowest <= id_ <= highest}
        return sorted(found)

    def stored(self, ids: Sequence[UUID]) -> dict[UUID, StoredMessage]:
        """Those of these messages that are in the box."""
        found = self._database.listed("find_stored", StoredMessage.from_row, {"message": list(ids)})
        return {each.id: each for each in found}

    def locate(
        self,
        messages: Sequence[UUID],
        *,
        references: tuple[int, int] | None = None,
        services: Sequence[int] | None = None,
        instances: Sequence[UUID] = (),
    ) -> list[Copy]:
        """The copies of messages that are not settled, in the order of their numbers.

        Among the `references` of their transactions, of these `services` and `instances`; without them everything that
        waits is looked through.
        """
        first, last, known = _ALL_NUMBERS[0], _ALL_NUMBERS[1], None
        if references is not None and services is not None:
            (first, last), known = references, list(services)
        sought = {"message": list(messages), "first": first, "last": last, "instance": list(instances)}
        return self._database.listed("locate", Copy, {**sought, "service": known})
