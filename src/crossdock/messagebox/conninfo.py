"""The address of the MessageBox's database, a URL or a connection string of libpq, and the password in it.

What libpq says of an address that it cannot read quotes it, password and all. So an address is checked before libpq is
asked to connect; what it quotes of one that is fine is host, port, user and database.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from crossdock.errors import UsageError

ENVIRONMENT = "CROSSDOCK_DATABASE"
_PASSWORDS = ("password", "sslpassword")
_WHERE = ("host", "hostaddr", "port", "dbname")
_PORTS = re.compile(r"[0-9,]*")
_WRONG = (
    "The database address cannot be read: write postgresql://USER:PASSWORD@HOST/DATABASE, with %40 for an @ "
    "in the password, %2F for a / and %25 for a %, or a connection string such as host=HOST dbname=DATABASE."
)


def checked(database: str) -> str:
    """The same. UsageError: libpq cannot read it, or may take a part of the password for something that it shows."""
    try:
        if "\0" in database:
            raise ValueError
        found = conninfo_to_dict(database)
    except (psycopg.Error, ValueError):
        raise UsageError(_WRONG) from None  # not chained: it quotes what it cannot read
    if any("@" in str(found.get(name, "")) for name in _WHERE) or not _PORTS.fullmatch(str(found.get("port", ""))):
        raise UsageError(_WRONG)
    return database


@dataclass(frozen=True, slots=True)
class Travelling:
    """An address on its way to other processes: whole, or `bare`, without its password, to other machines."""

    address: str
    bare: bool = False

    @classmethod
    def to_other_machines(cls, database: str) -> Travelling:
        """Where the database is and who uses it, and no more."""
        found = conninfo_to_dict(database)
        kept = {name: value for name, value in found.items() if name not in _PASSWORDS}
        return cls(database if len(kept) == len(found) else make_conninfo("", **kept), bare=True)

    def arrived(self) -> str:
        """What to connect to from here.

        A bare one gets the password of this process: from `CROSSDOCK_DATABASE`, if that is the same database and user.
        Else libpq looks for one, in `PGPASSWORD` and in its password file.
        """
        own = os.environ.get(ENVIRONMENT, "") if self.bare else ""
        return own if own and _identity(own) == _identity(self.address) else self.address


def _identity(database: str) -> dict[str, str]:
    found = conninfo_to_dict(checked(database))
    return {name: str(found[name]) for name in (*_WHERE, "user") if name in found}
