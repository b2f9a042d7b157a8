"""What flows back through Spark: what each transaction published, which sources were postponed, and each outage."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pyarrow as pa

OUTCOME = "outcome STRING"


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """What a worker published in one transaction, and how long it took to read, to match and to store it."""

    received: int
    published: int
    read_seconds: float
    match_seconds: float
    store_seconds: float


@dataclass(frozen=True, slots=True)
class Postponed:
    """A source cannot be read now; the ledger says when it is tried again. The reason names the location."""

    sequence: int
    reason: str
    location_id: int = 0


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A task ended early because the MessageBox is away. The sources that it did not read are read again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """So many messages of a receive location failed with this code; or it works again, and the code is empty."""

    location_id: int
    code: str
    count: int


Outcome = RangeOutcome | Postponed | Interrupted | Noticed
_KINDS: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (RangeOutcome, Postponed, Interrupted, Noticed)}


def to_batch(outcome: Outcome) -> pa.RecordBatch:
    """One row of the schema OUTCOME."""
    text = json.dumps([type(outcome).__name__, asdict(outcome)])
    return pa.RecordBatch.from_pydict({"outcome": [text]})


def from_text(text: str) -> Outcome:
    kind, values = json.loads(text)
    return _KINDS[kind](**values)
