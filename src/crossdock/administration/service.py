"""Questions and actions of an operator, on a MessageBox that already exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from crossdock.errors import UsageError
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Statistics


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
    return [{**asdict(row), "id": str(row.id)} for row in agent.suspended()]


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
            file.write(message.body)
    except FileExistsError as error:
        if target.read_bytes() != message.body:
            raise UsageError(f"{target} exists with other content. Save elsewhere with: --to FOLDER") from error
    return {"id": str(message.id), "file": str(target), "bytes": len(message.body), "source_file": source or None}


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a message id. List them with: crossdock get suspended") from error
