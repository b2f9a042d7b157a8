"""Files of lines, however many there are: taken apart a slice at a time, so that memory is bounded by the slice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossdock.errors import TooManyMessagesError

# What a source may hold that has to be taken apart as a whole. One that is read by lines may hold any number.
MESSAGES_LIMIT = 500_000
_SLICE_BYTES = 1024 * 1024
_LINE_END = 10


def lines_of(content: bytes) -> Iterator[bytes]:
    """What `content.split(b"\\n")` gives, one after the other."""
    start = 0
    while (end := content.find(b"\n", min(start + _SLICE_BYTES, len(content)))) >= 0:
        yield from content[start:end].split(b"\n")
        start = end + 1
    yield from content[start:].split(b"\n")


def has_too_many_lines(content: bytes) -> bool:
    """Whether a source of lines, blank ones among them, may hold more than the limit."""
    if len(content) < MESSAGES_LIMIT:
        return False
    signs = np.frombuffer(content, np.uint8)
    slices = (signs[start : start + _SLICE_BYTES] for start in range(0, len(signs), _SLICE_BYTES))
    return sum(int(np.count_nonzero(each == _LINE_END)) for each in slices) >= MESSAGES_LIMIT


def check_lines(content: bytes, *, blanks: bytes) -> bytes:
    """The same, if it has not too many lines for one source. Those of nothing but `blanks` do not count."""
    if has_too_many_lines(content) and sum(1 for line in lines_of(content) if line.strip(blanks)) > MESSAGES_LIMIT:
        raise too_many()
    return content


def too_many(most: int = MESSAGES_LIMIT) -> TooManyMessagesError:
    return TooManyMessagesError(
        f"the file holds more than {most:,} messages, and can only be read whole; send it in parts"
    )
