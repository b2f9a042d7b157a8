"""What the console tells of acts, and of whoever asks: the same for its API, its pages and its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from crossdock.administration.deliveries import Outcome
from crossdock.administration.suspended import SuspendedRow

Action = Literal["resume", "terminate"]
ApplicationVerb = Literal["start", "stop", "enlist", "unenlist", "enable", "disable"]
State = Literal["running", "done", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Preview:
    """What an act would be about. `token` does it, within a quarter of an hour, if the same person gives it back."""

    token: str
    action: Action
    selection: str
    total: int
    sample: Sequence[SuspendedRow]


@dataclass(frozen=True, slots=True)
class Operation:
    """An act on many things. `done` and `failed` count those with an outcome; `results` say how often what happened.

    `outcomes` are those of the first hundred thousand, and of whatever failed.
    """

    id: str
    action: Action
    person: str
    selection: str
    total: int
    state: State
    begun_at: datetime
    ended_at: datetime | None = None
    done: int = 0
    failed: int = 0
    results: Mapping[str, int] = field(default_factory=dict)
    outcomes: Sequence[Outcome] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Enabled:
    """A receive location. `changed`: it was not so before."""

    name: str
    enabled: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class Me:
    """Whoever asks. `rights` are as `operator`, or `operator:Shop` for one application; administrators have all."""

    person: str
    via: str
    administrator: bool
    rights: Sequence[str]
