"""What the code does in one step: the commands by their digests, and what the engine has to carry out.

In a replay the commands are compared with those of the record; the rest is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from uuid import UUID

from crossdock.errors import Mismatch
from crossdock.message.property import Value, format_value, type_of
from crossdock.orchestration.declare import Correlation
from crossdock.orchestration.history import CommandDigest, Kind
from crossdock.orchestration.stepped import Send

DIGEST_BYTES = 8


class Journal:
    """Of one step. `expected` are the commands of its record, in a replay."""

    def __init__(self, expected: Sequence[CommandDigest] | None) -> None:
        self.expected = expected
        self.commands: list[CommandDigest] = []
        self.sends: list[Send] = []
        self.subscribes: list[tuple[Correlation, Mapping[str, Value]]] = []
        self.timers: dict[int, datetime] = {}
        self.cancelled_timers: list[int] = []
        self.taken: list[UUID] = []

    @property
    def replaying(self) -> bool:
        return self.expected is not None

    def command(self, kind: Kind, name: str, line: str, content: Iterable[bytes] = ()) -> None:
        self.commands.append(CommandDigest(kind, name, digest(content), line))

    def expects(self, kind: Kind, name: str) -> bool:
        return any((each.kind, each.name) == (kind, name) for each in self.expected or ())

    def set_timer(self, number: int, due: datetime) -> None:
        self.timers[number] = due

    def cancel_timer(self, number: int) -> None:
        if self.timers.pop(number, None) is None:  # it is from an earlier step
            self.cancelled_timers.append(number)

    def compare(self, orchestration: str, step: int, failure: str) -> None:
        """Raise Mismatch at the first difference to the record. `failure` is why the code ended, if it failed."""
        expected, found = self.expected or (), self.commands
        for position in range(max(len(expected), len(found))):
            before = expected[position] if position < len(expected) else None
            now = found[position] if position < len(found) else None
            if before is None or now is None or not before.same_as(now):
                raise _mismatch(orchestration, step, before, now, failure)


def digest(content: Iterable[bytes]) -> bytes:
    """The same for the same pieces, in the same order."""
    made = blake2b(digest_size=DIGEST_BYTES)
    for piece in content:
        made.update(b"%d:" % len(piece))
        made.update(piece)
    return made.digest()


def content_of(send: Send) -> Iterable[bytes]:
    """What makes one sent message differ from another: its parts, its promoted values, and where it goes."""
    for part in send.parts:
        yield part.name.encode()
        whole = blake2b(digest_size=16)  # by chunks: a part may be too large to hold
        for chunk in part.chunks():
            whole.update(chunk)
        yield whole.digest()
    for name in sorted(send.promoted):
        value = send.promoted[name]
        yield f"{name}={type_of(value)}:{format_value(value)}".encode("utf-8", "surrogatepass")
    yield f"{send.address}|{send.request}|{send.reply_to}|{send.fault}".encode("utf-8", "surrogatepass")


def _mismatch(
    orchestration: str, step: int, before: CommandDigest | None, now: CommandDigest | None, failure: str
) -> Mismatch:
    expected, found = _shown(before), _shown(now)
    if before is not None and now is not None and expected == found:
        found += " with other content"
    if now is not None and now.kind == "end" and failure:
        found += f" ({failure})"
    line = (now or before).line  # type: ignore[union-attr] # one of them is there
    then = "" if before is None or not before.line else f" (at {before.line} when it was recorded)"
    reason = (
        f"Orchestration {orchestration!r} does something else in step {step}, {line or 'at no line'}, than its history "
        f"says: the history has {expected}{then}, and the code now has {found}; deploy code that does the same"
    )
    return Mismatch(reason, step=step, line=line, expected=expected, found=found)


def _shown(command: CommandDigest | None) -> str:
    return "nothing" if command is None else f"{command.kind} {command.name}".strip()
