"""Questions and actions of an operator, on a MessageBox that already exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from crossdock.errors import UsageError
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent, UnroutedError
from crossdock.messagebox.rows import Statistics, SuspendedMessage
from crossdock.receive.location import ReceiveLocation


def summary(statistics: Statistics) -> dict[str, Any]:
    """What a run did and what it left: received, published and delivered by this run; the rest as it is now.

    Waiting are deliveries until their next attempt, and sources and locations that cannot be read.
    """
    return {
        "received": statistics.received,
        "published": statistics.published,
        "delivered": statistics.delivered,
        "suspended": statistics.suspended,
        "unrouted": statistics.unrouted,
        "waiting": statistics.waiting + statistics.unread,
        "ports": dict(statistics.ports),
    }


def all_delivered(statistics: Statistics) -> bool:
    """Whether nothing is left that somebody has to look at, or that a run which was interrupted did not get to."""
    looked_at = statistics.suspended or statistics.unrouted or statistics.waiting
    return not (looked_at or statistics.unread or statistics.ready or statistics.claimed)


def suspended(agent: Agent) -> list[dict[str, Any]]:
    return [
        {
            name: value
            for name, value in {**asdict(row), "id": str(row.id)}.items()
            if name not in ("host_id", "sequence")
        }
        for row in agent.suspended()
    ]


def resume(agent: Agent, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Take suspended messages up again where they stopped, and say what became of each.

    A failed or stopped delivery is tried again, a message nobody wanted is routed again, a document that failed on
    the way in goes through the pipeline of its receive location from the start.
    """
    found = _suspended(agent, ids)
    kinds = {row.kind for row in found}
    numbers = list({row.id: None for row in found})
    queued = agent.resume_deliveries(numbers) if kinds & {"send", "stopped"} else {}
    routed = agent.route_again(numbers) if "unrouted" in kinds else {}
    results = []
    for row in found:
        match row.kind:
            case "send" | "stopped":
                result = "delivered again" if row.id in queued else "resumed by somebody else"
            case "unrouted":
                result = "routed" if routed.get(row.id) else "still nobody wants it"
            case "receive":
                result = _receive_again(agent, row)
            case _:
                result = "cannot be resumed: nobody waits for it any more"
        results.append({"id": str(row.id), "kind": row.kind, "port": row.port, "result": result})
    return results


def terminate(agent: Agent, ids: Sequence[str]) -> list[dict[str, Any]]:
    """End suspended messages for good. The bytes are gone with the last reference; save them first."""
    found = _suspended(agent, ids)
    ended = agent.terminate([row.id for row in found])
    return [{"id": str(id_), "ended": count} for id_, count in ended.items()]


def _suspended(agent: Agent, ids: Sequence[str]) -> list[SuspendedMessage]:
    wanted = [_uuid(text) for text in ids]
    found = agent.suspended(ids=wanted)
    missing = set(wanted) - {row.id for row in found}
    if missing:
        raise UsageError(f"No message {min(missing)} is suspended. List them with: crossdock get suspended")
    return found


def _receive_again(agent: Agent, row: SuspendedMessage) -> str:
    stored = [each for each in agent.locations() if each[2].get("name") == row.receive_location]
    if not stored:
        return f"its receive location {row.receive_location!r} is disabled or gone"
    location = ReceiveLocation.from_definition(*stored[0])
    message = agent.messages([row.id])[row.id]
    interchange = location.again(row.host_id, message, (row.host_id, row.sequence), agent.message_id)
    if interchange.failures and not interchange.messages and len(interchange.failures) == 1:
        return f"still fails: {interchange.failures[0].reason}"
    try:
        published = agent.publish([interchange])
    except UnroutedError as error:
        return f"still fails: {error}"
    if not published.interchanges:
        return "resumed by somebody else"
    return f"published {published.published}, unrouted {published.unrouted}, suspended {published.suspended}"


def save(agent: Agent, ids: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Write the original bytes of messages to files named by their id; never over an existing file."""
    messages = agent.messages([_uuid(text) for text in ids])
    missing = [text for text in ids if _uuid(text) not in messages]
    if missing:
        raise UsageError(f"There is no message {missing[0]}. List them with: crossdock get suspended")
    folder.mkdir(parents=True, exist_ok=True)
    return [_save(message, folder) for message in messages.values()]


def _save(message: Message, folder: Path) -> dict[str, Any]:
    source = str(message.context.get("FILE.ReceivedFileName") or "")
    target = folder / f"{message.id}{Path(source).suffix}"
    try:
        with target.open("xb") as file:
            for chunk in message.parts[0].chunks():
                file.write(chunk)
    except FileExistsError as error:
        if target.read_bytes() != message.body:
            raise UsageError(f"{target} exists with other content. Save elsewhere with: --to FOLDER") from error
    return {"id": str(message.id), "file": str(target), "bytes": target.stat().st_size, "source_file": source or None}


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a message id. List them with: crossdock get suspended") from error
