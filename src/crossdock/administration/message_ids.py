"""Message ids as people write them: in full, or short as `SEQUENCE-POSITION`, which tables print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

from crossdock.errors import UsageError
from crossdock.message.message import POSITIONS, short_id
from crossdock.messagebox.agent import Agent

__all__ = ["is_instance_id", "may_be_id", "read_message_id", "read_message_ids", "short_id", "unknown_message"]

_SHORT = re.compile(r"([0-9]{1,15})-([0-9]{1,11})")
_SEQUENCES = 2**48
_INSTANCE = 7


def is_instance_id(text: str) -> bool:
    """Ids of instances are UUIDs of version 7, those of messages of version 8."""
    try:
        return UUID(text).version == _INSTANCE
    except ValueError:
        return False


def may_be_id(text: str) -> bool:
    """Whether it is written as an id of a message or an instance is."""
    try:
        return _SHORT.fullmatch(text.strip()) is not None or bool(UUID(text))
    except ValueError:
        return False


def read_message_ids(agent: Agent, texts: Sequence[str]) -> list[UUID]:
    """The ids that these texts spell. Raises UsageError for what is no message id or is not known."""
    return [read_message_id(agent, text) for text in texts]


def read_message_id(agent: Agent, text: str) -> UUID:
    """The id that this text spells. A short one is looked up, a full one is not."""
    if (short := _SHORT.fullmatch(text.strip())) is not None:
        return _found(agent, text.strip(), int(short[1]), int(short[2]))
    try:
        id_ = UUID(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a message id. List messages with: crossdock get messages") from error
    if id_.version == _INSTANCE:
        raise UsageError(f"{text} is an instance, not a message. See it with: crossdock describe {text}")
    return id_


def unknown_message(text: str) -> UsageError:
    """What to say of an id that no message has."""
    return UsageError(
        f"There is no message {text}: it is not in the box and not tracked, or not any more. "
        "List messages with: crossdock get messages"
    )


def _found(agent: Agent, text: str, sequence: int, position: int) -> UUID:
    if sequence >= _SEQUENCES or position >= POSITIONS:
        raise unknown_message(text)
    found = agent.whereabouts.find_at(sequence, position)
    if not found:
        raise unknown_message(text)
    if len(found) > 1:
        raise UsageError(f"{text} is more than one message; write one of: {', '.join(map(str, found))}")
    return found[0]
