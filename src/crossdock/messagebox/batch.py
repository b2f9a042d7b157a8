"""The messages that are published together, as publishing needs them: ids and properties as columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy.typing as npt

from crossdock.message.columns import MessageColumns
from crossdock.message.message import Message, Part
from crossdock.message.property import Value
from crossdock.messagebox.copy import uuid_array

_FEW, _SMALL_BYTES = 16, 64 * 1024


class Batch:
    """Messages of several publications, in their order. One that is kept in columns is made when it is asked for."""

    def __init__(self, pieces: Iterable[Sequence[Message]]) -> None:
        self.pieces = _joined(pieces)
        self._ends = list(accumulate(map(len, self.pieces)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, position: int) -> Message:
        piece, place = self._place(position)
        return piece[place]

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self.pieces)

    @cached_property
    def ids(self) -> npt.NDArray[Any]:
        return uuid_array(chain.from_iterable(map(_ids, self.pieces)))

    @cached_property
    def contexts(self) -> list[bytes]:
        """As they are stored; made once, for whoever stores them and whoever tracks them."""
        return list(chain.from_iterable(map(_contexts, self.pieces)))

    def column(self, name: str) -> list[Value | None]:
        """The promoted values of a property, None where there is none."""
        return list(chain.from_iterable(_column(piece, name) for piece in self.pieces))

    @cached_property
    def labelled(self) -> bool:
        """Whether any of them has labels."""
        return any(
            bool(piece.labels) if type(piece) is MessageColumns else any(message.context.labels for message in piece)
            for piece in self.pieces
        )

    def labels(self, position: int) -> frozenset[str]:
        piece, place = self._place(position)
        return piece.labels if type(piece) is MessageColumns else piece[place].context.labels

    def requests(self) -> list[int]:
        """Where messages are whose sender waits for a response. Those in columns have a source, which does not."""
        begins = (0, *self._ends)
        return [
            begin + place
            for piece, begin in zip(self.pieces, begins, strict=False)
            if type(piece) is not MessageColumns
            for place, message in enumerate(piece)
            if message.context.get("BTS.IsRequestResponse") is True
        ]

    @cached_property
    def is_few(self) -> bool:
        """Whether they are so few and small that waiting for answers would take longer than writing them."""
        return len(self) <= _FEW and all(
            isinstance(part, Part) and len(part.body) <= _SMALL_BYTES for message in self for part in message.parts
        )

    def _place(self, position: int) -> tuple[Sequence[Message], int]:
        number = bisect_right(self._ends, position)
        return self.pieces[number], position - (self._ends[number - 1] if number else 0)


def _joined(pieces: Iterable[Sequence[Message]]) -> list[Sequence[Message]]:
    """Small pieces side by side are one: hundreds of steps of orchestrations publish a message each."""
    joined: list[Sequence[Message]] = []
    small: list[Message] | None = None
    for piece in pieces:
        if type(piece) is MessageColumns:
            small = None
            joined.append(piece)
        elif small is None:
            small = list(piece)
            joined.append(small)
        else:
            small += piece
    return [piece for piece in joined if piece]


def _ids(piece: Sequence[Message]) -> Iterable[bytes]:
    return (piece.ids,) if type(piece) is MessageColumns else (message.id.bytes for message in piece)


def _contexts(piece: Sequence[Message]) -> Iterable[bytes]:
    return piece.contexts if isinstance(piece, MessageColumns) else (message.context.to_json() for message in piece)


def _column(piece: Sequence[Message], name: str) -> Sequence[Value | None]:
    if type(piece) is MessageColumns:
        return piece.column(name)
    return [message.context.promoted.get(name) for message in piece]
