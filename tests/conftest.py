"""Fixtures: one real PostgreSQL for the whole run, and a fresh database from a template for every test."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, settings

import databases
from crossdock.messagebox import queues
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer
from memory_folder import memory_folder
from walk import until

if TYPE_CHECKING:
    from crossdock.dataflow.session import Spark

# The machine may be busy: examples are counted, not timed. Every run draws new ones, also where `CI` is set, and says how
# to draw a failing one again.
settings.register_profile(
    "crossdock", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False, print_blob=True
)
settings.load_profile("crossdock")

# What is printed must not depend on the terminal, or the lack of one, in which the tests run.
for _variable in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PAGER"):
    os.environ.pop(_variable, None)

_TEMPLATE = f"crossdock_template_{os.getpid()}"
_MANY_FILES = 10
_COMPILED = pytest.StashKey[bool]()
# A test that kills PostgreSQL starts one of its own. Nobody reads this one after the run.
_UNSAFE_AND_QUICK = {"fsync": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a server on which databases may be made; `make test DATABASE=…` names another."""
    with (
        memory_folder(otherwise=tmp_path_factory.mktemp("postgres")) as folder,
        _a_server(folder, _UNSAFE_AND_QUICK) as started,
    ):
        yield started


@pytest.fixture(scope="session")
def safe_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with the settings that users have, so that no process warns of them."""
    with _a_server(tmp_path_factory.mktemp("postgres"), {}) as started:
        yield started


@contextmanager
def _a_server(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    given = os.environ.get("CROSSDOCK_TEST_DATABASE")
    if given:
        yield given
        return
    embedded = EmbeddedServer(folder, settings)
    yield embedded.acquire()
    embedded.release()


@pytest.fixture(scope="session")
def no_grace(server: str) -> None:
    """Right after its start a server takes nobody for dead. In a run of one file this waits until it does."""
    past = "SELECT FROM (SELECT now() > pg_postmaster_start_time() + %s AS is_past) AS server WHERE is_past"
    with psycopg.connect(server, autocommit=True) as connection:
        until(lambda: bool(connection.execute(past, [queues._DEAD_GRACE]).rowcount), 60)


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    made = databases.create(server, _TEMPLATE)
    with Agent(made) as agent:
        agent.box.create()
    with psycopg.connect(made) as connection:
        # Whoever stops waits until it would look again by itself.
        connection.execute("UPDATE crossdock.service_class SET polling_interval = interval '50 milliseconds'")
    yield _TEMPLATE
    databases.drop(server, _TEMPLATE)


@pytest.fixture
def database(server: str, template: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database with the schema in it."""
    name = f"crossdock_test_{os.getpid()}_{abs(hash(request.node.nodeid)) % 10**8}"
    yield databases.create(server, name, template)
    databases.drop(server, name)


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    name = f"crossdock_empty_{os.getpid()}"
    yield databases.create(server, name)
    databases.drop(server, name)


@pytest.fixture
def existing_server() -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server that runs by itself."""
    url = os.environ.get("CROSSDOCK_TEST_SERVER", "postgresql://postgres@127.0.0.1:5432/postgres")
    name = f"crossdock_server_{os.getpid()}"
    try:
        databases.create(url, name)
    except psycopg.OperationalError:
        pytest.skip(f"no PostgreSQL server at {url}; name one in CROSSDOCK_TEST_SERVER")
    database = url.rsplit("/", 1)[0] + f"/{name}"
    yield database
    roles = _host_roles(database)
    databases.drop(url, name)
    with psycopg.connect(url, autocommit=True) as connection:
        for role in roles:
            connection.execute(f'DROP ROLE "{role}"')


def _host_roles(database: str) -> list[str]:
    """The roles that Crossdock made for the hosts of a MessageBox: they belong to the server, not to the database."""
    with psycopg.connect(database) as connection:
        query = "SELECT rolname FROM pg_roles, crossdock.box WHERE rolname LIKE format('crossdock_%s_host_%%', to_hex(number))"
        return [role for (role,) in connection.execute(query.encode())]


@pytest.fixture
def agent(database: str) -> Iterator[Agent]:
    with Agent(database) as made:
        yield made


@pytest.fixture
def other(database: str) -> Iterator[Agent]:
    """The agent of another process."""
    with Agent(database) as made:
        yield made


@pytest.fixture
def aside(agent: Agent) -> Iterator[ThreadPoolExecutor]:  # noqa: ARG001 (the threads end before the agent does)
    """Threads for the other side of a meeting."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """The one Spark session of the tests."""
    from crossdock.dataflow.session import start_spark  # imports pyspark, which most runs of one file do not need
    from crossdock.settings import Settings

    started = start_spark(Settings(home=tmp_path_factory.mktemp("spark")))
    yield started
    started.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def orders(folder: Path) -> Iterator[sqlite3.Connection]:
    """A shop in SQLite with three orders, as `sql_orders.py` reads them."""
    connection = sqlite3.connect(folder / "shop.db", isolation_level=None, timeout=0)
    connection.execute("CREATE TABLE orders (id, item text, sent integer DEFAULT 0)")
    connection.execute("INSERT INTO orders (id, item) VALUES (2, 'two'), (1, 'one'), (3, 'three')")
    yield connection
    connection.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: "process" not in item.path.parts)


def pytest_collection_finish(session: pytest.Session) -> None:
    _make_spark_start_quickly(session)
    _leave_out_of_garbage_collection()
    for name in ("COLUMNS", "LINES"):  # which readline sets behind Python's back, and processes that we start see
        os.unsetenv(name)


def _make_spark_start_quickly(session: pytest.Session) -> None:
    """Each run of a test starts a Spark of its own. To make the archive pays where there are many such tests."""
    files = {item.path for item in session.items if "process" in item.path.parts}
    if files:
        from spark_archive import use_spark_archive  # imports pyspark

        use_spark_archive(make=len(files) >= _MANY_FILES)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The index is compiled when it is used first, and has about as many objects as everything else."""
    if "numba" in sys.modules and not item.session.stash.get(_COMPILED, False):
        item.session.stash[_COMPILED] = True
        _leave_out_of_garbage_collection()


def _leave_out_of_garbage_collection() -> None:
    """What is imported by now stays: a worker looks for garbage after every range, and would look through all of it."""
    gc.collect()
    gc.freeze()
