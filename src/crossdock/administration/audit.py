"""Who did what: the list of acts, and the record of those that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from crossdock.errors import CrossdockError, FilterError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.audit import REFUSED, Act, Since

_AGO = re.compile(r"(?P<number>\d{1,6})\s*(?P<unit>[smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def since_of(text: str, option: str = "--since") -> Since:
    """A time, or how long ago as `30m`, `12h`, `7d`. A time without a zone is UTC. Raises UsageError."""
    if found := _AGO.fullmatch(text.strip()):
        return timedelta(seconds=int(found["number"]) * _SECONDS[found["unit"]])
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is no time: write 30m, 12h, 7d or 2026-01-31T12:00.") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@contextmanager
def refusals_recorded(agent: Agent, action: str, targets: Sequence[str]) -> Iterator[None]:
    """Let an act be recorded that is refused: in a transaction of its own, since its own is undone."""
    try:
        yield
    except CrossdockError as error:
        with suppress(CrossdockError):  # the refusal is what the person has to hear of
            reason = {"reason": _kept(error)}
            agent.audit.record([Act(action, target, after=reason, outcome=REFUSED) for target in targets])
        raise


def _kept(error: CrossdockError) -> str:
    """Why it was refused, without a condition that cannot be read: that quotes values, which may be personal."""
    is_condition = type(error) is UsageError and isinstance(error.__cause__, FilterError)
    return "a condition that cannot be read" if is_condition else str(error)
