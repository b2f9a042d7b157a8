"""One database, for reading or writing: how it is reached, what it is called, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.pool import QueuePool

from crossdock.adapter.secret import hidden
from crossdock.adapter.sql_fetch import fetch_everything
from crossdock.adapter.sql_value import json_as_it_is
from crossdock.errors import ApplicationError, TransientError

_CONNECT_SECONDS = 10
_TAKES_CONNECT_TIMEOUT = ("psycopg", "psycopg2", "pymysql", "mysqldb")
_REFUSED = (IntegrityError, DataError, ProgrammingError, NotSupportedError)
# Of SQLite, whose classes do not tell: a wrong statement, a text that is too long, a constraint, a wrong type.
_REFUSED_BY_SQLITE = (1, 18, 19, 20)

# What a driver raises for a value or a place that it cannot use, besides errors of SQLAlchemy.
DatabaseErrors = (SQLAlchemyError, UnicodeError, ValueError, OverflowError)


class Trouble(Enum):
    """What an error of a database means for the message it was raised for."""

    AWAY = "the database cannot be used now, for no message"
    BUSY = "it may work later, and for other messages even now"
    REFUSED = "it will not work by itself"


class Database:
    """The database at `address`, a URL of SQLAlchemy. Threads share it. Its errors are told without passwords."""

    def __init__(self, address: str) -> None:
        url = _url(address)
        self.address = _printable(url)
        self.engine = _engine(url)
        self._secrets = _secrets(url)
        self._file = _database_file(url)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A transaction that is rolled back unless it is committed. TransientError: the database is away."""
        if self._file is not None and not self._file.exists():  # to connect would make an empty one
            raise TransientError(f"{self.address} cannot be reached: there is no such file")
        try:
            connection = self.engine.connect()
        except DatabaseErrors as error:
            # Not chained: the driver's own error may hold the password.
            raise TransientError(f"{self.address}: it cannot be reached: {self.reason(error)}") from None
        with connection:
            yield connection

    def reason(self, error: BaseException) -> str:
        """What the database complains of, in one line."""
        return self.one_line(str(error.orig if isinstance(error, DBAPIError) else error))

    def one_line(self, text: str) -> str:
        return hidden(" ".join(text.split()), self._secrets)


def printable_address(address: str) -> str:
    """Where the database is; not who uses it, nor with which options, which may hold a password."""
    return _printable(_url(address))


def trouble(error: BaseException) -> Trouble:
    """Without a state of the server's, it is the connection that failed."""
    if not isinstance(error, SQLAlchemyError):
        return Trouble.REFUSED
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return Trouble.AWAY
    if isinstance(error, _REFUSED) or getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _REFUSED_BY_SQLITE:
        return Trouble.REFUSED
    return Trouble.BUSY if getattr(error.orig, "sqlstate", None) else Trouble.AWAY


def _url(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):  # a port that is no number is a ValueError, which shows what it found there
        # Not chained, and the address not shown: it may hold a password.
        raise ApplicationError(
            "the address of adapter 'sql' is a URL such as postgresql://user@host/database or sqlite:////folder/file.db"
        ) from None
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _engine(url: URL) -> Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql":
        options["json_deserializer"] = json_as_it_is
    try:
        if url.get_driver_name() in _TAKES_CONNECT_TIMEOUT and "connect_timeout" not in url.query:
            options["connect_args"] = {"connect_timeout": _CONNECT_SECONDS}
        dialect = url.get_dialect()
        if issubclass(dialect, DefaultDialect) and issubclass(dialect.get_pool_class(url), QueuePool):
            options["max_overflow"] = -1  # as many as there are threads: one more would wait, and give up after 30 s
        engine = create_engine(url, pool_pre_ping=True, **options)
    except NoSuchModuleError:
        raise ApplicationError(f"{url.drivername!r} is no database that SQLAlchemy knows") from None
    except ImportError as error:
        raise ApplicationError(
            f"the driver of {url.drivername!r} is not installed: pip install the package of {error.name!r}"
        ) from None
    fetch_everything(engine)
    return engine


def _printable(url: URL) -> str:
    options = {name: value for name, value in url.query.items() if name in ("host", "port")}
    place = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database, query=options)
    return place.render_as_string(hide_password=True)


def _secrets(url: URL) -> list[str]:
    options = [str(value) for name, value in url.query.items() if "pass" in name.lower() or "pwd" in name.lower()]
    plain = [secret for secret in (url.password, *options) if secret]
    return list({*plain, *map(quote, plain), *map(quote_plus, plain)})


def _database_file(url: URL) -> Path | None:
    named = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(str(url.database)) if named else None
