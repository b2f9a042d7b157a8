"""What the console keeps in the MessageBox: tokens by which people sign in, answers to give again, and saved views."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from crossdock.errors import UsageError
from crossdock.messagebox.audit import record_act
from crossdock.messagebox.database import Database
from crossdock.messagebox.host_functions import host_statement
from crossdock.messagebox.statement import statement


@dataclass(frozen=True, slots=True)
class TokenRow:
    """An API token. `rights` are what its bearer may do at most, as `operator` or `operator:Shop`."""

    name: str
    rights: Sequence[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    expired: bool


@dataclass(frozen=True, slots=True)
class FoundToken:
    """Whom a token names."""

    name: str
    rights: frozenset[str]


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What was answered to a request, of which `request` is the digest. `status` is None while it is in progress."""

    request: bytes
    status: int | None
    content: bytes | None
    headers: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class SavedView:
    """A search for messages that somebody keeps. `query` is that of its address: `type=Order&state=suspended`."""

    id: UUID
    name: str
    query: str
    saved_at: datetime


class Console:
    """`agent.console`: the verbs for tokens, answers and saved views."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find_token(self, digest: bytes) -> FoundToken | None:
        """Whom a token names, unless it has expired or was revoked."""
        with self._database.connection() as connection:
            row = connection.execute(host_statement("find_token", None), {"sought": digest}).fetchone()
        return None if row is None else FoundToken(row[0], frozenset(row[1]))

    def tokens(self) -> list[TokenRow]:
        return self._database.listed("list_tokens", TokenRow)

    def create_token(
        self, name: str, digest: bytes, rights: Sequence[str], lifetime: timedelta | None
    ) -> datetime | None:
        """When it expires; recorded in the same transaction. UsageError if there is one of this name."""
        actor = self._database.actor
        values = {"name": name, "digest": digest, "rights": list(rights), "person": actor.person, "lifetime": lifetime}
        with self._database.connection() as connection, connection.transaction():
            row = connection.execute(statement("create_token"), values).fetchone()
            if row is None:
                raise UsageError(f"A token {name!r} is there already. Choose another name, or revoke that one first.")
            record_act(connection, "create token", name, None, {"rights": list(rights), "expires_at": row[0]})
        expires: datetime | None = row[0]
        return expires

    def revoke_token(self, name: str) -> None:
        """From here on it names nobody. UsageError if there is none of this name."""
        with self._database.connection() as connection, connection.transaction():
            row = connection.execute(statement("revoke_token"), {"name": name}).fetchone()
            if row is None:
                raise UsageError(f"There is no token {name!r}. List them with: crossdock token list")
            record_act(connection, "revoke token", name, {"rights": row[0]})

    def begin_answer(self, person: str, key: str, request: bytes) -> KeptAnswer | None:
        """None if the request is new, and in progress from here on; else what is known of it."""
        asked = {"person": person, "key": key, "request": request}
        while not self._database.rows("begin_answer", asked):
            if found := self._database.rows("find_answer", asked):
                return KeptAnswer(*found[0])
        return None

    def keep_answer(self, person: str, key: str, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        answer = {"status": status, "content": content, "headers": json.dumps(dict(headers))}
        self._database.run("keep_answer", {"person": person, "key": key, **answer})

    def drop_answer(self, person: str, key: str) -> None:
        """Nothing was done: the same request may come again."""
        self._database.run("drop_answer", {"person": person, "key": key})

    def views(self) -> list[SavedView]:
        """Those of the person who asks, by name."""
        return self._database.listed("list_views", SavedView, {"person": self._database.actor.person})

    def find_view(self, id_: UUID) -> SavedView | None:
        """Also one of somebody else, which was shared."""
        with self._database.connection() as connection:
            row = connection.execute(host_statement("find_view", None), {"sought": id_}).fetchone()
        return None if row is None else SavedView(*row)

    def save_view(self, name: str, query: str, most: int) -> SavedView | None:
        """Keep a search for the person who asks. None if there are `most` of other names already."""
        asked = {"person": self._database.actor.person, "name": name, "query": query, "most": most}
        return next(iter(self._database.listed("save_view", SavedView, asked)), None)

    def delete_view(self, name: str) -> bool:
        return bool(self._database.rows("delete_view", {"person": self._database.actor.person, "name": name}))
