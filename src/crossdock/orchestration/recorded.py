"""The history of one instance as a file: what it recorded, and the messages it was given, to be replayed elsewhere.

The file holds whole messages. Whoever may read it may read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

from msgspec import DecodeError, Struct, ValidationError, json

from crossdock.errors import ContextError, UsageError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.orchestration.program import Program
from crossdock.orchestration.rehearse import replayed

_FORMAT = 1


class RecordedMessage(Struct, frozen=True):
    """`context` as the spool keeps it; parts are (name, content)."""

    id: UUID
    context: str
    parts: list[tuple[str, bytes]]


class RecordedHistory(Struct, frozen=True):
    """`records` are the steps as they are stored."""

    crossdock_history: int
    orchestration: str
    version: str
    instance: UUID
    records: list[bytes]
    messages: list[RecordedMessage]


def recorded_history(
    orchestration: str, version: str, instance: UUID, records: Sequence[bytes], messages: Iterable[Message]
) -> bytes:
    """The content of the file."""
    kept = [
        RecordedMessage(
            each.id, each.context.to_json().decode(), [(part.name, b"".join(part.chunks())) for part in each.parts]
        )
        for each in messages
    ]
    return json.format(json.encode(RecordedHistory(_FORMAT, orchestration, version, instance, list(records), kept)))


def read_history(file: Path) -> RecordedHistory:
    """Raises UsageError if it is no such file."""
    try:
        recorded = json.decode(file.read_bytes(), type=RecordedHistory)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except (DecodeError, ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is no history of an instance: {error}. Save one with: crossdock save ID") from error
    if recorded.crossdock_history != _FORMAT:
        raise UsageError(f"{file} has format {recorded.crossdock_history}, and this Crossdock reads {_FORMAT}.")
    return recorded


def replay_recorded(program: Program, recorded: RecordedHistory) -> Exception | None:
    """What is different when this program replays the history; None if nothing is. Nothing is sent or written."""
    return replayed(
        program, recorded.instance, recorded.records, {each.id: _message(each) for each in recorded.messages}
    )


def _message(recorded: RecordedMessage) -> Message:
    try:
        context = Context.from_json(recorded.context)
    except ContextError as error:
        raise UsageError(f"message {recorded.id} of the history cannot be read: {error}") from error
    return Message(MessageId(recorded.id), context, tuple(Part(name, body) for name, body in recorded.parts))
