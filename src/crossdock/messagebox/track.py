"""The track: what was published, matched and refused, and what became of every reference. It is written in the
transaction that does it, so it says exactly what the MessageBox says.

Readers begin here. A message is found by its id or by promoted values; its events are found by its references.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from heapq import nlargest
from itertools import chain
from uuid import UUID

import psycopg

from crossdock.errors import ContextError, UsageError
from crossdock.message.context import Context
from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.messagebox.audit import record_act
from crossdock.messagebox.database import Database
from crossdock.messagebox.statement import statement
from crossdock.messagebox.track_erase import erase, read_erased
from crossdock.messagebox.track_few import find_few, read_known
from crossdock.messagebox.track_filter import bits_of
from crossdock.messagebox.track_read import Chunk, tracked, unmarked
from crossdock.messagebox.track_rows import Event, Found, Route, Tracked
from crossdock.messagebox.track_segment import take_personal, unpack_bodies
from crossdock.messagebox.track_write import INSTANCE, UNFILTERED
from crossdock.subscription.expression import Expression, compile_expression
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter, Operator, Predicate

__all__ = ["Event", "Found", "Route", "Track", "Tracked"]

_INSTANCE = 7  # the version of their ids; those of messages are of version 8
_SOUGHT = ("group_number", "term", "place", "mask", "apart")


class Track:
    """`agent.track`: the verbs for reading the track. `personal` asks for the values that are kept apart."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, ids: Sequence[UUID], *, personal: bool = False) -> list[Tracked]:
        """The messages of these ids, the oldest first; what was never tracked or is forgotten is left out."""
        if not ids:
            return []
        with self._reading() as connection:
            return self._find(connection, ids, personal=personal)

    def events(self, messages: Sequence[Tracked]) -> list[Event]:
        """What became of the references of these messages, in the order in which it happened."""
        with self._reading() as connection:
            return [event for event, _ in _settled(connection, messages)]

    def search(
        self,
        condition: Expression | Filter | None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
        personal: bool = False,
    ) -> Found:
        """Messages whose promoted properties satisfy a condition, the newest first; without a condition, all.

        A property that is personal is absent, unless `personal` values are asked for.
        """
        with self._reading() as connection:
            sought = _Sought.of(connection, condition, personal=personal)
            cursor = None if before is None else _cursor(before)
            latest = until if cursor is None else min(cursor[0], until or cursor[0])
            found = self._newest(connection, sought, since, latest, cursor, limit)
        over = len(found) > limit
        last = found[limit - 1] if over else None
        return Found(found[:limit], None if last is None else f"{last.at.isoformat()} {last.id}")

    def children(self, id_: UUID, *, personal: bool = False) -> list[Tracked]:
        """The messages that were published by what settled this one: answers, and steps that were given it.

        Of an instance, those that its steps published.
        """
        with self._reading() as connection:
            settled: dict[tuple[int, int], datetime] = {}
            if id_.version == _INSTANCE:
                rows = connection.execute(statement("search_segments"), _of_instance(id_)).fetchall()
            else:
                parents = self._find(connection, [id_], personal=False)
                settled = {(number, event.sequence): event.at for event, number in _settled(connection, parents)}
                moments = list(set(settled.values()))
                rows = connection.execute(statement("segments_at"), {"at": moments}).fetchall()
            chunks = [self._load(connection, at, segment) for at, _, segment in rows]
            every = chain(chunks, _unpacked(connection, personal=personal))
            found = [(each, mine) for each in every if (mine := each.published_by(settled.keys(), str(id_)))]
            return self._tracked(connection, found, personal=personal)

    def erase(self, ids: Sequence[UUID], target: str) -> int:
        """Let nobody be shown the properties and bodies of these messages any more; gives how many are new to that.

        `target` is what the audit says was erased.
        """
        self._database.refuse_limited("erase")
        with self._database.connection() as connection, connection.transaction():
            row = connection.execute(statement("erase"), {"message": list(ids)}).fetchone()
            count = 0 if row is None else int(row[0])
            record_act(connection, "erase", target, after={"messages": count})
        return count

    def bodies(self, messages: Sequence[Tracked]) -> dict[UUID, bytes]:
        """The bodies that were kept of these messages."""
        ids = [each.id for each in messages]
        with self._reading() as connection:
            rows = connection.execute(statement("find_segments"), {"ids": ids}).fetchall()
            segments = [row[1] for row in rows]
            kept = connection.execute(statement("load_bodies"), {"segment": segments}).fetchall()
            found = {id_: body for (content,) in kept for id_, body in unpack_bodies(content)}
            for each in find_few(connection, ids=ids, bodies=True):
                found |= each.bodies
            ids = [id_ for id_ in ids if id_ not in read_erased(connection)]
        return {id_: found[id_] for id_ in ids if id_ in found}

    @contextmanager
    def _reading(self) -> Iterator[psycopg.Connection]:
        """One snapshot: what is packed meanwhile is seen where it was."""
        with self._database.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    def _find(self, connection: psycopg.Connection, ids: Sequence[UUID], *, personal: bool) -> list[Tracked]:
        rows = connection.execute(statement("find_segments"), {"ids": list(ids)}).fetchall()
        chunks = [_without_erased(connection, Chunk.of_row(row)) for row in rows]
        chunks += _unpacked(connection, ids=ids, personal=personal)
        return self._tracked(connection, [(each, each.segment.find(ids)) for each in chunks], personal=personal)

    def _load(self, connection: psycopg.Connection, at: datetime, segment: int) -> Chunk:
        row = connection.execute(statement("load_segment"), {"at": at, "segment": segment}).fetchone()
        assert row is not None  # in this snapshot it was there
        return _without_erased(connection, Chunk.of_row(row))

    def _newest(
        self,
        connection: psycopg.Connection,
        sought: _Sought,
        since: datetime | None,
        until: datetime | None,
        cursor: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Tracked]:
        """One more than the limit, if there are so many. Segments are read until no later one can hold a newer."""
        window = {"since": since, "until": until, **sought.parameters()}
        rows = connection.execute(statement("search_segments"), window).fetchall()
        found: list[Tracked] = []
        for chunk in _unpacked(connection, since=since, until=until, personal=sought.personal):
            found += self._matching(connection, chunk, sought, since, until, cursor, limit)
            found = _latest(found, limit)
        for at, latest, segment in rows:
            if len(found) > limit and sorted(each.at for each in found)[-limit - 1] > latest:
                break
            chunk = self._load(connection, at, segment)
            found += self._matching(connection, chunk, sought, since, until, cursor, limit)
        return _latest(found, limit)

    def _matching(
        self,
        connection: psycopg.Connection,
        chunk: Chunk,
        sought: _Sought,
        since: datetime | None,
        until: datetime | None,
        cursor: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Tracked]:
        """Of a chunk the newest, one more than the limit. A segment of messages that were routed again has them all."""
        taken = self._taken(connection, [chunk])[0] if sought.personal else {}
        wanted = []
        for position in range(len(chunk.segment)):
            at = chunk.at(position)
            if (since is not None and at < since) or (until is not None and at > until):
                continue
            if cursor is not None and (at, chunk.segment.id(position)) >= cursor:
                continue
            if sought.matches(chunk.context(position, taken)):
                wanted.append(position)
        if len(wanted) > limit + 1 and not chunk.segment.rerouted:  # to read all of a message takes ten times as long
            wanted = nlargest(limit + 1, wanted, key=lambda each: (chunk.at(each), chunk.segment.id(each)))
        return self._tracked(connection, [(chunk, wanted)], personal=sought.personal)

    def _tracked(
        self, connection: psycopg.Connection, found: Sequence[tuple[Chunk, Sequence[int]]], *, personal: bool
    ) -> list[Tracked]:
        found = [(chunk, positions) for chunk, positions in found if positions]
        if not found:
            return []
        chunks = [chunk for chunk, _ in found]
        known = read_known(connection, (each for chunk in chunks for each in chunk.segment.origins))
        taken = self._taken(connection, chunks) if personal else [{} for _ in chunks]
        claims = {claim for chunk, positions in found for each in positions for claim in chunk.claims(each)}
        rows = connection.execute(
            statement("list_parents"),
            {"transaction": [number for number, _ in claims], "sequence": [sequence for _, sequence in claims]},
        ).fetchall()
        parents = {(number, sequence): message for number, sequence, message in rows}
        return tracked(found, taken, known, parents)

    def _taken(self, connection: psycopg.Connection, chunks: Sequence[Chunk]) -> list[dict[int, list[tuple[str, str]]]]:
        """By position the personal values of each, as far as our database user may read them.

        What is not packed yet still has its own.
        """
        allowed = connection.execute(statement("may_read_personal")).fetchone()
        if allowed is None or not allowed[0]:
            return [{} for _ in chunks]
        numbers = [each.number for each in chunks if each.number is not None]
        kept: dict[int, bytes] = dict(connection.execute(statement("load_personal"), {"segment": numbers}).fetchall())
        return [{} if each.number is None else each.taken(kept.get(each.number)) for each in chunks]


class _Sought:
    """A condition: what the filters of segments can say of it, and what it means for a message."""

    def __init__(
        self, condition: Filter | None, apart: Collection[str], *, personal: bool, case_sensitive: bool
    ) -> None:
        self._condition = condition
        self._apart = apart
        self._matcher = Matcher(case_sensitive)
        self.personal = personal

    @classmethod
    def of(cls, connection: psycopg.Connection, condition: Expression | Filter | None, *, personal: bool) -> _Sought:
        if isinstance(condition, Expression):
            rows = connection.execute(statement("list_properties")).fetchall()
            condition = compile_expression(
                PropertyRegistry([(name, PropertyType(kind)) for name, kind in rows]), condition
            )
        row = connection.execute(statement("read_case_sensitive")).fetchone()
        apart = {name for (name,) in connection.execute(statement("list_personal"))}
        return cls(condition, apart, personal=personal, case_sensitive=row is not None and bool(row[0]))

    def matches(self, context: bytes) -> bool:
        """The meaning; a context that cannot be read satisfies nothing."""
        if self._condition is None:
            return True
        try:
            return self._matcher.matches(self._condition, Context.from_json(unmarked(context)).promoted)
        except ContextError:
            return False

    def parameters(self) -> dict[str, object]:
        """A group without a term says nothing of itself, and then neither does the whole."""
        terms: list[tuple[int, int, int, str, bool]] = []
        groups = () if self._condition is None else self._condition.groups
        filtered = self._condition is not None
        for number, group in enumerate(groups):
            usable = [values for predicate in group if (values := _equals(predicate))]
            filtered = filtered and bool(usable)
            for term, values in enumerate(usable):
                for name, value in values:
                    bits = bits_of(name, value, case_sensitive=self._matcher.case_sensitive)
                    terms.append((number, term, bits.place, bits.mask, name in self._apart))
        columns = zip(*terms, strict=True) if terms else ((),) * len(_SOUGHT)
        named = {name: list(column) for name, column in zip(_SOUGHT, columns, strict=True)}
        return {"filtered": filtered, "personal": self.personal, **named}


def _equals(predicate: Predicate) -> list[tuple[str, Value]]:
    """The values of which a message must have one; none if the predicate is not about single values."""
    equal = predicate.operator in (Operator.EQUAL, Operator.IN)
    if not equal or predicate.value is None or predicate.property in UNFILTERED:
        return []
    values = predicate.value if isinstance(predicate.value, tuple) else (predicate.value,)
    return [(predicate.property, value) for value in values]


def _unpacked(
    connection: psycopg.Connection,
    *,
    personal: bool,
    ids: Sequence[UUID] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[Chunk]:
    """What is not packed yet. There the personal values are in their places, and hidden unless they are asked for."""
    apart = [name for (name,) in connection.execute(statement("list_personal"))]
    for each in find_few(connection, ids=ids, since=since, until=until):
        chunk = _without_erased(connection, Chunk.of_few(each))
        if not personal:
            chunk.segment.contexts, _ = take_personal(chunk.segment.contexts, apart)
        yield chunk


def _latest(found: list[Tracked], limit: int) -> list[Tracked]:
    """One more than the limit."""
    return nlargest(limit + 1, found, key=lambda each: (each.at, each.id))


def _without_erased(connection: psycopg.Connection, chunk: Chunk) -> Chunk:
    """Nobody is shown what is marked as erased, also before it is rewritten."""
    erase(chunk.segment, read_erased(connection))
    return chunk


def _of_instance(instance: UUID) -> dict[str, object]:
    bits = bits_of(INSTANCE, str(instance), case_sensitive=False)
    sought = dict(zip(_SOUGHT, ([0], [0], [bits.place], [bits.mask], [False]), strict=True))
    return {"since": None, "until": None, "filtered": True, "personal": False, **sought}


def _settled(connection: psycopg.Connection, messages: Sequence[Tracked]) -> list[tuple[Event, int]]:
    """Events, each with the number of its transaction."""
    spans = {span for each in messages for span in (each.references, *each.rerouted)}
    if not spans:
        return []
    parameters = {
        "first": [first for first, _ in spans],
        "last": [last for _, last in spans],
        "message": [each.id for each in messages],
    }
    rows = connection.execute(statement("list_settled"), parameters).fetchall()
    return [(Event(*row[:-1]), row[-1]) for row in rows]


def _cursor(before: str) -> tuple[datetime, UUID]:
    try:
        at, id_ = before.rsplit(" ", 1)
        return datetime.fromisoformat(at), UUID(id_)
    except ValueError as error:
        raise UsageError(f"{before!r} is no place in a list of messages; take it from the list before.") from error
