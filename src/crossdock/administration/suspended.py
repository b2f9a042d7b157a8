"""What waits for a person: list it, resume it, terminate it, save its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from crossdock.errors import UnroutedError, UsageError
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import SuspendedMessage
from crossdock.receive.location import ReceiveLocation


@dataclass(frozen=True, slots=True)
class SuspendedRow:
    """A suspended message. What cannot be read of it is None, and its reason says so."""

    id: str
    kind: str
    code: str
    reason: str
    source_file: str | None
    receive_location: str | None
    port: str | None
    type: str | None
    bytes: int
    suspended_at: datetime | None
    nearest_misses: Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """What became of a suspended message that was taken up again."""

    id: str
    kind: str
    port: str | None
    result: str


@dataclass(frozen=True, slots=True)
class Terminated:
    """How many suspended references of a message were ended."""

    id: str
    ended: int


@dataclass(frozen=True, slots=True)
class Saved:
    """The file that a message was saved to."""

    id: str
    file: str
    bytes: int
    source_file: str | None


def list_suspended(agent: Agent) -> list[SuspendedRow]:
    """The oldest first."""
    return [
        SuspendedRow(
            str(row.id),
            row.kind,
            row.code,
            row.reason,
            row.source_file,
            row.receive_location,
            row.port,
            row.type,
            row.bytes,
            row.suspended_at,
            row.nearest_misses,
        )
        for row in agent.suspended.messages()
    ]


def resume(agent: Agent, ids: Sequence[str]) -> list[Resumed]:
    """Take suspended messages up again where they stopped, and say what became of each.

    A failed or stopped delivery is tried again, a message nobody wanted is routed again, a document that failed on
    the way in goes through the pipeline of its receive location from the start.
    """
    found = _suspended(agent, ids)
    kinds = {row.kind for row in found}
    stored = agent.messages.load([row.id for row in found])
    numbers = list(stored)
    unreadable = agent.messages.unreadable([row.id for row in found if row.id not in stored])
    withheld = agent.suspended.withheld(numbers) if kinds & {"send", "stopped"} else {}
    queued = agent.suspended.resume(numbers) if kinds & {"send", "stopped"} else {}
    routed = agent.route_again(numbers) if "unrouted" in kinds else {}
    results = []
    for row in found:
        match row.kind:
            case _ if row.id in unreadable:
                result = "cannot be resumed: the context of the message cannot be read"
            case _ if row.id not in stored:
                result = "cannot be resumed: the message is gone"
            case "send" | "stopped" if (row.id, row.port) in withheld:
                result = f"still suspended: {withheld[row.id, row.port or '']}"
            case "send" | "stopped":
                result = "delivered again" if row.id in queued else "resumed by somebody else"
            case "unrouted":
                result = "routed" if routed.get(row.id) else "still nobody wants it"
            case "receive":
                result = _receive_again(agent, row)
            case _:
                result = "cannot be resumed: nobody waits for it any more"
        results.append(Resumed(str(row.id), row.kind, row.port, result))
    return results


def terminate(agent: Agent, ids: Sequence[str]) -> list[Terminated]:
    """End suspended messages for good. The bytes are gone with the last reference; save them first."""
    found = _suspended(agent, ids)
    ended = agent.suspended.terminate([row.id for row in found])
    return [Terminated(str(id_), count) for id_, count in ended.items()]


def _suspended(agent: Agent, ids: Sequence[str]) -> list[SuspendedMessage]:
    wanted = [_uuid(text) for text in ids]
    found = agent.suspended.messages(ids=wanted)
    missing = set(wanted) - {row.id for row in found}
    if missing:
        raise UsageError(f"No message {min(missing)} is suspended. List them with: crossdock get suspended")
    return found


def _receive_again(agent: Agent, row: SuspendedMessage) -> str:
    stored = [each for each in agent.configuration.locations() if each[2].get("name") == row.receive_location]
    if not stored:
        return f"its receive location {row.receive_location!r} is disabled or gone"
    location = ReceiveLocation.from_definition(*stored[0])
    message = agent.messages.load([row.id])[row.id]
    publication = location.again(row.host_id, message, row.sequence, agent.message_id)
    if publication.failures and not publication.messages and len(publication.failures) == 1:
        return f"still fails: {publication.failures[0].reason}"
    try:
        published = agent.publish([publication])
    except UnroutedError as error:
        return f"still fails: {error}"
    if not published.publications:
        return "resumed by somebody else"
    return f"published {published.published}, unrouted {published.unrouted}, suspended {published.suspended}"


def save(agent: Agent, ids: Sequence[str], folder: Path) -> list[Saved]:
    """Write the original bytes of messages to files named by their id; never over an existing file."""
    wanted = [_uuid(text) for text in ids]
    messages = agent.messages.load(wanted)
    messages |= agent.messages.unreadable([id_ for id_ in wanted if id_ not in messages])
    missing = [text for text in ids if _uuid(text) not in messages]
    if missing:
        raise UsageError(f"There is no message {missing[0]}. List them with: crossdock get suspended")
    folder.mkdir(parents=True, exist_ok=True)
    return [_save(message, folder) for message in messages.values()]


def _save(message: Message, folder: Path) -> Saved:
    source = str(message.context.get("FILE.ReceivedFileName") or "")
    target = folder / f"{message.id}{Path(source).suffix}"
    try:
        with target.open("xb") as file:
            for chunk in message.parts[0].chunks():
                file.write(chunk)
    except FileExistsError as error:
        if target.read_bytes() != message.body:
            raise UsageError(f"{target} exists with other content. Save elsewhere with: --to FOLDER") from error
    return Saved(str(message.id), str(target), target.stat().st_size, source or None)


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a message id. List them with: crossdock get suspended") from error
