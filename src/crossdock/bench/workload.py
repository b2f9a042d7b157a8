"""The matching workload: 30 properties, keyed subscriptions with residual predicates, and the hard cases beside them.

Everything is drawn from one seed with numpy's PCG64. Subscriptions come as predicate rows, the form the store keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crossdock.message.property import PropertyType
from crossdock.subscription.predicate import Operator

CASES = ("core", "full", "zipf", "hot", "range", "widerange", "neq")
KEYS = [f"Key{number}" for number in range(4)]
TWENTY = [f"Kind{number}" for number in range(4)]
FOUR = [f"Class{number}" for number in range(2)]
INTEGERS = [f"Count{number}" for number in range(5)]
FLOATS = ["Ratio"]
MAYBE_TWENTY = [f"Tag{number}" for number in range(4)]
MAYBE_INTEGERS = [f"Level{number}" for number in range(6)]
MAYBE_FLOATS = [f"Share{number}" for number in range(2)]
FLAGS = [f"Flags{number}" for number in range(2)]
TYPES: dict[str, PropertyType] = (
    dict.fromkeys([*KEYS, *TWENTY, *FOUR, *MAYBE_TWENTY], PropertyType.TEXT)
    | dict.fromkeys([*INTEGERS, *MAYBE_INTEGERS, *FLAGS], PropertyType.INTEGER)
    | dict.fromkeys([*FLOATS, *MAYBE_FLOATS], PropertyType.FLOAT)
)

_HIGHEST = 1_000_000
_PRESENT = 0.3
_ALWAYS = [*KEYS, *TWENTY, *FOUR, *INTEGERS, *FLOATS]
_SOMETIMES = [*MAYBE_TWENTY, *MAYBE_INTEGERS, *MAYBE_FLOATS, *FLAGS]

_ROWS_KEPT = 50_000
_COLUMNS = {
    "subscription": pa.int64(), "group": pa.int32(), "predicate": pa.int32(),
    "property": pa.string(), "operator": pa.string(), "value": pa.string(),
}  # fmt: skip

Random = np.random.Generator


def draw_messages(count: int, case: str, seed: int) -> pa.RecordBatch:
    """Messages as a record batch with real text columns; absent values are null."""
    random = np.random.Generator(np.random.PCG64(seed))
    columns = {name: _column(random, name, count, case) for name in TYPES}
    return pa.RecordBatch.from_pydict(columns)


def draw_subscriptions(count: int, case: str, seed: int = 20240701) -> pa.Table:
    """Predicate rows of `count` subscriptions with the ids 0, 1, …"""
    writer = _Writer(np.random.Generator(np.random.PCG64(seed + count)), case, *_pass_chances(count, case))
    for subscription in range(count):
        writer.subscription(subscription, last=case != "neq" and subscription >= count - 4)
    return writer.table()


def _pass_chances(count: int, case: str) -> tuple[float, float]:
    if case in ("hot", "widerange"):
        return (0.01, 0.25) if case == "hot" else (0.05, 0.3)
    if count <= 30_000:
        return 0.6, 1.0
    return (0.2, 0.8) if count <= 300_000 else (0.01, 0.25)


def _column(random: Random, name: str, count: int, case: str) -> pa.Array:
    if name in KEYS:
        values: Any = _texts(name, 1000).take(pa.array(_key_numbers(random, count, case)))
    elif TYPES[name] is PropertyType.TEXT:
        size = 4 if name in FOUR else 20
        values = _texts(name, size).take(pa.array(random.integers(0, size, count)))
    elif TYPES[name] is PropertyType.FLOAT:
        values = pa.array(random.random(count))
    else:
        values = pa.array(random.integers(0, 65_536 if name in FLAGS else _HIGHEST, count))
    if name in _ALWAYS:
        return values
    return pc.if_else(pa.array(random.random(count) < _PRESENT), values, pa.scalar(None, values.type))


def _key_numbers(random: Random, count: int, case: str) -> npt.NDArray[np.int64]:
    if case == "zipf":
        chances = 1 / np.arange(1, 1001)
        return random.choice(1000, count, p=chances / chances.sum())
    numbers = random.integers(0, 1000, count)
    return np.where(random.random(count) < 0.1, 0, numbers) if case == "hot" else numbers


def _texts(name: str, count: int) -> pa.Array:
    return pa.array([_text(name, number) for number in range(count)])


def _text(name: str, number: int) -> str:
    return f"{name[0]}{name[-1]}-{number:04d}"


@dataclass(slots=True)
class _Writer:
    """Writes predicate rows subscription by subscription; draws its random numbers in blocks, for speed."""

    random: Random
    case: str
    lowest_chance: float
    highest_chance: float
    rows: list[tuple[int, int, int, str, str, str | None]] = field(default_factory=list)
    parts: list[pa.Table] = field(default_factory=list)
    place: tuple[int, int] = (0, 0)
    number: int = 0
    block: list[float] = field(default_factory=list)
    zipf: list[int] = field(default_factory=list)

    def subscription(self, subscription: int, *, last: bool) -> None:
        draw = self.draw()
        for group in range(1 if draw < 0.8 else 2 if draw < 0.95 else 3):
            self.place, self.number = (subscription, group), 0
            if last or self.case == "neq":
                self.not_equals(3)
            elif self.case == "range":
                self.two_narrow_ranges()
            elif self.case == "widerange":
                self.wide_ranges()
            else:
                self.mixed()

    def mixed(self) -> None:
        draw, wanted = self.draw(), 3 + self.below(3)
        if draw < 0.95:
            name = self.one_of(KEYS) if self.case != "hot" else KEYS[0]
            self.add(name, Operator.EQUAL, _text(name, self.key_number()))
        elif draw < 0.98:
            first = self.below(4)
            for name in (TWENTY[first], TWENTY[(first + 1 + self.below(3)) % 4]):
                self.add(name, Operator.EQUAL, _text(name, self.below(20)))
        else:
            self.two_narrow_ranges()
            return
        while self.number < wanted:
            self.residual()

    def residual(self) -> None:
        bits = 0.05 if self.case == "full" else 0.0
        draw = self.draw()
        if draw < 0.08:
            self.equal(self.one_of([*TWENTY, *MAYBE_TWENTY]), 20)
        elif draw < 0.15:
            self.equal(self.one_of(FOUR), 4)
        elif draw < 0.30:
            self.not_equals(1)
        elif draw < 0.80 - bits:
            self.ordering(self.one_of([*INTEGERS, *FLOATS]))
        elif draw < 0.88 - bits:
            self.ordering(self.one_of([*MAYBE_INTEGERS, *MAYBE_FLOATS]))
        elif draw < 1 - bits:
            self.add(self.one_of(_SOMETIMES if self.draw() < 0.5 else _ALWAYS), Operator.EXISTS, None)
        else:
            self.add(self.one_of(FLAGS), Operator.ANY_BIT, str(1 << self.below(16)))

    def equal(self, name: str, size: int) -> None:
        self.add(name, Operator.EQUAL, _text(name, self.below(size)))

    def not_equals(self, count: int) -> None:
        for _ in range(count):
            name = self.one_of(TWENTY)
            self.add(name, Operator.NOT_EQUAL, _text(name, self.below(20)))

    def ordering(self, name: str) -> None:
        chance = self.lowest_chance + self.draw() * (self.highest_chance - self.lowest_chance)
        if self.draw() < 0.5:
            self.add(name, Operator.LESS, self.at(name, chance))
        else:
            self.add(name, Operator.GREATER_OR_EQUAL, self.at(name, 1 - chance))

    def two_narrow_ranges(self) -> None:
        first = self.below(5)
        for name in (INTEGERS[first], INTEGERS[(first + 1 + self.below(4)) % 5]):
            width = 0.01 + 0.02 * self.draw()
            low = self.draw() * (1 - width)
            self.add(name, Operator.GREATER_OR_EQUAL, self.at(name, low))
            self.add(name, Operator.LESS, self.at(name, low + width))

    def wide_ranges(self) -> None:
        first = self.below(5)
        for step in range(4):
            self.ordering(INTEGERS[(first + step) % 5])

    def at(self, name: str, quantile: float) -> str:
        return repr(quantile) if TYPES[name] is PropertyType.FLOAT else str(int(quantile * _HIGHEST))

    def key_number(self) -> int:
        if self.case == "hot":
            return 0
        if self.case == "zipf":
            if not self.zipf:
                self.zipf = _key_numbers(self.random, 100_000, "zipf").tolist()
            return self.zipf.pop()
        return self.below(1000)

    def add(self, name: str, operator: Operator, value: str | None) -> None:
        self.rows.append((*self.place, self.number, name, operator.value, value))
        self.number += 1
        if len(self.rows) == _ROWS_KEPT:
            self.flush()

    def draw(self) -> float:
        if not self.block:
            self.block = self.random.random(100_000).tolist()
        return self.block.pop()

    def below(self, limit: int) -> int:
        return int(self.draw() * limit)

    def one_of(self, names: list[str]) -> str:
        return names[self.below(len(names))]

    def table(self) -> pa.Table:
        self.flush()
        table = pa.concat_tables(self.parts).combine_chunks()
        place = table.schema.get_field_index("property")
        return table.set_column(place, "property", table["property"].dictionary_encode())

    def flush(self) -> None:
        """Rows as Python objects are large, so only some are kept at a time."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(_COLUMNS)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _COLUMNS.values(), strict=True)]
        self.parts.append(pa.table(arrays, list(_COLUMNS)))
        self.rows.clear()
