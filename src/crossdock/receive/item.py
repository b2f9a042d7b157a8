"""A source in the intake ledger, still to be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntakeItem:
    """The ledger row of a source; `attempts` may have ended the process that read it.

    The ids of its messages have the `random_bits` that were drawn when it was listed.
    """

    sequence: int
    location_id: int
    identity: bytes
    size: int
    random_bits: int
    attempts: int = 0
