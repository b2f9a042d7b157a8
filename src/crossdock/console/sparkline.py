"""A line so small that it needs no axis: how many came in each step of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spark:
    """Paths in a box of 100 by 24."""

    line: str
    area: str


def spark(values: Sequence[int]) -> Spark | None:
    """None if nothing came at all."""
    highest = max(values, default=0)
    if highest == 0 or len(values) < 2:
        return None
    step = 100 / (len(values) - 1)
    points = [f"{place * step:.1f} {22 - 20 * value / highest:.1f}" for place, value in enumerate(values)]
    line = "M" + "L".join(points)
    return Spark(line, f"{line}L100 24L0 24Z")
