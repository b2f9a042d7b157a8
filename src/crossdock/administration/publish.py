"""Publishing files by hand: the express lane for an operator, on a MessageBox that already exists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from crossdock.adapter.file.adapter import printable_path
from crossdock.errors import PromotionError, UsageError
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.property import PropertyRegistry, Value, parse_value
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.audit import Act
from crossdock.receive.location import ReceiveLocation
from crossdock.receive.ranges import SIZE_LIMIT_BYTES
from crossdock.whole_file import check_whole, read_whole

_FILE, _FAILED = "FILE.ReceivedFileName", "ErrorReport.ErrorType"
_TRANSPORT, _GROUP = "BTS.SPTransportID", "BTS.SPGroupID"


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """What became of one message. `references` counts all of its subscribers, `stopped` those that hold it back."""

    file: str
    id: str
    type: str | None
    result: Literal["published", "unrouted", "suspended"]
    references: int = 0
    stopped: int = 0
    reason: str | None = None


def publish_files(
    agent: Agent, files: Sequence[Path], *, location: str | None, properties: Mapping[str, Value]
) -> Iterator[PublishedMessage]:
    """Publish each file by itself, and say what became of its messages as soon as they are committed.

    With `location` it goes through the pipeline of that receive location, else it is one message as it is. The
    properties are promoted in every message. Nothing is published if one of the files cannot be read.
    """
    received = None if location is None else _location(agent, location)
    for file, content in contents(files):
        made = _passed_through(agent, file, content) if received is None else _received(agent, received, file, content)
        yield from _published(agent, file, _promoted(made, properties))


def contents(files: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """Files with their bytes, one at a time. UsageError before the first of them if one cannot be read."""
    for file in files:
        check_whole(file, SIZE_LIMIT_BYTES)
    for file in files:
        yield file, read_whole(file, SIZE_LIMIT_BYTES)


def publish_content(
    agent: Agent, name: str, content: bytes, *, location: str | None, properties: Mapping[str, Value]
) -> Iterator[PublishedMessage]:
    """The same for bytes that came from elsewhere, under a name."""
    file = Path(name)
    received = None if location is None else _location(agent, location)
    made = _passed_through(agent, file, content) if received is None else _received(agent, received, file, content)
    yield from _published(agent, file, _promoted(made, properties))


def given_properties(agent: Agent, given: Sequence[str], to: str | None, *, text_limit: int) -> dict[str, Value]:
    """The properties that `NAME=VALUE` spell, and the one that leads to the port or group `to`. Raises UsageError."""
    registry = PropertyRegistry(agent.configuration.properties())
    properties: dict[str, Value] = {} if to is None else _destination(agent, to)
    for each in given:
        name, equals, text = each.partition("=")
        if not equals:
            raise UsageError(f"{each!r} is no property: write NAME=VALUE.")
        full_name = _routable(registry, name)
        if full_name in properties:
            raise UsageError(f"Property {full_name!r} is given twice.")
        properties[full_name] = _value(registry, full_name, text, text_limit)
    return properties


def _destination(agent: Agent, to: str) -> dict[str, Value]:
    group = agent.configuration.group_id(to)
    return {_TRANSPORT: agent.configuration.transport_id(to)} if group is None else {_GROUP: group}


def _routable(registry: PropertyRegistry, name: str) -> str:
    full_name = registry.resolve(name)
    if full_name is None:
        close = registry.suggest(name)
        raise UsageError(
            f"There is no property {name!r}; "
            + (f"did you mean {close!r}?" if close else "declare it under `properties`.")
        )
    if not registry.routable(full_name):
        raise UsageError(f"Property {full_name!r} is only ever written: no filter can see it.")
    return full_name


def _value(registry: PropertyRegistry, name: str, text: str, text_limit: int) -> Value:
    try:
        value = parse_value(registry.type_of(name), text)
        text.encode()
    except PromotionError as error:
        raise UsageError(f"Property {name!r}: {error}.") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"Property {name!r}: the value is not UTF-8.") from error
    if isinstance(value, str) and len(value) > text_limit:
        raise UsageError(f"Property {name!r}: the text has {len(value)} characters, and {text_limit} is the most.")
    return value


def _location(agent: Agent, name: str) -> ReceiveLocation:
    for id_, host, stored in agent.configuration.locations():
        if stored.get("name") == name:
            return ReceiveLocation.from_definition(id_, host, stored)
    raise UsageError(f"There is no receive location {name!r} that is enabled. List them with: crossdock get locations")


def _received(agent: Agent, location: ReceiveLocation, file: Path, content: bytes) -> Publication:
    return location.pushed(content, {_FILE: printable_path(file.absolute())}, agent.message_id)


def _passed_through(agent: Agent, file: Path, content: bytes) -> Publication:
    own = agent.box.own_hosts()
    hosts = {name: id_ for name, id_ in agent.configuration.hosts().items() if id_ in own}
    if not hosts:
        raise UsageError("There is nothing in this MessageBox yet. Deploy an application with: crossdock run APP")
    id_ = agent.message_id()
    promoted: dict[str, Value] = {"BTS.InterchangeSequenceNumber": 1, "BTS.LastInterchangeMessage": True}
    written: dict[str, Value] = {
        "BTS.InterchangeID": str(id_),
        "BTS.MessageID": str(id_),
        _FILE: printable_path(file.absolute()),
    }
    message = Message(id_, Context(promoted, written), (Part("body", content),))
    # What nobody wants is suspended there: under the role of a host only at that host.
    return Publication(hosts.get("Default", min(hosts.values())), (message,))


def _promoted(publication: Publication, properties: Mapping[str, Value]) -> Publication:
    """With these properties, except for the report on a document that failed: it is no such message."""
    messages = []
    for message in publication.messages:
        context = message.context
        for name, value in properties.items() if _FAILED not in context.promoted else ():
            context = context.promote(name, value)
        messages.append(Message(message.id, context, message.parts))
    return replace(publication, messages=tuple(messages))


def _published(agent: Agent, file: Path, publication: Publication) -> Iterator[PublishedMessage]:
    """All that is said comes with the commit: a question after it may fail, and what is done must not look undone."""
    act = Act("publish", printable_path(file), after={"messages": [str(each.id) for each in publication.messages[:10]]})
    published = agent.publish_by_hand([publication], act)
    stopped = published.held or [0] * len(published.reference_counts)
    for message, count, held in zip(publication.messages, published.reference_counts, stopped, strict=True):
        if count:
            yield _became(file, message, "published", count, held)
        else:
            yield _became(file, message, "unrouted", reason=published.reasons.get(message.id))
    for failure in publication.failures:
        yield _became(file, failure.message, "suspended", reason=failure.reason)


def _became(
    file: Path,
    message: Message,
    result: Literal["published", "unrouted", "suspended"],
    references: int = 0,
    stopped: int = 0,
    reason: str | None = None,
) -> PublishedMessage:
    type_ = message.context.get("BTS.MessageType")
    shown = None if type_ is None else str(type_)
    return PublishedMessage(printable_path(file), str(message.id), shown, result, references, stopped, reason)
