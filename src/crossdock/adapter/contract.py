"""The contracts of adapters. A receive adapter of the bulk lane reads sources that can be read again.

An adapter is made by `Class(address, **options)`, in every process that uses it and to check an application: making it
must not connect to anything, and what is wrong with the address or an option is an ApplicationError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from crossdock.errors import CrossdockError
from crossdock.message.message import Message
from crossdock.message.property import Value


@dataclass(frozen=True, slots=True)
class Source:
    """Something to read. `identity` is different for the same name with new content."""

    identity: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What can be read now, and whether there is more that is not complete yet."""

    ready: tuple[Source, ...]
    incomplete: int = 0


class ReceiveAdapter(Protocol):
    """Lists, reads and acknowledges sources. Each call may be made again after a crash, by another process."""

    def list(self) -> Listing:
        """Everything that can be read; raises TransientError if the place itself cannot be reached."""

    def read(self, identity: bytes) -> bytes | None:
        """The content; None if it vanished or changed since it was listed. TransientError: it may work later."""

    def acknowledge(self, identity: bytes) -> None:
        """Remove a source whose messages are safe; nothing if it is gone already. TransientError: try again later."""

    def name(self, identity: bytes) -> str:
        """What a person would call the source."""


@runtime_checkable
class RangedReceiveAdapter(ReceiveAdapter, Protocol):
    """One that can read a part of a source, so that a large one need not fit into memory."""

    def read_range(self, identity: bytes, start: int, length: int) -> bytes | None:
        """So many bytes, fewer only at the end; None if it vanished or changed since it was listed."""


@runtime_checkable
class BatchReceiveAdapter(ReceiveAdapter, Protocol):
    """One for which many small sources at once are much quicker than one after the other."""

    def read_batch(self, identities: Sequence[bytes]) -> Sequence[bytes | None]:
        """As `read`, for each of them."""

    def acknowledge_batch(self, identities: Sequence[bytes]) -> None:
        """As `acknowledge`, for all of them; if it fails, some may be done."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a partner answered. The properties are written into the context of the response."""

    body: bytes
    properties: Mapping[str, Value] = field(default_factory=dict)


class SendAdapter(Protocol):
    """Hands messages to a partner. Threads share it."""

    def send(self, message: Message, *, attempt: int) -> Reply | None:
        """Deliver one message, safe with the partner on return; gives the answer, where there can be one.

        `attempt` counts the attempts before this one, and one more if a process has ended that had it in hand. Raises
        TransientError to retry, TerminalError to suspend.
        """

    def close(self) -> None:
        """Let go of connections; it may be used again afterwards."""


@runtime_checkable
class RememberingSendAdapter(SendAdapter, Protocol):
    """One that remembers what it has delivered: another port may deliver the same message to the same place."""

    def remember_for(self, port: str) -> None:
        """Deliver for this port from now on."""


@runtime_checkable
class BatchSendAdapter(SendAdapter, Protocol):
    """One for which many messages at once are much quicker than one after the other."""

    def send_batch(self, messages: Sequence[Message]) -> Sequence[CrossdockError | None]:
        """As `send`, in their order; for each None, or the TransientError or TerminalError that it would raise."""
