"""What would lose messages, or let maintenance fail, is said before it does; a MessageBox of another version is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from box import deployment
from crossdock.administration.doctor import examine
from crossdock.errors import UnavailableError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer
from crossdock.messagebox.migrate import migrations
from crossdock.settings import Settings
from pooler import transaction_pooler
from walk import Walk, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that does not write what it says it has written."""
    settings = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB"}
    server = EmbeddedServer(tmp_path_factory.mktemp("careless"), settings)
    yield server.acquire()
    server.release()


def execute(database: str, *statements: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        for statement in statements:
            connection.execute(statement.format(name=name).encode())


def test_sound_server_has_no_troubles(safe_server: str) -> None:
    with Agent(safe_server) as agent:
        assert agent.box.troubles() == []


def test_settings_that_lose_messages_are_named_one_by_one(careless: str) -> None:
    execute(careless, "ALTER DATABASE {name} SET synchronous_commit = off")
    with Agent(careless) as agent:
        troubles = agent.box.troubles()

    assert [trouble.partition(":")[0] for trouble in troubles] == [
        f"PostgreSQL runs with {name} = off" for name in ("fsync", "full_page_writes", "synchronous_commit")
    ]


def test_pooler_in_transaction_mode_is_told_from_a_server(careless: str) -> None:
    with transaction_pooler(careless) as pooled, Agent(pooled) as agent:
        troubles = agent.box.troubles()

    assert [trouble for trouble in troubles if "pooler in transaction mode" in trouble] == troubles[:1]


def test_doctor_and_whoever_starts_say_what_is_wrong(careless: str, folder: Path) -> None:
    with Agent(careless) as agent:
        agent.box.create()
        agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    findings = examine(Settings(database=careless, home=folder / ".crossdock"))
    finding = next(each for each in findings if each.part == "messagebox")
    walk = Walk(folder / "walk", environment={"CROSSDOCK_DATABASE": careless})
    host = walk.start("host", "Default")
    try:
        until(lambda: "PostgreSQL runs with fsync = off" in (walk.folder / "stderr.txt").read_text(), 60)
    finally:
        host.terminate()
        host.communicate(timeout=60)

    assert not finding.works
    assert "fsync = off" in finding.found


@pytest.mark.parametrize("setting", ["autovacuum", "track_counts"])
def test_doctor_says_that_nothing_gives_space_back_and_what_to_do(folder: Path, setting: str) -> None:
    server = EmbeddedServer(folder / "server", {setting: "off", "shared_buffers": "16MB"})
    database = server.acquire()
    try:
        findings = examine(Settings(database=database, home=folder / ".crossdock"))
        finding = next(each for each in findings if each.part == "messagebox")
    finally:
        server.release()

    assert not finding.works
    assert finding.found.startswith(f"PostgreSQL runs with {setting} = off: ")
    assert "nothing gives back the space of what was delivered" in finding.found
    assert finding.found.endswith("Set it to on.")


def test_time_limits_of_the_database_do_not_hold_for_the_messagebox(database: str) -> None:
    limits = ("statement_timeout", "lock_timeout", "idle_session_timeout")
    execute(database, *(f"ALTER DATABASE {{name}} SET {limit} = '20ms'" for limit in limits))

    with Agent(database) as agent:
        with agent._database.connection() as connection:
            assert connection.execute("SELECT count(*) FROM pg_sleep(0.1)").fetchone() == (1,)
            shown = [connection.execute(f"SHOW {limit}".encode()).fetchone() for limit in limits]
        assert shown == [("0",), ("0",), ("0",)]


COMMANDS = [("get", "ports"), ("host", "Default")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM crossdock.migration WHERE name = '{last}'", "of an older Crossdock"),
        ("INSERT INTO crossdock.migration (name) VALUES ('9999_from_the_future')", "of a newer Crossdock"),
    ],
)
def test_messagebox_of_another_version_is_refused_in_one_sentence(
    database: str, folder: Path, change: str, said: str
) -> None:
    execute(database, change.format(last=max(migrations()), name="{name}"))
    walk = Walk(folder / "walk", environment={"CROSSDOCK_DATABASE": database})

    for command in COMMANDS:
        refused = walk.command(*command)
        assert (refused.returncode, refused.stdout) == (1, ""), command
        assert said in refused.stderr, command
        assert refused.stderr.count("\n") == 1, command


def test_run_refuses_a_newer_messagebox_and_changes_nothing(database: str) -> None:
    execute(database, "INSERT INTO crossdock.migration (name) VALUES ('9999_from_the_future')")
    execute(database, f"DELETE FROM crossdock.migration WHERE name = '{max(migrations())}'")

    with Agent(database) as agent, pytest.raises(UnavailableError, match="Update this Crossdock"):
        agent.box.create()
