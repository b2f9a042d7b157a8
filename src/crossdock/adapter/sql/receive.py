"""Rows of a database as sources: a query finds them, and a statement marks each as done once its message is safe.

A row is known by its key and by its version, or else by its content, so that a row that changes is a new source.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, text

from crossdock.adapter.contract import Listing, Source
from crossdock.adapter.sql.database import Database, DatabaseErrors, is_too_large
from crossdock.adapter.sql.query import NAME, SIZE, RowQuery, limit_size
from crossdock.adapter.sql.transport import SqlReceiveOptions
from crossdock.adapter.sql.value import as_document, key_from_bytes, key_to_bytes
from crossdock.errors import ApplicationError, TransientError, UnusableRowError

_ROWS_AT_A_TIME = 500
_ROWS_IN_MEMORY = 32  # each as large as a row may be
_READ_TOGETHER_BYTES = 128 * 1024 * 1024  # what one task is given had no more when it was listed
_REPORTED_AT_MOST = 10
_LEFT_OUT_AT_MOST = 100_000  # rows that cannot be received, listed besides the limit

_Found = tuple[dict[bytes, Source | None], set[str], int]

logger = logging.getLogger(__name__)


class SqlReceiveAdapter:
    """Reads the rows that `query` gives on the database at `address`, a URL of SQLAlchemy; each is one JSON object.

    `key` names the column that tells rows apart. `done` is run with that value as `:key`; afterwards the query must
    not give the row any more. `version` names a column that changes whenever the row does. Rows are listed in the order
    of their keys, at most `limit` at a time. One of more than `maximum_size` bytes is left out and does not count.
    """

    def __init__(self, address: str, **options: Any) -> None:
        given = SqlReceiveOptions(**options)
        self._database = Database(address, timeout=given.timeout)
        self.address = self._database.address
        self._key, self._version = given.key, given.version
        _check_parameters("query", given.query, ())
        _check_parameters("done", given.done, ("key",))
        self._done = text(given.done)
        self._limit, self._maximum_size = given.limit, given.maximum_size
        self._left_out = 0  # rows of the last listing that cannot be received: they take no place of others
        query = RowQuery(given, self._database.dialect)
        self._listed, self._keys = (each.order_by(query.key) for each in (query.rows, query.keys))
        # Without a type the database decides what the key is compared as: a text may be an enum there, or padded.
        asked = query.key.in_(bindparam("keys", expanding=True))
        self._read, self._left = query.rows.where(asked), query.keys.where(asked)
        # The ledger knows sources by identity alone, and two tables may have the same keys. Statements are left out:
        # what was published while `done` was wrong must still be known once it is mended.
        self._place = (
            sha256("\0".join((self.address, _table(given.done), given.key)).encode()).hexdigest()[:16].encode()
        )
        self._engine = self._database.engine
        limit_size(self._engine, given.maximum_size)
        self._reported: set[str] = set()

    def list(self) -> Listing:
        """The rows that can be received; the others are reported in the log, each once."""
        with self._connected() as connection, self._explained("its query fails"):
            try:
                sources, problems, left_out = self._listed_rows(connection)
            except DatabaseErrors:
                self._left_out //= 2  # perhaps so many take too long
                raise
        self._left_out = min(left_out, _LEFT_OUT_AT_MOST)
        self._report(problems)
        return Listing(tuple(source for source in sources.values() if source is not None))

    def _listed_rows(self, connection: Connection) -> _Found:
        try:
            return self._sources(self._rows(connection, self._listed.limit(self._most)))
        except DatabaseErrors as error:
            if not is_too_large(error):
                raise
            return self._sources_by_key(connection)

    @property
    def _most(self) -> int:
        return self._limit + self._left_out

    def _sources(self, rows: Iterable[Row[Any]]) -> _Found:
        """By their keys; what is wrong with other rows, and how many those are."""
        sources: dict[bytes, Source | None] = {}
        problems: set[str] = set()
        count = 0
        for row in islice(rows, self._most):  # the database is told, but need not do so
            count += 1
            try:
                key, identity, content = self._source(row)
            except UnusableRowError as error:
                problems.add(str(error))
                continue
            if key in sources:  # nobody knows which of them is meant
                problems.add(self._not_unique(row))
            sources[key] = None if key in sources else Source(identity, len(content))
        usable = sum(source is not None for source in sources.values())
        return sources, problems, count - usable

    def _sources_by_key(self, connection: Connection) -> _Found:
        """The same where the query fails as a whole, since one of its rows is too large."""
        keys = list(dict.fromkeys(connection.execute(self._keys.limit(self._most)).scalars().fetchmany(self._most)))
        too_large: set[str] = set()
        parts = (keys[start : start + _ROWS_IN_MEMORY] for start in range(0, len(keys), _ROWS_IN_MEMORY))
        rows = (row for part in parts for row in self._readable(connection, part, too_large))
        sources, problems, left_out = self._sources(rows)
        return sources, problems | too_large, left_out + len(too_large)

    def _readable(self, connection: Connection, keys: Sequence[Any], too_large: set[str]) -> Iterator[Row[Any]]:
        """The rows of these keys, without those that are too large; halving finds them."""
        try:
            rows = list(self._rows(connection, self._read, keys=keys))
        except DatabaseErrors as error:
            if not is_too_large(error):
                raise
            rows = []
            if len(keys) == 1:
                too_large.add(self._too_large(keys[0]))
            else:
                for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                    yield from self._readable(connection, half, too_large)
        yield from rows

    def _too_large(self, key: Any) -> str:
        return f"{self._named(key)} has more than {self._maximum_size:,} bytes, which is its `maximum_size`"

    def _report(self, problems: set[str]) -> None:
        new = sorted(problems - self._reported)
        for problem in new[:_REPORTED_AT_MOST]:
            logger.warning("%s; what cannot be received is left out, and the other rows are read", problem)
        if len(new) > _REPORTED_AT_MOST:
            logger.warning("%s: %d more rows are left out", self.address, len(new) - _REPORTED_AT_MOST)
        self._reported = problems

    def read(self, identity: bytes) -> bytes | None:
        return self.read_batch([identity])[0]

    def read_batch(self, identities: Sequence[bytes]) -> Sequence[bytes | None]:
        """The content of many rows with few queries; None for each that is gone or changed.

        TransientError if they have become so large that they are better read one by one.
        """
        found: dict[bytes, bytes] = {}
        with self._connected() as connection:
            for start in range(0, len(identities), _ROWS_AT_A_TIME):
                found |= self._found(connection, identities[start : start + _ROWS_AT_A_TIME])
        return [found.get(identity) for identity in identities]

    def acknowledge(self, identity: bytes) -> None:
        self.acknowledge_batch([identity])

    def acknowledge_batch(self, identities: Sequence[bytes]) -> None:
        """Mark many rows as done in few transactions; rows that changed since they were read are left as they are."""
        for start in range(0, len(identities), _ROWS_AT_A_TIME):
            with self._connected(alone=True) as connection:
                some = identities[start : start + _ROWS_AT_A_TIME]
                self._mark(connection, self._found(connection, some, to_mark=True))

    def name(self, identity: bytes) -> str:
        if not identity.startswith(self._place):  # listed when the location had another adapter or address
            return identity.decode("utf-8", "backslashreplace")
        return self._named(_key(identity))

    def _named(self, key: Any) -> str:
        return f"{self.address}/{self._key}={key.hex() if isinstance(key, bytes) else key}"

    def _mark(self, connection: Connection, identities: Iterable[bytes]) -> None:
        keys = [_key(identity) for identity in identities]
        if not keys:
            return
        with self._explained(f"`done` fails for {self._named(keys[0])}" + " or another row" * (len(keys) > 1)):
            connection.execute(self._done, [{"key": key} for key in keys])
            left = connection.execute(self._left, {"keys": keys}).first()
            if left is not None:  # it would be listed and published again, for ever
                raise TransientError(
                    f"`done` was undone for {self._named(left[0])}: the query still gives the row "
                    "afterwards; let `done` change the row so that the query leaves it out"
                )
            connection.commit()

    def _rows(self, connection: Connection, statement: Select[Any], **values: Any) -> Iterator[Row[Any]]:
        result = connection.execute(statement, values, execution_options={"yield_per": _ROWS_IN_MEMORY})
        names = [name for name in list(result.keys()) if name not in (SIZE, NAME)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TransientError(
                f"{self.address}: the query gives two columns named {twice[0]!r}; tell them apart with AS"
            )
        for needed in filter(None, (self._key, self._version)):
            if needed not in names:
                raise TransientError(f"{self.address}: the query gives no column {needed!r}, only {', '.join(names)}")
        yield from result

    def _found(
        self, connection: Connection, identities: Sequence[bytes], *, to_mark: bool = False
    ) -> dict[bytes, bytes]:
        """Those of the rows that are still what they were. `to_mark`: two of one key cannot be told apart by `done`."""
        keys = [_key(identity) for identity in identities if identity.startswith(self._place)]
        asked, wanted = set(map(key_to_bytes, keys)), set(identities)
        found: dict[bytes, tuple[bytes, bytes]] = {}
        size = 0
        with self._explained("its query fails"):
            for row in self._rows(connection, self._read, keys=keys) if keys else ():
                if to_mark:
                    self._check_asked(row, asked)
                try:
                    key, identity, content = self._source(row)
                except UnusableRowError:  # it changed; to list it says what is wrong
                    continue
                if key in found and to_mark:
                    raise TransientError(self._not_unique(row))
                kept = b"" if to_mark or identity not in wanted else content
                found[key] = (b"", b"") if key in found else (identity, kept)
                size += len(kept)
                if size > _READ_TOGETHER_BYTES and len(found) > 1:
                    raise TransientError(f"{self.address}: its rows have grown, and are read one by one")
        return {identity: content for identity, content in found.values() if identity in wanted}

    def _check_asked(self, row: Row[Any], asked: set[bytes]) -> None:
        """A database may take two keys for the same that we tell apart: `done` would mark a row that nobody read."""
        key = row._mapping[self._key]
        with suppress(TypeError):
            if key_to_bytes(key) in asked:
                return
        named = self._named(row._mapping.get(NAME, key))
        raise TransientError(
            f"{named} would be marked unread: the database takes its key for that of another row; let `key` be a "
            "column whose values differ for the database, too"
        )

    def _source(self, row: Row[Any]) -> tuple[bytes, bytes, bytes]:
        """The key, the identity and the content of a row."""
        values = row._asdict()
        size, name = values.pop(SIZE, 0), values.pop(NAME, None)
        if size > self._maximum_size:
            raise UnusableRowError(self._too_large(name))
        try:
            key = key_to_bytes(values[self._key])
        except TypeError as error:
            raise UnusableRowError(f"{self.address}: the key {self._key!r} of a row is {error}") from error
        try:
            content = as_document(values)
        except Exception as error:  # drivers make what they like of types of their own
            named = self._named(values[self._key])
            raise UnusableRowError(f"{named} cannot be written as JSON: {type(error).__name__}: {error}") from error
        if len(content) > self._maximum_size:
            raise UnusableRowError(self._too_large(values[self._key]))
        version = content if self._version is None else as_document({"": values[self._version]})
        return key, b":".join((self._place, sha256(version).hexdigest()[:32].encode(), key)), content

    def _not_unique(self, row: Row[Any]) -> str:
        key = row._mapping[self._key]
        return f"{self.address}: the query gives two rows with {self._key} = {key}, and each needs its own key"

    @contextmanager
    def _connected(self, *, alone: bool = False) -> Iterator[Connection]:
        """A transaction that is rolled back unless it is committed; `alone`: no row it read may change before that."""
        with self._database.connected() as connection:
            if alone:
                self._begin_alone(connection)
            yield connection

    def _begin_alone(self, connection: Connection) -> None:
        with self._explained("it cannot be written to"):
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:  # PostgreSQL then refuses to change a row that others have changed; most others lock what is read
                postgresql = connection.dialect.name == "postgresql"
                connection.execution_options(isolation_level="REPEATABLE READ" if postgresql else "SERIALIZABLE")

    @contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        """What the database complains of, in one line and without the password."""
        try:
            yield
        except DatabaseErrors as error:
            # Not chained: the driver's own error may hold the password.
            raise TransientError(f"{self.address}: {problem}: {self._database.reason(error)}") from None


def _key(identity: bytes) -> Any:
    return key_from_bytes(identity.split(b":", 2)[2])


def _table(done: str) -> str:
    """What the statement changes, as far as can be told."""
    found = re.search(r"\b(?:UPDATE|FROM|INTO)\s+([^\s(;]+)", done, re.IGNORECASE)
    return found[1] if found else ""


def _check_parameters(option: str, statement: str, allowed: Sequence[str]) -> None:
    used = sorted(text(statement).compile().params)
    if used == list(allowed):
        return
    if not used:
        raise ApplicationError(f"`{option}` has to name the row with :key, or it would mark all of them")
    unknown = next(name for name in used if name not in allowed)
    raise ApplicationError(
        f"`{option}` has the parameter :{unknown}, which nothing fills; write \\:{unknown} for a colon"
    )
