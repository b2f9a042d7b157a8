"""The messages that are published together, as publishing needs them: ids and properties as columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy.typing as npt

from crossdock.message.message import Message, Part
from crossdock.message.property import Value
from crossdock.message.run import MessageRun
from crossdock.messagebox.copy import uuid_array

_FEW, _SMALL_BYTES = 16, 64 * 1024


class Batch:
    """Messages of several interchanges, in their order. One that is in a run is made when it is asked for."""

    def __init__(self, runs: Iterable[Sequence[Message]]) -> None:
        self.runs = [run for run in runs if run]
        self._ends = list(accumulate(map(len, self.runs)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, position: int) -> Message:
        run, place = self._place(position)
        return run[place]

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self.runs)

    @cached_property
    def ids(self) -> npt.NDArray[Any]:
        return uuid_array(chain.from_iterable(map(_ids, self.runs)))

    def column(self, name: str) -> list[Value | None]:
        """The promoted values of a property, None where there is none."""
        return list(chain.from_iterable(_column(run, name) for run in self.runs))

    @cached_property
    def labelled(self) -> bool:
        """Whether any of them has labels."""
        return any(
            bool(run.labels) if isinstance(run, MessageRun) else any(message.context.labels for message in run)
            for run in self.runs
        )

    def labels(self, position: int) -> frozenset[str]:
        run, place = self._place(position)
        return run.labels if isinstance(run, MessageRun) else run[place].context.labels

    def requests(self) -> list[int]:
        """Where messages are whose sender waits for a response. Those in a run have a source, which does not."""
        begins = (0, *self._ends)
        return [
            begin + place
            for run, begin in zip(self.runs, begins, strict=False)
            if not isinstance(run, MessageRun)
            for place, message in enumerate(run)
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
        return self.runs[number], position - (self._ends[number - 1] if number else 0)


def _ids(run: Sequence[Message]) -> Iterable[bytes]:
    return (run.ids,) if isinstance(run, MessageRun) else (message.id.bytes for message in run)


def _column(run: Sequence[Message], name: str) -> Sequence[Value | None]:
    if isinstance(run, MessageRun):
        return run.column(name)
    return [message.context.promoted.get(name) for message in run]
