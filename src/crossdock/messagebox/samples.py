"""Samples: looking at the whole MessageBox every few seconds, at a cost that does not depend on how much is in it.

A table of few pages is counted. Of a large one a share of its pages is looked at, and the server's own statistics say
how many rows there are in all.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import msgspec
import psycopg

from crossdock.messagebox.database import Database
from crossdock.messagebox.lifeline import INSTANCE_LOCK, SILENCE
from crossdock.messagebox.sample import (
    BoxSample,
    DetailSample,
    Flow,
    HostSample,
    LocationSample,
    Sample,
    ServiceSample,
    SuspendedSample,
)
from crossdock.messagebox.statement import host_text, statement

MOST_LISTED = 1000
MOST_CODES = 100
SAMPLES_KEPT = timedelta(hours=1)
MINUTES_KEPT = timedelta(days=90)
_MOST_PAGES = 128  # of a table: 1 MB, some 10,000 references
_LATELY = timedelta(minutes=10)
_HOST_TABLES = ("queue", "claimed", "scheduled", "suspended", "instance")
_WHOLE_BOX = 0

_to_json = msgspec.json.Encoder().encode
_to_box = msgspec.json.Decoder(BoxSample).decode
_to_details = msgspec.json.Decoder(DetailSample).decode


class Life(NamedTuple):
    """How many instances of a host live in this state, and how many references they have in hand. None: none lives."""

    host_id: int
    host: str
    state: str | None
    instances: int
    in_hand: int


class Samples:
    """`agent.samples`: the verbs for watching the MessageBox."""

    def __init__(self, database: Database, *, most_pages: int = _MOST_PAGES, most_listed: int = MOST_LISTED) -> None:
        self._database = database
        self._most_pages = most_pages
        self._most_listed = most_listed

    def age(self) -> float | None:
        """How many seconds ago the newest sample was taken; None if there is none. The role of a host may ask."""
        with self._database.connection() as connection:
            row = connection.execute(statement("sample_age")).fetchone()
        return None if row is None else row[0]

    def newest_number(self) -> int:
        """Of the newest sample; 0 if there is none."""
        return int(self._database.rows("newest_sample_number")[0][0])

    def newest(self) -> Sample | None:
        with self._database.connection() as connection:
            row = connection.execute(statement("newest_sample")).fetchone()
        if row is None:
            return None
        number, at, box, details, age = row
        return Sample(number, at, age, _to_box(box), DetailSample() if details is None else _to_details(details))

    def take(self) -> Sample:
        """Look at everything, and keep what was seen. Counts are as of the last `fold_counts`."""
        before = self.newest()
        with self._database.connection() as connection:
            looked = _Look(connection, self._most_pages, self._most_listed)
            box, details = looked.sample(before)
            documents = {"box": _to_json(box).decode(), "details": _to_json(details).decode(), "kept": SAMPLES_KEPT}
            connection.execute(statement("keep_sample"), documents)
        taken = self.newest()
        assert taken is not None
        return taken

    def forget_minutes(self) -> None:
        """Some of the minutes that are too old; called now and then, it keeps up."""
        self._database.run("forget_minutes", {"kept": MINUTES_KEPT})


class _Held:
    """What one service or host holds, as counted or estimated."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.oldest: float | None = None

    def add(self, place: str, count: int, age: float | None) -> None:
        self.counts[place] += count
        if age is not None and place in ("queue", "blocked"):
            self.oldest = age if self.oldest is None else max(self.oldest, age)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class _Look:
    """One look at everything, on one connection."""

    def __init__(self, connection: psycopg.Connection, most_pages: int, most_listed: int) -> None:
        self._connection = connection
        self._most_pages = most_pages
        self._most_listed = most_listed
        self._exact = True
        self._services: defaultdict[int, _Held] = defaultdict(_Held)
        self._hosts: defaultdict[int, _Held] = defaultdict(_Held)
        self._suspended: dict[tuple[str, str], tuple[int, float | None]] = {}

    def sample(self, before: Sample | None) -> tuple[BoxSample, DetailSample]:
        self._tables = self._sizes()
        lives = self._connection.execute(
            statement("list_lives"), {"lock": INSTANCE_LOCK, "silence": SILENCE}
        ).fetchall()
        for host_id in sorted({row[0] for row in lives}):
            self._look_into(host_id)
        intake = self._intake()
        spool = self._spool()
        row = self._connection.execute(statement("sample_totals")).fetchone()
        assert row is not None
        *counted, size, services, now = row
        seconds = 0.0 if before is None else max((now - before.at).total_seconds(), 0.0)
        total = Flow(*counted)
        details = self._details(intake, before, seconds)
        hosts = self._host_samples([Life(*each) for each in lives])
        places = {name: sum(each.counts[name] for each in self._hosts.values()) for name in _PLACES}
        box = BoxSample(
            exact=self._exact,
            seconds=seconds,
            total=total,
            per_second=_rate(total, None if before is None else before.box.total, seconds),
            unread=sum(count for count, _, _ in intake.values()),
            ready=places["queue"],
            claimed=places["claimed"],
            waiting=places["scheduled"] + places["blocked"],
            suspended=places["suspended"],
            unrouted=places["unrouted"],
            instances=places["instance"],
            suspended_instances=places["suspended instance"],
            oldest_seconds=max((each.oldest for each in self._hosts.values() if each.oldest is not None), default=None),
            spool_messages=spool,
            database_bytes=size,
            ports_left_out=services - len(details.services),
            hosts=hosts,
            suspensions=self._suspensions(),
        )
        return box, details

    def _sizes(self) -> dict[tuple[int, str], tuple[int, int | None]]:
        """Pages, and rows as the server believes, of each table."""
        rows = self._connection.execute(statement("list_sampled_tables")).fetchall()
        return {(host, name): (pages, living) for host, name, pages, living in rows}

    def _share(self, host_id: int, table: str) -> float:
        """How much of a table is looked at, in percent of its pages."""
        pages, _ = self._tables.get((host_id, table), (0, None))
        if pages <= self._most_pages:
            return 100.0
        self._exact = False
        return 100.0 * self._most_pages / pages

    def _factor(self, host_id: int, table: str, share: float, seen: int) -> float:
        """How many rows each one that was seen stands for."""
        if share == 100.0 or not seen:
            return 1.0
        _, living = self._tables[host_id, table]
        return 100.0 / share if living is None else max(living / seen, 1.0)

    def _look_into(self, host_id: int) -> None:
        shares = {table: self._share(host_id, table) for table in _HOST_TABLES}
        rows = self._connection.execute(host_text("sample_host", host_id), shares).fetchall()
        seen: defaultdict[str, int] = defaultdict(int)
        for place, _, _, _, count, _ in rows:
            seen[_table(place)] += count
        factors = {table: self._factor(host_id, table, shares[table], seen[table]) for table in _HOST_TABLES}
        for place, service, kind, code, count, age in rows:
            count = round(count * factors[_table(place)])
            self._add(host_id, service, _place(place, kind), count, age)
            if place == "suspended" or (place == "instance" and kind == "suspended"):
                self._add_suspended(code, "instance" if place == "instance" else kind, count, age)
        for table in _HOST_TABLES:  # all of what was seen is rows that are gone: the statistics know of others
            _, living = self._tables.get((host_id, table), (0, None))
            if shares[table] < 100.0 and not seen[table] and living:
                self._hosts[host_id].add(table, living, None)

    def _add(self, host_id: int, service: int | None, place: str, count: int, age: float | None) -> None:
        self._hosts[host_id].add(place, count, age)
        if service is not None:
            self._services[service].add(place, count, age)

    def _add_suspended(self, code: str, kind: str, count: int, age: float | None) -> None:
        known, oldest = self._suspended.get((code, kind), (0, None))
        ages = [each for each in (oldest, age) if each is not None]
        self._suspended[code, kind] = known + count, max(ages, default=None)

    def _suspensions(self) -> tuple[SuspendedSample, ...]:
        """The most frequent; a code is text that a host has written, and there may be any number of them."""
        found = [SuspendedSample(code, kind, *told) for (code, kind), told in self._suspended.items()]
        return tuple(sorted(found, key=lambda each: (-each.count, each.code, each.kind))[:MOST_CODES])

    def _intake(self) -> dict[int, tuple[int, int, float | None]]:
        share = self._share(_WHOLE_BOX, "intake")
        rows = self._connection.execute(statement("sample_intake"), {"intake": share}).fetchall()
        factor = self._factor(_WHOLE_BOX, "intake", share, sum(row[1] for row in rows))
        return {id_: (round(count * factor), round(failing * factor), age) for id_, count, failing, age in rows}

    def _spool(self) -> int:
        pages, living = self._tables[_WHOLE_BOX, "message"]
        if pages > self._most_pages and living is not None:
            return living
        row = self._connection.execute(statement("count_spool")).fetchone()
        return 0 if row is None else int(row[0])

    def _host_samples(self, lives: list[Life]) -> tuple[HostSample, ...]:
        made: dict[int, HostSample] = {}
        for life in lives:
            held = self._hosts[life.host_id].counts
            host = made.get(life.host_id) or HostSample(
                life.host,
                {},
                ready=held["queue"],
                claimed=held["claimed"],
                waiting=held["scheduled"] + held["blocked"],
                suspended=held["suspended"] + held["unrouted"],
                oldest_seconds=self._hosts[life.host_id].oldest,
            )
            states = {} if life.state is None else {life.state: life.instances}
            made[life.host_id] = replace(
                host, instances={**host.instances, **states}, in_hand=host.in_hand + life.in_hand
            )
        return tuple(made.values())

    def _details(
        self, intake: dict[int, tuple[int, int, float | None]], before: Sample | None, seconds: float
    ) -> DetailSample:
        most = {"lately": _LATELY, "most": self._most_listed}
        fullest = sorted(self._services.items(), key=lambda each: -each[1].total)[: self._most_listed]
        held = {"service": [id_ for id_, _ in fullest], "held": [each.total for _, each in fullest]}
        services = self._connection.execute(statement("sample_services"), {**most, **held}).fetchall()
        locations = self._connection.execute(statement("sample_locations"), most).fetchall()
        known = DetailSample() if before is None else before.details
        delivered = {each.id: each.delivered for each in known.services}
        received = {each.id: each.received for each in known.locations}
        return DetailSample(
            tuple(self._service(ServiceSample(*row), delivered, seconds) for row in services),
            tuple(_location(LocationSample(*row), intake, received, seconds) for row in locations),
        )

    def _service(self, service: ServiceSample, before: dict[int, int], seconds: float) -> ServiceSample:
        held = self._services[service.id]
        return replace(
            service,
            delivered_per_second=_per_second(service.delivered, before.get(service.id), seconds),
            ready=held.counts["queue"],
            claimed=held.counts["claimed"],
            waiting=held.counts["scheduled"] + held.counts["blocked"],
            suspended=held.counts["suspended"],
            running_instances=held.counts["instance"],
            suspended_instances=held.counts["suspended instance"],
            oldest_seconds=held.oldest,
        )


_PLACES = ("queue", "blocked", "claimed", "scheduled", "suspended", "unrouted", "instance", "suspended instance")


def _table(place: str) -> str:
    return "queue" if place == "blocked" else place


def _place(place: str, kind: str) -> str:
    """Unrouted messages, and instances that are suspended, are counted by themselves."""
    if place == "suspended" and kind == "unrouted":
        return "unrouted"
    return "suspended instance" if place == "instance" and kind == "suspended" else place


def _location(
    location: LocationSample,
    intake: dict[int, tuple[int, int, float | None]],
    before: dict[int, int],
    seconds: float,
) -> LocationSample:
    unread, failing, oldest = intake.get(location.id, (0, 0, None))
    rate = _per_second(location.received, before.get(location.id), seconds)
    return replace(location, received_per_second=rate, unread=unread, failing=failing, oldest_seconds=oldest)


def _rate(total: Flow, before: Flow | None, seconds: float) -> Flow:
    if before is None:
        return Flow()
    names = Flow.__dataclass_fields__
    return Flow(**{name: _per_second(getattr(total, name), getattr(before, name), seconds) for name in names})


def _per_second(now: float, before: float | None, seconds: float) -> float:
    """0 if that is not known, or the MessageBox was put back since."""
    return 0.0 if before is None or seconds <= 0 else round(max(now - before, 0) / seconds, 3)
