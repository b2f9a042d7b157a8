"""Fixtures: one real PostgreSQL for the whole run, and a fresh database from a template for every test."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from crossdock.host import instance as host_instance
from crossdock.messagebox import queues
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer

# The machine may be busy: examples are counted, not timed.
settings.register_profile("crossdock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crossdock")

_TEMPLATE = f"crossdock_template_{os.getpid()}"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a server on which databases may be made; `make test DATABASE=…` names another."""
    given = os.environ.get("CROSSDOCK_TEST_DATABASE")
    if given:
        yield given
        return
    embedded = EmbeddedServer(tmp_path_factory.mktemp("postgres"))
    yield embedded.acquire()
    embedded.release()


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    _create(server, _TEMPLATE)
    with Agent(_named(server, _TEMPLATE)) as agent:
        agent.create()
    yield _TEMPLATE
    _drop(server, _TEMPLATE)


@pytest.fixture
def database(server: str, template: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database with the schema in it."""
    name = f"crossdock_test_{os.getpid()}_{abs(hash(request.node.nodeid)) % 10**8}"
    _create(server, name, template)
    yield _named(server, name)
    _drop(server, name)


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    name = f"crossdock_empty_{os.getpid()}"
    _create(server, name)
    yield _named(server, name)
    _drop(server, name)


@pytest.fixture
def existing_server() -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server that runs by itself."""
    url = os.environ.get("CROSSDOCK_TEST_SERVER", "postgresql://postgres@127.0.0.1:5432/postgres")
    name = f"crossdock_server_{os.getpid()}"
    try:
        _create(url, name)
    except psycopg.OperationalError:
        pytest.skip(f"no PostgreSQL server at {url}; name one in CROSSDOCK_TEST_SERVER")
    database = url.rsplit("/", 1)[0] + f"/{name}"
    yield database
    roles = _host_roles(database)
    _drop(url, name)
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
def folder(tmp_path: Path) -> Path:
    return tmp_path


def _named(server: str, name: str) -> str:
    return make_conninfo(**{**conninfo_to_dict(server), "dbname": name})  # type: ignore[arg-type]


def _create(server: str, name: str, template: str = "template1") -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')


def _drop(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture
def quick_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due, and what the dead left, is looked for at once."""
    monkeypatch.setattr(queues, "_DEAD_GRACE", timedelta(0))
    monkeypatch.setattr(host_instance, "_UPKEEP_SECONDS", 0.05)
    monkeypatch.setattr(host_instance, "_RECONNECT_SECONDS", 0.05)


@pytest.fixture
def orders(folder: Path) -> Iterator[sqlite3.Connection]:
    """A shop in SQLite with three orders, as `sql_orders.py` reads them."""
    connection = sqlite3.connect(folder / "shop.db", isolation_level=None, timeout=0)
    connection.execute("CREATE TABLE orders (id, item text, sent integer DEFAULT 0)")
    connection.execute("INSERT INTO orders (id, item) VALUES (2, 'two'), (1, 'one'), (3, 'three')")
    yield connection
    connection.close()
