"""Cuts a large source of lines into ranges that are bounded in bytes and in messages.

Where a range ends is free: whoever goes on begins where the published ones end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from crossdock.adapter.calling import called, source_name
from crossdock.adapter.contract import RangedReceiveAdapter
from crossdock.errors import TerminalError, TransientError
from crossdock.pipeline.document import Document
from crossdock.pipeline.lines import lines_of
from crossdock.receive.item import IntakeItem
from crossdock.whole_file import BODY_LIMIT_BYTES

SIZE_LIMIT_BYTES = BODY_LIMIT_BYTES
# An id has 36 bits for the position of a message in its source: one half for places in bytes, the other for counting.
_PLACES = 2**35
_MESSAGES_AT_MOST = 2**20  # in a range, now and ever
_SLICE_BYTES = 64 * 1024
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")
_LINE_END = 10


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """A source that is large, or holds more messages than a range, is read range by range if it is one of lines."""

    large_bytes: int = 32 * 1024 * 1024
    range_bytes: int = 16 * 1024 * 1024
    range_messages: int = 50_000


DEFAULT_RANGE_LIMITS = RangeLimits()


@dataclass(slots=True)
class Cutter:
    """Goes through a source from `begin` on, and has a bounded part of it in memory."""

    adapter: RangedReceiveAdapter
    item: IntakeItem
    begin: int
    range_bytes: int
    _buffer: bytes = field(default=b"", repr=False)
    _offset: int = 0

    @property
    def place(self) -> int:
        """Where the next range begins in the source."""
        return self.begin + self._offset

    def skip_blank(self) -> bool:
        """Go to the next line with something in it, or to the end of the source; False if it vanished."""
        while True:
            found = _NOT_BLANK.search(self._buffer, self._offset)
            end = len(self._buffer) if found is None else found.start()
            self._offset = max(self._offset, self._buffer.rfind(b"\n", self._offset, end) + 1)
            if found is not None:
                return True
            if self._has_all():
                self._offset = len(self._buffer)
                return True
            if not self._read_on():
                return False

    def cut(self, messages: int) -> bytes | None:
        """Whole lines: about as many bytes as a range should have, at most so many messages. None if it vanished."""
        if len(self._buffer) - self._offset < self.range_bytes and not self._has_all() and not self._read_on():
            return None
        while (end := self._end()) is None:
            if not self._read_on():
                return None
        start, self._offset = self._offset, _after_lines(self._buffer, self._offset, end, messages)
        content = self._buffer[start : self._offset]
        if 8 * (len(self._buffer) - self._offset) < len(self._buffer):
            self._let_go()
        return content

    def give_back(self, content: bytes) -> None:
        """This end of what was just cut belongs to the next range."""
        if content:
            self.begin, self._buffer = self.place - len(content), content + self._buffer[self._offset :]
            self._offset = 0

    def _end(self) -> int | None:
        """Where a range should end in the buffer; None if the line under way is not all there."""
        limit = self._offset + self.range_bytes
        if self._has_all() and limit >= len(self._buffer):
            return len(self._buffer)
        end = self._buffer.rfind(b"\n", self._offset, limit) + 1 or self._buffer.find(b"\n", self._offset) + 1
        return end or (len(self._buffer) if self._has_all() else None)

    def _has_all(self) -> bool:
        return self.begin + len(self._buffer) >= self.item.size

    def _read_on(self) -> bool:
        """Up to a range, or more of a line that is longer; False if there is none."""
        if len(self._buffer) - self._offset > SIZE_LIMIT_BYTES:
            name = source_name(self.adapter, self.item.identity)
            raise TransientError(f"{name} has a line of more than {SIZE_LIMIT_BYTES:,} bytes at byte {self.place + 1}")
        self._let_go()
        missing = self.range_bytes - len(self._buffer)
        length = missing if missing > 0 else self.range_bytes
        more = called(self.adapter.read_range, self.item.identity, self.begin + len(self._buffer), length)
        self._buffer += more or b""
        return bool(more)

    def _let_go(self) -> None:
        self._buffer, self.begin, self._offset = self._buffer[self._offset :], self.place, 0


def first_position(start: int, received: int) -> int:
    """The position of the first message of the range at the byte `start`, before which so many were `received`.

    It goes by the place of the range, which is the same whatever became of the ranges before it. Past 32 GiB it goes
    by the number of messages, since an id cannot hold every place in a source.
    """
    return start if start < _PLACES else _PLACES + _MESSAGES_AT_MOST + received


def has_more_lines(content: bytes, lines: int) -> bool:
    """Whether there may be more messages in it than so many."""
    # Two bytes at least for each, so that small files are quick.
    return len(content) >= 2 * lines and _after_lines(content, 0, len(content), lines) < len(content)


def kept_back(content: bytes, _: int, *, error: TerminalError) -> Iterator[Document]:
    """Every line that is not blank, as it is."""
    return (Document(line.strip(b"\r")).failed(error) for line in lines_of(content) if line.strip())


def _after_lines(content: bytes, start: int, end: int, count: int) -> int:
    """Where so many lines with something in them end; `end` if there are not more."""
    signs = np.frombuffer(content, np.uint8)
    while start < end:
        stop = min(start + _SLICE_BYTES, end)
        ends = signs[start:stop] == _LINE_END
        lines = int(np.count_nonzero(ends))  # four times as quick as bytes.count
        if lines >= count:
            # A line end right after another ends a blank line.
            ends[1:] &= signs[start : stop - 1] != _LINE_END
            ends[0] &= start > 0 and signs[start - 1] != _LINE_END
            filled = np.flatnonzero(ends)
            if len(filled) >= count:
                return start + int(filled[count - 1]) + 1
            lines = len(filled)
        count, start = count - lines, stop
    return end
