"""Hosts in processes of their own, killed at random moments: every port delivers all of it, files and rows once each."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from counted import NAME, assert_explained, attempts, put_beside
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from express import rows, unbalanced
from office import Office, written
from partner import Partner, Request, partner
from walk import until

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
MESSAGES = 60_000 if SOAK else 600
KILLS = 60 if SOAK else 3
MOMENTS = 10 if SOAK else 1
DEADLINE = 1_800 if SOAK else 90
CONTENT = b"goods"
COMMAND = Path(sys.executable).with_name("crossdock")


class Crew:
    """Two instances of the host Sending; who is killed is started again."""

    def __init__(self, database: str, folder: Path) -> None:
        self._database = database
        self._arguments = ["host", "Sending", "--database", database]
        self._errors = folder / "stderr.txt"
        self.living: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        while len(self.living) < 2:
            with self._errors.open("ab") as errors:
                self.living.append(
                    subprocess.Popen([COMMAND, *self._arguments], stdout=subprocess.DEVNULL, stderr=errors)
                )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.living.remove(process)

    def stop(self) -> list[int]:
        """Tell both to end, once both work; gives their exit codes."""
        self.both_work()
        for process in self.living:
            process.send_signal(signal.SIGTERM)
        return [process.wait(60) for process in self.living]

    def both_work(self) -> None:
        """Wait until both are known to the MessageBox; before that a signal ends them like any other process."""
        mine = {(process.pid,) for process in self.living}
        until(lambda: mine <= set(rows(self._database, "SELECT process FROM host_instance")), DEADLINE)

    def end(self) -> None:
        for process in self.living:
            with suppress(psutil.NoSuchProcess):
                process.kill()
            process.wait()

    def errors(self) -> str:
        return self._errors.read_text()


class Ports:
    """Three ports that all want everything: into files, into a table, to a web server. And what has arrived there."""

    def __init__(self, database: str, shop_database: str, folder: Path, shop: Partner) -> None:
        self._shop_database = shop_database
        self._folder = folder / "out"
        put_beside(folder)
        self.shop = shop
        self.published: list[str] = []
        with psycopg.connect(shop_database) as connection:
            connection.execute("CREATE TABLE arrival (message text, at timestamptz DEFAULT clock_timestamp())")
        statement = {"statement": "INSERT INTO arrival (message) VALUES (:MessageID)"}
        common: dict[str, Any] = {"filter": "Region = 'NO'", "host": "Sending"}
        ports = [
            {"name": "Files", "adapter": NAME, "address": str(self._folder / "%MessageID%"), **common},
            {"name": "Rows", "adapter": "sql", "address": url(shop_database), "options": statement, **common},
            {"name": "Shop", "adapter": "http", "address": shop.address, "retry": {"interval": 1}, **common},
        ]
        # The Default host is there for what is published from here, and nobody serves it.
        hosts = [{"name": "Default"}, {"name": "Sending"}]
        self.office = Office(database, folder, {"properties": {"Region": "text"}, "hosts": hosts, "send_ports": ports})

    def publish(self, count: int) -> None:
        agent = self.office.agent
        made = [Message(agent.message_id(), Context({"Region": "NO"}), (Part("body", CONTENT),)) for _ in range(count)]
        agent.publish([Publication(agent.configuration.hosts()["Default"], tuple(made))])
        self.published += [str(message.id) for message in made]

    @property
    def delivered(self) -> int:
        return sum(self.office.agent.statistics().ports.values())

    @property
    def files(self) -> Counter[str]:
        return Counter(written(self._folder).keys())

    @property
    def attempts(self) -> Counter[str]:
        """How often each file was written: a second time leaves no other trace."""
        return Counter(message for _, message in attempts(self._folder).elements())

    def explained(self, *, kills: int) -> None:
        assert_explained(self._folder, kills=kills)

    @property
    def rows(self) -> Counter[str]:
        with psycopg.connect(self._shop_database) as connection:
            return Counter(message for (message,) in connection.execute("SELECT message FROM arrival"))

    @property
    def requests(self) -> Counter[str]:
        """Those that came whole; of a process that is killed the partner may hear the beginning."""
        whole = [each for each in list(self.shop.requests) if each.body == CONTENT]
        return Counter(each.headers["X-Crossdock-Message-ID"] for each in whole)


def url(database: str) -> str:
    place = {name: str(value) for name, value in conninfo_to_dict(database).items()}
    return URL.create("postgresql", database=place.pop("dbname"), query=place).render_as_string(hide_password=False)


@pytest.fixture
def ports(database: str, empty_database: str, tmp_path: Path) -> Iterator[Ports]:
    with partner() as shop:
        made = Ports(database, empty_database, tmp_path, shop)
        yield made
        made.office.agent.close()
    assert unbalanced(database) == []


@pytest.fixture
def crew(database: str, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(database, tmp_path)
    yield made
    made.end()


def test_whoever_is_killed_nothing_is_lost_and_files_and_rows_are_there_once(
    ports: Ports, crew: Crew, database: str
) -> None:
    randomness = random.Random(23)
    crew.start()

    for _ in range(KILLS):
        goal = ports.delivered + randomness.randint(1, MESSAGES // KILLS)
        ports.publish(MESSAGES // KILLS)
        until(lambda: ports.delivered >= goal, DEADLINE)  # noqa: B023
        crew.kill(randomness.choice(crew.living))
        crew.start()
    until(lambda: ports.delivered == 3 * MESSAGES, DEADLINE)

    assert crew.stop() == [0, 0]
    once = Counter(ports.published)
    assert (ports.files, ports.rows) == (once, once)
    ports.explained(kills=KILLS)
    assert ports.requests.keys() == once.keys()
    assert max(ports.requests.values()) <= 1 + KILLS
    assert ports.office.suspended() == []
    assert [rows(database, f"SELECT count(*) FROM {table}") for table in ("queue", "claimed", "scheduled")] == [
        [(0,)]
    ] * 3
    assert "Traceback" not in crew.errors()


def test_partner_that_is_asked_twice_can_tell_by_the_id_of_the_message(ports: Ports, crew: Crew) -> None:
    asked, answer = Event(), Event()

    def late(_: Request) -> tuple[int, bytes]:
        asked.set()
        assert answer.wait(DEADLINE)
        return 200, b""

    ports.shop.respond = late
    ports.publish(20)
    crew.start()
    assert asked.wait(DEADLINE)

    for process in list(crew.living):
        crew.kill(process)
    before = ports.requests
    answer.set()
    crew.start()

    until(lambda: ports.delivered == 60, DEADLINE)
    assert crew.stop() == [0, 0]
    once = Counter(ports.published)
    assert ports.requests == once + before
    assert (ports.files, ports.rows) == (once, once)
    ports.explained(kills=1)


def test_process_that_is_told_to_end_finishes_what_it_has_begun_and_gives_back_the_rest(
    ports: Ports, crew: Crew, database: str
) -> None:
    asked, answer = Event(), Event()

    def late(_: Request) -> tuple[int, bytes]:
        asked.set()
        assert answer.wait(DEADLINE)
        return 200, b""

    ports.shop.respond = late
    crew.start()
    ports.publish(MESSAGES // 3)
    assert asked.wait(DEADLINE)

    crew.both_work()
    for process in crew.living:
        process.send_signal(signal.SIGTERM)
    begun = ports.requests
    answer.set()

    assert [process.wait(60) for process in crew.living] == [0, 0]
    assert rows(database, "SELECT FROM claimed") == []
    assert rows(database, "SELECT DISTINCT attempt FROM queue UNION SELECT attempt FROM scheduled") in ([], [(0,)])
    assert ports.office.agent.statistics().ports["Shop"] == ports.requests.total() >= begun.total()
    crew.living.clear()
    crew.start()
    until(lambda: ports.delivered == MESSAGES, DEADLINE)
    assert crew.stop() == [0, 0]
    once = Counter(ports.published)
    assert (ports.files, ports.attempts, ports.rows, ports.requests) == (once, once, once, once)
    assert "Traceback" not in crew.errors()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_that_is_told_twice_ends_at_once_and_what_it_had_begun_is_done_by_others(
    ports: Ports, crew: Crew, database: str, number: signal.Signals
) -> None:
    asked, answer = Event(), Event()

    def late(_: Request) -> tuple[int, bytes]:
        asked.set()
        assert answer.wait(DEADLINE)
        return 200, b""

    ports.shop.respond = late
    crew.start()
    ports.publish(20)
    crew.both_work()
    assert asked.wait(DEADLINE)
    stopping = "SELECT process FROM host_instance WHERE state = 'stopping'"

    def living() -> list[subprocess.Popen[bytes]]:
        return [process for process in crew.living if process.poll() is None]

    for process in crew.living:
        process.send_signal(signal.SIGTERM)
    until(lambda: {(process.pid,) for process in living()} <= set(rows(database, stopping)), DEADLINE)
    waiting = living()
    for process in waiting:
        process.send_signal(number)

    assert waiting
    assert {process.wait(DEADLINE) for process in waiting} == {-number}
    answer.set()
    crew.living.clear()
    crew.start()
    until(lambda: ports.delivered == 60, DEADLINE)
    assert crew.stop() == [0, 0]
    once = Counter(ports.published)
    assert (ports.files, ports.rows, ports.requests.keys()) == (once, once, once.keys())
    ports.explained(kills=1)


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_process_that_is_told_to_end_while_it_works_delivers_nothing_twice(
    ports: Ports, crew: Crew, database: str, moment: int
) -> None:
    crew.start()
    ports.publish(MESSAGES // 3)
    until(lambda: ports.delivered > moment * MESSAGES // MOMENTS, DEADLINE)

    assert crew.stop() == [0, 0]
    assert rows(database, "SELECT FROM claimed") == []
    crew.living.clear()
    crew.start()

    until(lambda: ports.delivered == MESSAGES, DEADLINE)
    assert crew.stop() == [0, 0]
    once = Counter(ports.published)
    assert (ports.files, ports.attempts, ports.rows, ports.requests) == (once, once, once, once)
