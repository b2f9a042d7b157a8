"""The part of the service that pages stand on: lists by page, the routes, charts, and parts of messages to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from crossdock.administration.by_page import (
    Host,
    InstancePage,
    Location,
    Port,
    SuspendedPage,
    SuspendedTrends,
    find_ports,
    instance_page,
    living_hosts,
    location_page,
    port_page,
    suspended_page,
    suspended_trends,
)
from crossdock.administration.deliveries import read
from crossdock.administration.known_message import known_message
from crossdock.administration.message_ids import is_instance_id, read_message_id
from crossdock.administration.routes import Routes, read_routes
from crossdock.administration.suspended import Selection
from crossdock.administration.views import Views
from crossdock.administration.whole_message import WholeMessage
from crossdock.errors import UsageError
from crossdock.message.message import Message, Part, StreamedPart
from crossdock.messagebox.access import Right
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.paged import TotalMinutes
from crossdock.messagebox.sample import Sample

__all__ = ["SHOWN_BYTES", "ForPages", "PartHead", "TotalMinutes"]

SHOWN_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class PartHead:
    """The beginning of a part, to be looked at. `text` is None if it is no text; `whole`: nothing is left out."""

    name: str
    text: str | None
    bytes: int
    whole: bool


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that an instance has sent."""

    id: str
    type: str | None
    at: datetime


class ForPages:
    """What `Administration` offers to pages. Reading a body is an act, which is recorded."""

    _agent: Agent

    @property
    def views(self) -> Views:
        """The searches for messages that the person keeps."""
        return Views(self._agent)

    def newest_sample(self) -> Sample | None:
        """As `sample`; None if nobody has looked at the MessageBox yet."""
        return self._agent.samples.newest()

    def port_page(self, **asked: Any) -> Sequence[Port]:
        """Send ports and orchestrations by name: see `by_page.port_page` for what can be asked."""
        return port_page(self._agent, **asked)

    def find_ports(self, names: Sequence[str]) -> Sequence[Port]:
        """Those of these names."""
        return find_ports(self._agent, names)

    def location_page(self, **asked: Any) -> Sequence[Location]:
        """Receive locations by name."""
        return location_page(self._agent, **asked)

    def instance_page(self, **asked: Any) -> InstancePage:
        """Instances of orchestrations, the oldest first."""
        with self._searching("instances", personal=bool(asked.get("personal"))):
            return instance_page(self._agent, **asked)

    def living_hosts(self) -> Sequence[Host]:
        """The hosts with their living instances."""
        return living_hosts(self._agent)

    def sent_by(self, instance: str) -> Sequence[SentMessage]:
        """The messages that an instance has sent, the oldest first, as far as they are tracked."""
        found = (known_message(each, None) for each in self._agent.track.children(UUID(instance)))
        return sorted((SentMessage(str(each.id), each.type, each.at) for each in found), key=lambda each: each.at)

    def suspended_page(self, selection: Selection, **asked: Any) -> SuspendedPage:
        """What is suspended, the oldest first."""
        with self._searching("suspended messages", personal=selection.personal):
            return suspended_page(self._agent, selection, **asked)

    def suspended_trends(self, by: str) -> SuspendedTrends:
        """What is suspended by code, port or type, with how many came in each of the last 24 hours."""
        return suspended_trends(self._agent, by)

    def total_minutes(self, within: timedelta, step: timedelta) -> Sequence[TotalMinutes]:
        """What went through the whole MessageBox, in steps of time."""
        return self._agent.paged.total_minutes(within, step)

    def routes(self, *, application: str | None = None) -> Routes:
        """Locations, types and ports, with what went from one to another among recent messages."""
        return read_routes(self._agent, application=application)

    def whole_message(self, id_: str) -> WholeMessage:
        """A message that is read once, to be described, traced and explained."""
        if is_instance_id(id_):
            raise UsageError(f"There is no message {id_}: this is the id of an instance.")
        return WholeMessage(self._agent, read_message_id(self._agent, id_))

    def part_heads(self, id_: str) -> Sequence[PartHead]:
        """The beginnings of the parts of a message. Takes the right to read bodies, and is recorded."""
        message = self._read(id_)
        return [_head(part) for part in message.parts]

    def part(self, id_: str, name: str) -> Iterator[bytes]:
        """The bytes of a part, piece by piece. Takes the right to read bodies, and is recorded."""
        for part in self._read(id_).parts:
            if part.name == name:
                return part.chunks()
        raise UsageError(f"There is no part {name!r} of message {id_}.")

    def _read(self, id_: str) -> Message:
        uuid = read_message_id(self._agent, id_)
        with self._act("read", [id_], "bodies"):
            return read(self._agent, [uuid], "read")[uuid]

    def _searching(self, what: str, *, personal: bool) -> AbstractContextManager[None]:
        """A search that asks for personal properties takes a right; if it is refused, that is recorded."""
        return self._act("search", [f"{what} by personal properties"], "bodies") if personal else nullcontext()

    def _act(self, action: str, targets: Sequence[str], needs: Right = "operator") -> AbstractContextManager[None]:
        raise NotImplementedError


def _head(part: Part | StreamedPart) -> PartHead:
    taken, size = b"", 0
    for chunk in part.chunks():
        taken += chunk[: max(SHOWN_BYTES - len(taken), 0)]
        size += len(chunk)
        if size > SHOWN_BYTES:
            break
    whole = size <= SHOWN_BYTES
    return PartHead(part.name, _text(taken, whole=whole), size, whole)


def _text(taken: bytes, *, whole: bool) -> str | None:
    """As UTF-8; a character that is cut off at the end is left out."""
    for cut in range(1 if whole else 4):
        try:
            text = taken[: len(taken) - cut].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None
