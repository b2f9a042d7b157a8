"""The contracts of adapters. A receive adapter of the bulk lane reads sources that can be read again; a pushed one
takes what partners send to it.

An adapter is made by `Class(address, **options)`, in every process that uses it and to check an application: making it
must not connect to anything, and what is wrong with the address or an option is an ApplicationError.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeGuard, runtime_checkable

from crossdock.errors import CrossdockError
from crossdock.message.message import Message, MessageId
from crossdock.message.property import Value

MAXIMUM_MESSAGES = 10_000
"""In one body that is pushed to us: to publish them holds up what others push to the process."""


@dataclass(frozen=True, slots=True)
class Source:
    """Something to read. `identity` is different for the same name with new content."""

    identity: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What can be read now, how many more sources are not complete yet, and the names of those being written.

    A run that is to end by itself waits for what is incomplete, and does not wait for what is `held` by its writer.
    """

    ready: tuple[Source, ...]
    incomplete: int = 0
    held: tuple[str, ...] = ()


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
class BatchAcknowledgeAdapter(ReceiveAdapter, Protocol):
    """One for which to acknowledge many sources at once is much quicker than one after the other."""

    def acknowledge_batch(self, identities: Sequence[bytes]) -> None:
        """As `acknowledge`, for all of them; if it fails, some may be done."""


@runtime_checkable
class BatchReceiveAdapter(BatchAcknowledgeAdapter, Protocol):
    """One for which to read many small sources at once is much quicker, too."""

    def read_batch(self, identities: Sequence[bytes]) -> Sequence[bytes | None]:
        """As `read`, for each of them."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of bytes that were handed over: the ids of messages that are committed, and of suspended ones."""

    messages: tuple[MessageId, ...]
    suspended: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True)
class Response:
    """What a partner who asked is to get. Call `sent` once it has all of it, or `lost` if it never will: then the
    message is suspended, not forgotten."""

    message: Message
    body: bytes
    sent: Callable[[], None]
    lost: Callable[[], None]


class Receiver(Protocol):
    """What a pushed adapter hands its bytes to. Any event loop of any thread may call it."""

    @property
    def two_way(self) -> bool:
        """Whether the partner waits for an answer, so that `request` is to be called and not `publish`."""

    async def publish(
        self, body: bytes, properties: Mapping[str, Value] = ..., *, maximum_messages: int = MAXIMUM_MESSAGES
    ) -> Taken:
        """The messages in the body are committed on return, with the properties written into their contexts.

        DocumentError: there is no message in it, and nothing is kept. TooManyMessagesError, a DocumentError: there are
        more of them than that, and nothing is kept. TransientError: it cannot be taken now; the
        partner has to send it again, though it may have been committed. Cancelled, the same is not known.
        """

    async def request(self, body: bytes, properties: Mapping[str, Value] = ..., *, timeout: float) -> Response:
        """The same for the one message in the body; returns with the response to it, which has to be settled.

        NoAnswerError: nobody can answer. GivenUpError: whoever was to answer has failed. TimeoutError: after so many
        seconds there is none.
        """


class PushedReceiveAdapter(Protocol):
    """Takes what partners send, and hands it to a receiver. One object is for one location in one process.

    A class attribute `answers = True` says that it can be used by a two-way port. An attribute `maximum_size` is the
    most that may come of one source when it is unpacked.
    """

    def start(self, receiver: Receiver) -> None:
        """Listen from now on, in threads of its own. TransientError: it cannot now, and is made and started again."""

    def close(self) -> None:
        """Take nothing new; when this returns, others may listen at the same place. What is in progress goes on."""

    def stop(self, seconds: float) -> None:
        """Close, wait at most so long for what is in progress, then end it. A partner is not told that it was taken."""


@runtime_checkable
class SharingPushedAdapter(PushedReceiveAdapter, Protocol):
    """One that can listen together with others: locations of a process may be on one port, under different paths."""

    place: Hashable
    """What no other location of the process may have. Without it, that is the address."""

    def share(self, running: Sequence[PushedReceiveAdapter]) -> bool:
        """Called before `start`, with those that run; one of them may be the one that this one replaces.

        True: it will listen together with one of them, so that none has to be closed first.
        """


def is_pushed(adapter: object) -> TypeGuard[PushedReceiveAdapter]:
    """Whether partners send to it, rather than it finds and reads what is there."""
    return callable(getattr(adapter, "start", None)) and not callable(getattr(adapter, "list", None))


def place_of(kind: str, address: str, adapter: object) -> Hashable:
    """Where a pushed adapter listens: no two locations of a process may have the same."""
    return kind, getattr(adapter, "place", address)


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
class ForgettingSendAdapter(SendAdapter, Protocol):
    """One that remembers what it has delivered, and not for ever."""

    def remembers(self) -> timedelta | None:
        """How long: a second attempt that comes later may deliver a second time. None: it remembers nothing."""


@runtime_checkable
class BatchSendAdapter(SendAdapter, Protocol):
    """One for which many messages at once are much quicker than one after the other."""

    def send_batch(self, messages: Sequence[Message]) -> Sequence[CrossdockError | None]:
        """As `send`, in their order; for each None, or the TransientError or TerminalError that it would raise."""
