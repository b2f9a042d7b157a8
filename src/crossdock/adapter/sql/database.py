"""One database, for reading or writing: how it is reached, what it is called, and what its errors mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
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

from crossdock.adapter.secret import held_secret, hidden, names_a_secret, secret
from crossdock.adapter.sql.fetch import fetch_everything
from crossdock.adapter.sql.timeout import connect_arguments, limit_time
from crossdock.adapter.sql.value import json_as_it_is
from crossdock.errors import ApplicationError, TerminalError, TransientError

_CONNECT_SECONDS = 10
_TAKES_CONNECT_TIMEOUT = ("psycopg", "psycopg2", "pymysql", "mysqldb")
_REFUSED = (IntegrityError, DataError, ProgrammingError, NotSupportedError)
# Of SQLite, whose classes do not tell: a wrong statement, a text that is too long, a constraint, a wrong type.
_TOO_LARGE_FOR_SQLITE = 18
_REFUSED_BY_SQLITE = (1, 18, 19, 20)

# What a driver raises for a value or a place that it cannot use, besides errors of SQLAlchemy.
DatabaseErrors = (SQLAlchemyError, UnicodeError, ValueError, OverflowError)


class Trouble(Enum):
    """What an error of a database means for the message it was raised for."""

    AWAY = "the database cannot be used now, for no message"
    BUSY = "it may work later, and for other messages even now"
    REFUSED = "it will not work by itself"


class Database:
    """The database at `address`, a URL of SQLAlchemy. Threads share it. Its errors are told without passwords.

    A statement may take `timeout` seconds. User, password and options in the address may be `env:NAME`, which is read
    anew for every connection.
    """

    def __init__(self, address: str, *, timeout: float) -> None:
        url = _url(address)
        self.address = _printable(url)
        self.engine = _engine(url, timeout)
        self._url = url
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
        return hidden(" ".join(text.split()), _secrets(self._url))


def printable_address(address: str) -> str:
    """Where the database is; not who uses it, nor with which options, which may hold a password."""
    return _printable(_url(address))


def same_place(brought: str, address: str) -> bool:
    """Whether what a message brings names the database at this address. It says nothing else: no user, no options."""
    named, meant = _url(brought), _url(address)
    if named.username is not None or named.password is not None or named.query:
        raise TerminalError("a database that a message names has no user, no password and no options")
    return _place(named) == _place(meant)


def _place(url: URL) -> tuple[str, str | None, int | None, str | None]:
    return url.get_backend_name(), url.host and url.host.lower(), url.port, url.database


def trouble(error: BaseException) -> Trouble:
    """Without a state of the server's, it is the connection that failed."""
    if not isinstance(error, SQLAlchemyError):
        return Trouble.REFUSED
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return Trouble.AWAY
    if isinstance(error, _REFUSED) or getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _REFUSED_BY_SQLITE:
        return Trouble.REFUSED
    return Trouble.BUSY if getattr(error.orig, "sqlstate", None) else Trouble.AWAY


def is_too_large(error: BaseException) -> bool:
    """Whether SQLite met a value or a row that is larger than it may be."""
    return getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF == _TOO_LARGE_FOR_SQLITE


def _url(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):  # a port that is no number is a ValueError, which shows what it found there
        # Not chained, and the address not shown: it may hold a password.
        raise ApplicationError(
            "the address of adapter 'sql' is a URL such as postgresql://user@host/database or sqlite:////folder/file.db"
        ) from None
    if url.host and "@" in f"{url.host}{url.database}":  # what we would show as host may be half a password
        raise ApplicationError("the address of adapter 'sql' has an @ behind its user; write an @ in a password as %40")
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _resolved(url: URL, held: Callable[[str], str]) -> URL:
    """With what the references in it stand for."""
    query = {
        name: held(value) if isinstance(value, str) else tuple(map(held, value)) for name, value in url.query.items()
    }
    user, password = (value if value is None else held(str(value)) for value in (url.username, url.password))
    return url.set(username=user, password=password, query=query)


def _connect_with(url: URL, engine: Engine) -> None:
    """Resolve references when a connection is made, and offer no password that is not in the address."""

    def connecting(dialect: Dialect, _: Any, arguments: list[Any], parameters: dict[str, Any]) -> None:
        given, named = dialect.create_connect_args(_resolved(url, secret))
        arguments[:] = given
        parameters.update(named)
        if url.get_backend_name() == "postgresql":
            # Else libpq would offer PGPASSWORD, which may be that of the MessageBox, to any server that asks for one.
            # A password file is still used: it says for which server a password is.
            parameters.setdefault("password", "")

    event.listen(engine, "do_connect", connecting)


def _engine(url: URL, timeout: float) -> Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql":
        options["json_deserializer"] = json_as_it_is
    try:
        driver = url.get_driver_name()
        arguments = {"connect_timeout": _CONNECT_SECONDS} if driver in _TAKES_CONNECT_TIMEOUT else {}
        arguments |= connect_arguments(driver, timeout)
        options["connect_args"] = {name: value for name, value in arguments.items() if name not in url.query}
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
    _connect_with(url, engine)
    fetch_everything(engine)
    limit_time(engine, timeout)
    return engine


def _printable(url: URL) -> str:
    options = {name: value for name, value in url.query.items() if name in ("host", "port")}
    place = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database, query=options)
    return place.render_as_string(hide_password=True)


def _secrets(url: URL) -> list[str]:
    resolved = _resolved(url, held_secret)
    options = [str(value) for name, value in resolved.query.items() if names_a_secret(name)]
    plain = [each for each in (resolved.password, *options) if each]
    return list({*plain, *map(quote, plain), *map(quote_plus, plain)})


def _database_file(url: URL) -> Path | None:
    named = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(str(url.database)) if named else None
