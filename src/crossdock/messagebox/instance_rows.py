"""Running instances of orchestrations as they come out of the MessageBox, and their ids."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from secrets import token_bytes
from uuid import UUID

from crossdock.message.message import Message
from crossdock.message.property import Value


def new_instance_id() -> UUID:
    """A UUID of version 7: sorted by the time when it was drawn, to the millisecond, by the clock of this machine."""
    value = int.from_bytes(token_bytes(10)) | (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80
    return UUID(int=value & ~(0xF << 76) & ~(0x3 << 62) | 7 << 76 | 0b10 << 62)


@dataclass(frozen=True, slots=True)
class StoredInstance:
    """What is needed to go on with an instance: its history, and the messages that it holds.

    `parked` are (number, message, subscription) of those that its code is still to be given.
    """

    id: UUID
    service_id: int
    version: str
    activation: UUID
    step: int
    state: str
    code: str | None
    subscribed: bool
    records: Sequence[bytes]
    parked: Sequence[tuple[int, UUID, int]]
    messages: Mapping[UUID, Message]


@dataclass(frozen=True, slots=True)
class DueTimer:
    """A timer whose time has come, and what time it is by the clock of PostgreSQL.

    `deaths`: how many processes have ended that had it in hand.
    """

    instance: UUID
    number: int
    now: datetime
    deaths: int = 0


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A running instance for people. `promoted` are the properties of the message that began it.

    `correlated` has the values of the properties by which it is given messages, by the name of each correlation.
    """

    id: UUID
    host_id: int
    orchestration: str
    application: str
    host: str
    version: str
    step: int
    state: str
    since: datetime
    activated_at: datetime
    waiting_for: str
    line: str
    code: str | None
    reason: str | None
    traceback: str | None
    activation: UUID
    promoted: Mapping[str, Value]
    correlated: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class InstanceDetail:
    """All of one instance: its recorded steps, the messages it holds with the step each was given in, its timers."""

    row: InstanceRow
    records: Sequence[bytes]
    messages: Sequence[tuple[UUID, int | None, str | None]]
    timers: Sequence[tuple[int, datetime]]
