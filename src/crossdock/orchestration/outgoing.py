"""A message on its way out: without the properties of the way it came, with the labels of all that was received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from crossdock.message.message import Message
from crossdock.message.property import SYSTEM_PROPERTIES, Value
from crossdock.orchestration.declare import Correlation, Port
from crossdock.orchestration.journal import content_of
from crossdock.orchestration.stepped import Send

if TYPE_CHECKING:
    from crossdock.orchestration.instance import Instance

_TYPE = "BTS.MessageType"
# What the system says of a message belongs to the way that it came, but for these.
_KEPT = frozenset({_TYPE, "FILE.ReceivedFileName"})


def send(
    instance: Instance,
    kind: Literal["send", "request", "reply", "start"],
    message: object,
    line: str,
    *,
    port: Port | None = None,
    initializes: Correlation | Sequence[Correlation] | None = None,
    address: str | None = None,
    request: int | None = None,
    reply_to: UUID | None = None,
    fault: bool = False,
) -> None:
    """Note down a message to be published with the step. Raises MisuseError."""
    if not isinstance(message, Message):
        raise instance.misuse(
            f"it would {kind} {type(message).__name__}; make a message of it with process.message", line
        )
    if kind != "reply" and not isinstance(port, Port):
        raise instance.misuse(f"it would {kind} to {port!r}, which is not a Port", line)
    sets = (initializes,) if isinstance(initializes, Correlation) else tuple(initializes or ())
    promoted, written = _properties(message, sets)
    made = Send(
        kind, port, message.type, message.parts, promoted, written, instance.labels | message.context.labels,
        request, sets, address, reply_to, fault, line,
    )  # fmt: skip
    name = port.name if port is not None else "fault" if fault else ""
    instance.journal.command(kind, name, line, content_of(made))
    instance.journal.sends.append(made)
    for each in sets:
        instance.initialize(each, promoted, line)


def _properties(message: Message, sets: Sequence[Correlation]) -> tuple[dict[str, Value], dict[str, Value]]:
    """Promoted and written. A property of a set that the message initializes is promoted: it has to be routable."""
    promoted = {name: value for name, value in message.context.promoted.items() if _stays(name)}
    written = {name: value for name, value in message.context.written.items() if _stays(name)}
    for name in {name for each in sets for name in each.properties} & written.keys():
        promoted[name] = written.pop(name)
    return promoted, written


def _stays(name: str) -> bool:
    return name in _KEPT or (name not in SYSTEM_PROPERTIES and not name.startswith("BTS."))
