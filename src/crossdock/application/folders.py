"""Folders that an application shares with itself: what it would receive twice, or receive again after it sent it."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations
from pathlib import Path

from crossdock.adapter.registry import TRANSPORTS
from crossdock.adapter.transport import Listing
from crossdock.application.model import ApplicationModel
from crossdock.application.problems import Place, Problems

_MACRO = re.compile(r"%[^%/]+%")
_TOKEN = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
_LETTERS = string.printable


@dataclass(frozen=True, slots=True)
class _Location:
    """A location that lists files, and where in the application it is."""

    name: str
    place: Place
    listing: Listing

    def may_list(self, folder: Path) -> bool:
        own = self.listing.folder
        return folder == own or (self.listing.subfolders and folder.is_relative_to(own))


def check_folders(application: ApplicationModel, folder: Path, problems: Problems) -> None:
    """Refuse two locations that may list the same file."""
    locations = _locations(application, folder)
    for one, other in combinations(locations, 2):
        nested = one.may_list(other.listing.folder) or other.may_list(one.listing.folder)
        if nested and masks_meet(one.listing.mask, other.listing.mask):
            problems.add(
                other.place,
                f"receive location {other.name!r}: {one.name!r} may list the same files in {other.listing.folder}, "
                "and only one of them receives each; give them masks or folders that differ",
            )


def received_again(application: ApplicationModel, folder: Path) -> Iterator[tuple[str, str]]:
    """(send port, receive location) where the location may list what the port writes: meant, or a circle."""
    locations = _locations(application, folder)
    for port in application.send_ports:
        transport = TRANSPORTS.get(port.adapter or "")
        if transport is None or transport.send.writes is None or port.address is None:
            continue
        written = _pattern(transport.send.writes(folder, port.address))
        yield from ((port.name, each.name) for each in locations if _may_be_listed(written, each.listing))


def masks_meet(one: str, other: str) -> bool:
    """Whether some name fits both masks, of `*`, `?` and `[…]`."""
    first, second = _TOKEN.findall(one), _TOKEN.findall(other)

    @cache
    def meet(at: int, beside: int) -> bool:
        a = first[at] if at < len(first) else None
        b = second[beside] if beside < len(second) else None
        if a == "*":
            return meet(at + 1, beside) or (b is not None and meet(at, beside + 1))
        if b == "*":
            return meet(at, beside + 1) or (a is not None and meet(at + 1, beside))
        if a is None or b is None:
            return a is b
        return _letter_fits(a, b) and meet(at + 1, beside + 1)

    return meet(0, 0)


def _letter_fits(one: str, other: str) -> bool:
    return any(fnmatchcase(letter, one) and fnmatchcase(letter, other) for letter in {*_LETTERS, *one, *other})


def _locations(application: ApplicationModel, folder: Path) -> list[_Location]:
    found = []
    for number, port in enumerate(application.receive_ports):
        for position, location in enumerate(port.locations):
            transport = TRANSPORTS.get(location.adapter)
            if transport is not None and transport.receive.lists is not None:
                place: Place = ("receive_ports", number, "locations", position, "address")
                listing = transport.receive.lists(folder, location.address, location.options)
                found.append(_Location(location.name, place, listing))
    return found


def _pattern(path: Path) -> Sequence[str]:
    """The steps of a path, with a star for each macro; links before the first macro are followed."""
    steps = path.parts
    plain = next((number for number, step in enumerate(steps[:-1]) if _MACRO.search(step)), len(steps) - 1)
    beginning = Path(*steps[:plain]).resolve()
    # A plain step is taken as it is, whatever it holds.
    return [*map(_literal, beginning.parts), *(_MACRO.sub("*", _literal(step)) for step in steps[plain:])]


def _literal(step: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", step)


def _may_be_listed(written: Sequence[str], listing: Listing) -> bool:
    *folders, name = written
    listed = [_literal(part) for part in listing.folder.parts]
    below = len(folders) == len(listed) or (listing.subfolders and len(folders) > len(listed))
    return below and all(map(masks_meet, folders, listed)) and masks_meet(name, listing.mask)
