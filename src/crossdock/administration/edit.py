"""Change a suspended message for exactly one subscriber: its body, its properties, or both.

The changed message is a new one, which takes the place of the old one in that delivery. Properties are not promoted
anew from a changed body: nothing is routed again, and what the subscriber is to see differently is said with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from crossdock.administration.deliveries import chosen, extension, read
from crossdock.administration.publish import given_properties
from crossdock.administration.suspended import Selection
from crossdock.errors import UsageError
from crossdock.message.message import Message, Part
from crossdock.message.property import Value, format_value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import SuspendedMessage
from crossdock.subscription.explain import MASKED

_DELIVERIES = ("send", "stopped")
_OWN_ID = "BTS.MessageID"


@dataclass(frozen=True, slots=True)
class Editable:
    """A suspended delivery that is to be edited, with its message. `suffix` is that of its source file."""

    row: SuspendedMessage
    message: Message
    suffix: str

    @property
    def body(self) -> bytes:
        return self.message.body


@dataclass(frozen=True, slots=True)
class Edited:
    """What became of an edited delivery. `edited_id` is the id of the message that took its place.

    `kept` are the promoted properties that stay as they were, since they are not read from the new body.
    """

    id: str
    edited_id: str
    port: str
    result: str
    kept: Mapping[str, str]


def editable(agent: Agent, id_: str, port: str | None) -> Editable:
    """The one delivery that is meant. Reading it is recorded. Raises UsageError if there is none, or more than one."""
    [row] = chosen(agent, Selection(ids=[id_], port=port))
    if row.kind not in _DELIVERIES:
        raise UsageError(
            f"Message {row.id} waits for no subscriber: its kind is {row.kind}. "
            f"Save it with: crossdock save {row.id}, correct the file, and receive it again."
        )
    if row.promoted is None:
        raise UsageError(f"Message {row.id} cannot be edited: {row.reason}")
    message = read(agent, [row.id], "read")[row.id]
    return Editable(row, message, extension(row.source_file or ""))


def edit(agent: Agent, what: Editable, *, body: bytes | None, properties: Sequence[str], text_limit: int) -> Edited:
    """Deliver the message with another body, or with other promoted properties, to the one subscriber.

    Raises UsageError if nothing is changed, or if somebody has dealt with the delivery meanwhile.
    """
    row, original = what.row, what.message
    promoted = given_properties(agent, properties, None, text_limit=text_limit)
    new_body = None if body is None or body == original.body else body
    if new_body is None and all(original.context.promoted.get(name) == value for name, value in promoted.items()):
        raise UsageError(f"Nothing was changed in message {row.id}: it is as it was.")
    message = _changed(agent, original, new_body, promoted)
    withheld = agent.suspended.withheld([row.delivery])
    changes = {"properties": sorted(promoted), **({} if new_body is None else {"body": sha256(new_body).hexdigest()})}
    if withheld or agent.suspended.edit(row.delivery, message, changes) is None:
        why = withheld.get(row.sequence) or "somebody has dealt with it meanwhile, or you may not edit it"
        raise UsageError(f"Message {row.id} at {row.port!r} was not edited: {why}. See: crossdock get suspended")
    personal = agent.configuration.personal()
    kept = {
        name: MASKED if name in personal else format_value(value)
        for name, value in original.context.promoted.items()
        if new_body is not None and name not in promoted
    }
    return Edited(str(row.id), str(message.id), str(row.port), "edited and queued again", kept)


def _changed(agent: Agent, original: Message, body: bytes | None, promoted: Mapping[str, Value]) -> Message:
    id_ = agent.message_id()
    context = original.context
    for name, value in promoted.items():
        context = context.promote(name, value)
    if _OWN_ID in context.written:
        context = context.write(_OWN_ID, str(id_))
    first, *others = original.parts
    return Message(id_, context, (first if body is None else Part(first.name, body), *others))
