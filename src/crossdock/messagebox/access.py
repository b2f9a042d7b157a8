"""Who may do what: rights that database users are given, for all applications or for one.

A right is membership in a role of PostgreSQL. Functions of the MessageBox and policies of its tables ask for it, so it
holds whatever program the user works with.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal, cast, get_args

import psycopg
from psycopg import sql

from crossdock.errors import NotAllowedError, UnavailableError, UsageError
from crossdock.messagebox.audit import record_act
from crossdock.messagebox.database import Database
from crossdock.messagebox.statement import statement

Right = Literal["viewer", "operator", "bodies", "edit", "administrator"]
RIGHTS: tuple[Right, ...] = get_args(Right)
_FOR_ALL = ("viewer", "administrator")


@dataclass(frozen=True, slots=True)
class Rights:
    """What the database user of a process may do. The owner, and administrators, may do everything.

    `given` are (right, application), where None is all applications. `person` is for whom the process acts, where that
    one has a limit of its own.
    """

    user: str
    is_owner: bool
    given: Set[tuple[str, str | None]]
    person: str | None = None

    def any(self, what: Right) -> bool:
        """Whether it has the right for any application."""
        return self.is_owner or any(right == what for right, _ in self.given)

    def allow(self, what: Right, application: str | None) -> bool:
        """Whether it has the right for this application."""
        return self.is_owner or (what, None) in self.given or (what, application) in self.given

    def within(self, limit: Set[str], person: str) -> Rights:
        """Those of these rights that a person has who is limited so."""
        if "administrator" in limit:
            return Rights(self.user, self.is_owner, self.given, person)
        asked = {_spelled(each) for each in limit}
        if self.is_owner:
            return Rights(self.user, False, frozenset(asked), person)
        both = {(what, where) for what, where in self.given if {(what, where), (what, None)} & asked}
        both |= {(what, where) for what, where in asked if self.allow(cast(Right, what), where)}
        return Rights(self.user, False, frozenset(both), person)

    def refusal(self, action: str, needs: Right) -> NotAllowedError:
        """What to say to somebody who lacks a right."""
        if self.person is not None:
            return NotAllowedError(
                f"{self.person!r} may not {action}: that takes the right {needs}. "
                "Ask an administrator of the console for it."
            )
        return NotAllowedError(
            f"Your database user {self.user!r} may not {action}: that takes the right {needs}. "
            f"An administrator gives it with: crossdock grant {needs} {self.user}"
        )


def _spelled(right: str) -> tuple[str, str | None]:
    what, _, application = right.partition(":")
    return what, application or None


@dataclass(frozen=True, slots=True)
class GivenRight:
    """A right that somebody was given; without an application it is for all of them."""

    database_user: str
    access: str
    application: str | None


class Access:
    """`agent.access`: the verbs for rights."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rights(self) -> Rights:
        """Of the user of this process, within the limit of whoever it acts for."""
        rows = self._database.rows("read_rights")
        given = frozenset((what, application) for _, _, what, application in rows if what is not None)
        own, actor = Rights(rows[0][0], rows[0][1], given), self._database.actor
        return own if actor.limit is None else own.within(actor.limit, actor.person)

    def require_owner(self, action: str) -> None:
        """NotAllowedError for a database user who is no administrator. Before there is a MessageBox, for nobody."""
        for user, is_owner in self._database.rows("read_ownership"):
            if not is_owner:
                raise Rights(user, False, frozenset()).refusal(action, "administrator")

    @property
    def is_limited(self) -> bool:
        """Whether whoever acts has a limit of its own, and may not do everything."""
        return not self._database.actor.is_administrator

    def list(self) -> list[GivenRight]:
        """Who was given what."""
        return self._database.listed("list_access", GivenRight)

    def grant(self, what: str, user: str, application: str | None = None) -> None:
        """Give somebody a right; roles that are missing are made. In one transaction with its record.

        Raises UsageError for what is not there, UnavailableError if our own user may not do this.
        """
        self._change("GRANT {} TO {}", "grant", what, user, application)

    def revoke(self, what: str, user: str, application: str | None = None) -> None:
        """Take a right away; the same errors."""
        self._change("REVOKE {} FROM {}", "revoke", what, user, application)

    def _change(self, text: str, action: str, what: str, user: str, application: str | None) -> None:
        with self._database.connection() as connection:
            _check(connection, what, user, application)
            role = _role(connection, what, application)
            command = sql.SQL(text).format(sql.Identifier(role), sql.Identifier(user)).as_string()
            try:
                with connection.transaction():
                    if action == "grant" and what != "administrator":
                        # A dump without privileges forgets that our functions are not for everybody.
                        connection.execute(statement("close_functions"))
                        connection.execute(statement("create_access_role"), {"what": what, "application": application})
                    connection.execute(command.encode())
                    after = {"right": what, "application": application}
                    record_act(connection, action, user, None, after, application=application)
            except psycopg.errors.UndefinedObject as error:
                raise UsageError(f"{user!r} has no right {what}. See: crossdock get access") from error
            except psycopg.errors.InsufficientPrivilege as error:
                raise UnavailableError(
                    f"The database user {connection.info.user!r} may not do this: {error.diag.message_primary}. "
                    f"Let an administrator of the server give it CREATEROLE, or run: {command}"
                ) from error


def _check(connection: psycopg.Connection, what: str, user: str, application: str | None) -> None:
    if what not in RIGHTS:
        raise UsageError(f"There is no right {what!r}. Choose one of: {', '.join(RIGHTS)}.")
    if application is not None and what in _FOR_ALL:
        raise UsageError(f"The right {what} is for all applications: leave --application out.")
    if (
        application is not None
        and not connection.execute(statement("is_application"), {"application": application}).fetchall()
    ):
        raise UsageError(f"There is no application {application!r}.")
    if not connection.execute(statement("find_user"), {"user": user}).fetchall():
        raise UsageError(
            f"There is no database user {user!r}. Create it in PostgreSQL with: "
            f"CREATE ROLE {_quoted(connection, user)} LOGIN PASSWORD '...'"
        )


def _quoted(connection: psycopg.Connection, user: str) -> str:
    """As SQL writes it: with quotes only where it needs them."""
    row = connection.execute(statement("quote_name"), {"name": user}).fetchone()
    assert row is not None
    return str(row[0])


def _role(connection: psycopg.Connection, what: str, application: str | None) -> str:
    if what == "administrator":
        row = connection.execute(statement("read_owner")).fetchone()
    else:
        row = connection.execute(statement("access_role"), {"what": what, "application": application}).fetchone()
    assert row is not None
    return str(row[0])
