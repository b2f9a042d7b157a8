"""Acts on suspended deliveries: resume, terminate and save them, one or many. Each item has its own outcome."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from uuid import UUID

from crossdock.administration.message_ids import read_message_ids
from crossdock.administration.suspended import Selection, SuspendedRow, select, shown
from crossdock.errors import NotAllowedError, TooManyMessagesError, UnroutedError, UsageError
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.audit import REFUSED, Act
from crossdock.messagebox.rows import SuspendedMessage
from crossdock.receive.location import ReceiveLocation

BATCH = 100
_DELIVERIES = ("send", "stopped")
_ROUTED_AGAIN = ("unrouted", "discarded")
_LONGEST_EXTENSION = 40  # in bytes: a file name has room for 255, and ours begins with a message id
_TAKES_AN_ADMINISTRATOR = "refused: it was never delivered; to publish it again takes an administrator"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one suspended delivery, or of an instance of an orchestration, that somebody acted on.

    Of an instance `kind` is `instance` and `port` is its orchestration. `done`: what was asked for has happened.
    """

    id: str
    kind: str
    port: str | None
    result: str
    done: bool = True


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a selection means: suspended deliveries, and instances of orchestrations that are named by their ids.

    `selection` is as everybody may hear of it.
    """

    selection: Selection
    deliveries: Sequence[SuspendedMessage] = ()
    instances: Sequence[str] = ()

    @property
    def total(self) -> int:
        return len(self.deliveries) + len(self.instances)

    def rows(self, limit: int) -> list[SuspendedRow]:
        """The first of them, to be shown."""
        return [shown(row) for row in self.deliveries[:limit]]


@dataclass(frozen=True, slots=True)
class Saved:
    """The file that a message was saved to."""

    id: str
    file: str
    bytes: int
    source_file: str | None


def chosen(agent: Agent, selection: Selection) -> list[SuspendedMessage]:
    """What a selection means, as it is now. UsageError if that is nothing, or more than an id can mean."""
    check_named(selection)
    if not selection.is_by_id:
        found = list(select(agent, selection))
        if not found:
            raise nothing_matches()
        return found
    wanted = list(dict.fromkeys(read_message_ids(agent, selection.ids)))
    everywhere: defaultdict[UUID, list[SuspendedMessage]] = defaultdict(list)
    for row in select(agent, Selection(ids=[str(id_) for id_ in wanted])):
        everywhere[row.id].append(row)
    return [row for id_ in wanted for row in _of_message(id_, everywhere[id_], selection)]


def check_named(selection: Selection) -> None:
    """UsageError for a selection that does not say what is meant."""
    if selection.names_nothing:
        raise UsageError(
            "Name messages by their ids, or choose them with --port, --code, --type, --where, --since or --all."
        )


def nothing_matches() -> UsageError:
    return UsageError("Nothing that is suspended matches. List what is with: crossdock get suspended")


def _of_message(id_: UUID, found: Sequence[SuspendedMessage], selection: Selection) -> Sequence[SuspendedMessage]:
    if not found:
        raise UsageError(f"No message {id_} is suspended. List them with: crossdock get suspended")
    if selection.sequences:
        return [row for row in found if row.sequence in selection.sequences]
    ports = ", ".join(sorted(str(row.port) for row in found))
    if selection.port is not None:
        there = [row for row in found if row.port == selection.port]
        if not there:
            raise UsageError(f"Message {id_} is not suspended at {selection.port!r}, but at: {ports}.")
        return there
    if len(found) > 1 and not selection.everything:
        raise UsageError(
            f"Message {id_} is suspended at {len(found)} ports: {ports}. "
            "Name one with --port NAME, or take all with --all."
        )
    return found


def resume(
    agent: Agent, deliveries: Sequence[SuspendedMessage], *, rate: float | None = None, stop: Event | None = None
) -> Iterator[Outcome]:
    """Take suspended messages up again where they stopped, batch by batch, and say what became of each.

    A failed or stopped delivery is tried again, a message nobody wanted is routed again, a document that failed on
    the way in goes through the pipeline of its receive location from the start. `rate`: how many in a second at most.
    `stop`: no further batch is begun once it is set.
    """
    yield from _in_batches(agent, "resume", deliveries, _resumed, rate, stop)


def terminate(
    agent: Agent, deliveries: Sequence[SuspendedMessage], *, rate: float | None = None, stop: Event | None = None
) -> Iterator[Outcome]:
    """End suspended messages for good. The bytes are gone with the last reference; save them first."""
    yield from _in_batches(agent, "terminate", deliveries, _terminated, rate, stop)


def _in_batches(
    agent: Agent,
    action: str,
    deliveries: Sequence[SuspendedMessage],
    act: Callable[[Agent, Sequence[SuspendedMessage]], list[Outcome]],
    rate: float | None,
    stop: Event | None,
) -> Iterator[Outcome]:
    """Each batch commits by itself: whoever is stopped, or killed, has done what was said to be done."""
    size = BATCH if rate is None else max(1, min(BATCH, int(rate)))
    began, stop = time.monotonic(), stop or Event()
    for start in range(0, len(deliveries), size):
        if rate is not None and start:
            stop.wait(max(0.0, began + start / rate - time.monotonic()))
        if stop.is_set():
            return
        batch = deliveries[start : start + size]
        outcomes = act(agent, batch)
        refused = [
            Act(action, each.id, {"port": each.port}, {"reason": each.result}, REFUSED, application=row.application)
            for each, row in zip(outcomes, batch, strict=True)
            if not each.done
        ]
        if refused:
            agent.audit.record(refused)
        yield from outcomes


def _resumed(agent: Agent, batch: Sequence[SuspendedMessage]) -> list[Outcome]:
    tried = [row.delivery for row in batch if row.kind in _DELIVERIES]
    never_delivered = [row for row in batch if row.kind in (*_ROUTED_AGAIN, "receive")]
    may_publish = not never_delivered or agent.access.rights().is_owner
    unrouted = [row.id for row in never_delivered if row.kind in _ROUTED_AGAIN and may_publish]
    ready = [row.delivery for row in batch if row.kind in _DELIVERIES and row.promoted is not None]
    withheld = agent.suspended.withheld(tried) if tried else {}
    queued = agent.suspended.resume_deliveries(ready) if ready else {}
    routed = _routed(agent, unrouted)
    outcomes = []
    for row in batch:
        if row.promoted is None:
            why = "the context of the message cannot be read" if row.stored else "the message is gone"
            outcomes.append(_outcome(row, f"cannot be resumed: {why}", done=False))
        elif row.kind in _DELIVERIES:
            kept = withheld.get(row.sequence)
            result = "queued again" if row.delivery in queued else _left_alone(agent, row, kept, "resumed")
            outcomes.append(_outcome(row, result, done=row.delivery in queued))
        elif row in never_delivered and not may_publish:
            outcomes.append(_outcome(row, _TAKES_AN_ADMINISTRATOR, done=False))
        elif row.kind in _ROUTED_AGAIN:
            wanted = routed.get(row.id)
            results = {None: "resumed by somebody else", False: "still nobody wants it", True: "routed"}
            result = f"still suspended: {wanted}" if isinstance(wanted, TooManyMessagesError) else results[wanted]
            outcomes.append(_outcome(row, result, done=wanted is True))
        elif row.kind == "receive":
            result = _receive_again(agent, row)
            outcomes.append(_outcome(row, result, done=result.startswith("published")))
        else:
            outcomes.append(_outcome(row, "cannot be resumed: nobody waits for it any more", done=False))
    return outcomes


def _routed(agent: Agent, ids: Sequence[UUID]) -> dict[UUID, bool | TooManyMessagesError]:
    """Whether somebody wants each of them now, or that too many instances do."""
    try:
        return {**agent.route_again(ids)} if ids else {}
    except TooManyMessagesError as error:
        middle = len(ids) // 2
        return {**_routed(agent, ids[:middle]), **_routed(agent, ids[middle:])} if middle else {ids[0]: error}


def _terminated(agent: Agent, batch: Sequence[SuspendedMessage]) -> list[Outcome]:
    ended = agent.suspended.terminate_deliveries([row.delivery for row in batch])
    return [
        _outcome(
            row,
            "terminated" if row.delivery in ended else _left_alone(agent, row, None, "ended"),
            done=row.delivery in ended,
        )
        for row in batch
    ]


def _outcome(row: SuspendedMessage, result: str, *, done: bool) -> Outcome:
    return Outcome(str(row.id), row.kind, row.port, result, done)


def _left_alone(agent: Agent, row: SuspendedMessage, withheld: str | None, done: str) -> str:
    if withheld is not None:
        return f"still suspended: {withheld}"
    if any(each.delivery == row.delivery for each in agent.suspended.messages(ids=[row.id])):
        return f"refused: you may not act on application {row.application or 'none'}"
    return f"{done} by somebody else"


def _receive_again(agent: Agent, row: SuspendedMessage) -> str:
    stored = [each for each in agent.configuration.locations() if each[2].get("name") == row.receive_location]
    if not stored:
        return _cannot_receive(agent, row)
    location = ReceiveLocation.from_definition(*stored[0])
    message = agent.messages.load([row.id])[row.id]
    publication = location.again(row.host_id, message, row.sequence, agent.message_id)
    if publication.failures and not publication.messages and len(publication.failures) == 1:
        return f"still fails: {publication.failures[0].reason}"
    try:
        published = agent.publish_by_hand([publication], Act("resume", str(row.id), {"kind": "receive"}))
    except (UnroutedError, TooManyMessagesError) as error:
        return f"still fails: {error}"
    if not published.publications:
        return "resumed by somebody else"
    return f"published {published.published}, unrouted {published.unrouted}, suspended {published.suspended}"


def _cannot_receive(agent: Agent, row: SuspendedMessage) -> str:
    name = str(row.receive_location)
    _, is_deployed, _ = agent.subscriptions.kinds(name)
    if is_deployed:
        return f"still suspended: receive location {name!r} is disabled. Enable it with: crossdock enable {name}"
    return (
        f"still suspended: receive location {name!r} is not deployed any more. Deploy it again, or save the message "
        f"with: crossdock save {row.id}"
    )


def counted(outcomes: Sequence[Outcome]) -> Mapping[str, int]:
    """How often each thing happened."""
    return dict(Counter(each.result for each in outcomes).most_common())


def save(agent: Agent, ids: Sequence[str], folder: Path) -> list[Saved]:
    """Write the original bytes of messages to files named by their id; never over an existing file."""
    messages = read(agent, read_message_ids(agent, ids), "save")
    return [
        write_body(str(each.id), str(each.context.get("FILE.ReceivedFileName") or ""), each.parts[0].chunks(), folder)
        for each in messages.values()
    ]


def write_body(id_: str, source: str, chunks: Iterable[bytes], folder: Path) -> Saved:
    """Write the bytes of a message that came from this source to a file in the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _written(id_, source, chunks, folder / f"{id_}{extension(source)}")
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder} cannot be written: {error.strerror}. Save elsewhere with: --to FOLDER"
        ) from error


def read(agent: Agent, ids: Sequence[UUID], action: str) -> dict[UUID, Message]:
    """Messages for a person, which is recorded; of those whose context cannot be read the bytes alone.

    Raises UsageError if one is not there, NotAllowedError if its body is not for the database user.
    """
    readable, unreadable = agent.messages.read(ids, action)
    found = readable | unreadable
    if missing := [id_ for id_ in ids if id_ not in found]:
        if agent.messages.present(missing):
            if agent.access.is_limited:
                raise agent.access.rights().refusal(f"read the body of message {missing[0]}", "bodies")
            raise NotAllowedError(
                f"Your database user may not read the body of message {missing[0]}: that takes the right `bodies`. "
                "An administrator gives it with: crossdock grant bodies USER"
            )
        if agent.track.find(missing[:1], personal=False):
            raise UsageError(
                f"The bytes of message {missing[0]} are gone: it is settled, and its body is not tracked. What "
                f"happened to it: crossdock trace {missing[0]}"
            )
        raise UsageError(f"There is no message {missing[0]}. List messages with: crossdock get messages")
    return {id_: found[id_] for id_ in ids}


def _written(id_: str, source: str, chunks: Iterable[bytes], target: Path) -> Saved:
    try:
        with target.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
    except FileExistsError as error:
        if target.read_bytes() != b"".join(chunks):
            raise UsageError(f"{target} exists with other content. Save elsewhere with: --to FOLDER") from error
    return Saved(id_, str(target), target.stat().st_size, source or None)


def extension(source: str) -> str:
    """Of the file that a message came from. Its sender has named it: an odd or a long one is left out."""
    found = Path(source).suffix
    return found if found.isprintable() and len(found.encode()) <= _LONGEST_EXTENSION else ""
