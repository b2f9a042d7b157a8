"""Everything that is wrong with an application, collected: each problem names its artefact, and its line if known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from crossdock.errors import ApplicationError

# Where something is declared: keys and positions from the top, as ("send_ports", 0, "filter").
Place = tuple[str | int, ...]
# The lines of the file at which places begin. A Python file has some of them, an application without a file none.
Lines = Mapping[Place, int]

_Made = TypeVar("_Made")


class Problems:
    """Of the application in one file. `add` and `tried` collect, `raise_any` refuses the application."""

    def __init__(self, file: Path, lines: Lines) -> None:
        self._file = file
        self._lines = lines
        self._found: list[tuple[int, str]] = []

    def add(self, place: Place, problem: str | ApplicationError) -> None:
        self._found.append((line_of(self._lines, place), str(problem)))

    def tried(self, place: Place, make: Callable[[], _Made], artefact: str = "") -> _Made | None:
        """What is made; None if that is refused, and then the refusal is one of the problems."""
        try:
            return make()
        except ApplicationError as error:
            self.add(place, f"{artefact}: {error}" if artefact else error)
            return None

    def raise_any(self) -> None:
        """Raises ApplicationError with every problem, in the order of the file."""
        if self._found:
            in_order = sorted(self._found, key=itemgetter(0))
            told = dict.fromkeys(told_at(self._file, line, problem) for line, problem in in_order)
            raise ApplicationError("\n".join(told))


def line_of(lines: Lines, place: Place) -> int:
    """The line of a place, or of what it is in; 0 where none is known."""
    for length in range(len(place), 0, -1):
        if (line := lines.get(place[:length])) is not None:
            return line
    return 0


def told_at(file: Path, line: int, problem: str) -> str:
    return f"{file}, line {line}: {problem}" if line else f"{file}: {problem}"


def place_text(place: Place) -> str:
    """As `send_ports[0].filter`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".") or "the application"
