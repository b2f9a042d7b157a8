"""The MessageBox as a whole: its schema, its server, and the database roles that work on it."""

from __future__ import annotations

from contextlib import suppress

import psycopg

from crossdock.errors import UnavailableError, UsageError
from crossdock.messagebox.database import Database
from crossdock.messagebox.migrate import MIGRATION_LOCK, check_server, check_version, migrate
from crossdock.messagebox.outage import one_line
from crossdock.messagebox.statement import statement

_ADDRESS = "Its address is that of --database or CROSSDOCK_DATABASE; to check it: crossdock doctor"


class Box:
    """`agent.box`: the verbs for the MessageBox itself."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, *, case_sensitive: bool = False) -> list[str]:
        """Create the schema or bring it up to date; gives the migrations applied."""
        with self._database.connection() as connection:
            return migrate(connection, case_sensitive=case_sensitive)

    def check_version(self) -> None:
        """Refuse a MessageBox of a newer or older Crossdock."""
        with self._database.connection() as connection:
            check_version(connection)

    def server_version(self) -> str:
        """Connect once, to see whether it works: the version of the server, or an error that says what is wrong."""
        try:
            with psycopg.connect(self._database.address, connect_timeout=10) as connection:
                return check_server(connection)
        except psycopg.OperationalError as error:
            said = _sentence(one_line(error))
            raise UnavailableError(f"The database cannot be reached: {said} {_ADDRESS}") from error
        except psycopg.ProgrammingError as error:
            # The text is not shown: what libpq says of a wrong address quotes it.
            raise UsageError("--database is not the address of a PostgreSQL database") from error

    def troubles(self) -> list[str]:
        """What is wrong with the way to the server or with its settings, one sentence each."""
        return self._database.troubles()

    def create_host_roles(self) -> list[str]:
        """One database role for each host, which reaches the queues of that host only; gives their names.

        A role that is there is brought up to date. UnavailableError if one is missing and we may not make it.
        """
        names = []
        with self._database.connection() as connection:
            # First: a dump without privileges forgets that our functions are not for everybody.
            connection.execute(statement("close_functions"))
            for host, _ in connection.execute(statement("list_host_ids")).fetchall():
                try:
                    with connection.transaction():
                        connection.execute(statement("lock_alone"), {"lock": MIGRATION_LOCK})
                        row = connection.execute(statement("create_host_role"), {"host": host}).fetchone()
                except psycopg.errors.InsufficientPrivilege as error:
                    user = connection.info.user
                    raise UnavailableError(
                        f"Host {host!r} has no database role, because the user {user!r} may not create roles. "
                        f"Every process can work as that user; to have the roles: ALTER ROLE {user} CREATEROLE, "
                        "then run again."
                    ) from error
                assert row is not None
                names.append(row[0])
            # It guards against mistakes only: everything works without it, where we may not make roles.
            with suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement("create_author_role"))
        return names

    def own_hosts(self) -> set[int]:
        """The hosts that our database user may work for: all, if the MessageBox is its own."""
        [(hosts,)] = self._database.rows("own_hosts")
        return set(hosts or ())

    def host_role(self, host_id: int) -> str:
        """The name of the database role that may work for a host."""
        return str(self._database.value("host_role", {"host": host_id}))

    def may_maintain(self) -> bool:
        """Whether our database user may do what the maintenance jobs do; the role of a host may not."""
        return bool(self._database.value("may_maintain"))


def _sentence(said: str) -> str:
    return said if said.endswith((".", "?")) else f"{said}."
