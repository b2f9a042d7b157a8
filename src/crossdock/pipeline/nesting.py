"""How deep JSON is nested, and how many elements it has, found slice by slice: the memory does not grow with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_SLICE_BYTES = 256 * 1024
_QUOTE, _BACKSLASH, _COMMA = b'"\\,'


class Nesting(NamedTuple):
    """`commas`: those between the elements of the outermost array or object."""

    deepest: int
    commas: int


def nesting(body: bytes) -> Nesting:
    """Of bytes that are JSON."""
    deepest = commas = depth = 0
    for signs, inside in _slices(body):
        steps = _STEPS[signs]
        steps[inside] = 0
        depths = steps.cumsum(dtype=np.int32) + depth
        deepest = max(deepest, int(depths.max()))
        commas += int(np.count_nonzero((signs == _COMMA) & ~inside & (depths == 1)))
        depth = int(depths[-1])
    return Nesting(deepest, commas)


def _slices(body: bytes) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]:
    """Slices, and which of their bytes are inside a string."""
    everything = np.frombuffer(body, np.uint8)
    within, escapes = 0, False
    for start in range(0, len(everything), _SLICE_BYTES):
        signs = everything[start : start + _SLICE_BYTES]
        escaped, escapes = _escaped(signs, first=escapes)
        quotes = (signs == _QUOTE) & ~escaped
        seen = quotes.cumsum(dtype=np.int32) + within
        yield signs, (seen & 1).astype(np.bool_)
        within = int(seen[-1]) & 1


def _escaped(signs: npt.NDArray[np.uint8], *, first: bool) -> tuple[npt.NDArray[np.bool_], bool]:
    """Which bytes follow a backslash that is not itself escaped; and whether the byte after the last one does."""
    backslashes = signs == _BACKSLASH
    escaped = np.zeros(len(signs), np.bool_)
    if not first and not backslashes.any():
        return escaped, False
    places = np.arange(1, len(signs) + 1, dtype=np.int32)
    # Of a run of backslashes every second one is escaped: what counts is how long the run before a byte is.
    begins = np.maximum.accumulate(np.where(backslashes, np.int32(-1 if first else 0), places))
    odd: npt.NDArray[Any] = ((places - begins) & 1).astype(np.bool_) & backslashes
    escaped[0] = first
    escaped[1:] = odd[:-1]
    return escaped, bool(odd[-1])


_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"{[")] = 1
_STEPS[list(b"}]")] = -1
