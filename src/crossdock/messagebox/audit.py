"""Who did what: every act of a person is recorded in the transaction of the act, and nobody changes the record.

Whoever acts is an `Actor`, which the connections of an agent carry as the settings `crossdock.person` and
`crossdock.reason`. The function `audit` writes them, and as whom the session was opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg

from crossdock.errors import UnavailableError
from crossdock.messagebox.database import Database
from crossdock.messagebox.rows import storable
from crossdock.messagebox.statement import statement

DONE, UNCHANGED, REFUSED = "done", "unchanged", "refused"
Since = datetime | timedelta  # a time, or how long ago
_Facts = Mapping[str, Any] | None
_LEVELS, _DIGITS = 20, 18


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody did to something. Its application is the one given, or that of the service."""

    action: str
    target: str
    before: _Facts = None
    after: _Facts = None
    outcome: str = DONE
    application: str | None = None
    service_id: int | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An act as it was recorded. `database_user` is as whom the session was opened."""

    number: int
    at: datetime
    database_user: str
    person: str
    action: str
    application: str | None
    target: str
    before: Any
    after: Any
    reason: str | None
    outcome: str


def record_act(
    connection: psycopg.Connection,
    action: str,
    target: str,
    before: _Facts = None,
    after: _Facts = None,
    outcome: str = DONE,
    *,
    application: str | None = None,
) -> None:
    """Record an act in the transaction of the caller, by whoever the connection acts for."""
    record_acts(connection, [Act(action, target, before, after, outcome, application)])


def record_acts(connection: psycopg.Connection, acts: Sequence[Act]) -> None:
    """The same for many, in one round trip."""
    if acts:
        connection.execute(statement("record_acts"), {"act": _json(acts)})


class Audit:
    """`agent.audit`: what was recorded, and what was refused."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(
        self,
        *,
        since: Since | None = None,
        person: str | None = None,
        action: str | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[AuditRow]:
        """The newest first. The next page is `before` the number of the last row."""
        wanted = {"person": person, "action": action, "limit": limit, "before": before, **since_parameters(since)}
        return self._database.listed("list_audit", _audit_row, wanted)

    def record(self, acts: Sequence[Act]) -> None:
        """Record acts that changed nothing here, such as refused ones, in a transaction of their own.

        UnavailableError for a database user without any right: nobody else adds rows.
        """
        try:
            self._database.run("record_acts", {"act": _json(acts)})
        except psycopg.errors.UndefinedFunction as error:  # it does not even see the functions of the MessageBox
            raise UnavailableError("The database user has no right to the MessageBox, and the audit no row.") from error


def since_parameters(since: Since | None) -> dict[str, Any]:
    """A time, or how long ago: that is reckoned by the clock of PostgreSQL."""
    if isinstance(since, datetime):
        return {"since": since.isoformat(), "age": None}
    return {"since": None, "age": since}


def _audit_row(before: str | None, after: str | None, **columns: Any) -> AuditRow:
    return AuditRow(before=_facts(before), after=_facts(after), **columns)


def _facts(stored: str | None) -> Any:
    """What was before or after; the text, if it is JSON that nothing of ours writes: who has any right adds rows."""
    if stored is None:
        return None
    try:
        facts = json.loads(stored, parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return stored
    return facts if _is_within(facts, _LEVELS) else stored


def _number(written: str) -> int | float | str:
    """As a text, if it has more digits than everybody reads."""
    if len(written) > _DIGITS:
        return written
    return int(written) if written.lstrip("-").isdecimal() else float(written)


def _is_within(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_within(each, levels - 1) for each in inner)


def _json(acts: Sequence[Act]) -> str:
    return json.dumps([_storable(asdict(act)) for act in acts], default=str)


def _storable(value: Any) -> Any:
    """Without what no jsonb holds, in texts at any depth."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(name)): _storable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    return value
