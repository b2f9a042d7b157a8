"""The caching service: whoever keeps a copy of the configuration hears of a change at once, and is never wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from box import deployment, listed
from crossdock.errors import TransientError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.caching import EpochWatch
from express import at_ports, deploy, port, publish, rows
from walk import until

NORWAY = {"Region": "NO"}


@pytest.fixture
def watch(agent: Agent, database: str) -> Iterator[EpochWatch]:
    """Listens already, and would look by itself only after a minute."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "UPDATE crossdock.service_class SET polling_interval = interval '1 minute' WHERE name = 'caching'"
        )
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'NO'"))
    made = agent.watch_epoch()
    made.wait()
    yield made
    made.close()


def test_watch_hears_of_every_kind_of_change_well_under_a_second(agent: Agent, other: Agent, watch: EpochWatch) -> None:
    changes: dict[str, Callable[[], object]] = {
        "stop": lambda: other.subscriptions.stop("A"),
        "unenlist": lambda: other.subscriptions.unenlist("A"),
        "enlist": lambda: other.subscriptions.enlist("A"),
        "start": lambda: other.subscriptions.start("A"),
        "disable": lambda: other.subscriptions.enable("orders.in", enabled=False),
        "deploy": lambda: other.subscriptions.deploy(deployment(A="Region = 'SE'")),
        "correlate": lambda: other.subscriptions.correlate(["Region"]),
    }
    heard = {}
    with ThreadPoolExecutor(1) as pool:
        for name, change in changes.items():
            before = agent.epoch()
            waiting = pool.submit(watch.wait)
            change()
            changed = time.monotonic()
            waiting.result(timeout=30)
            heard[name] = time.monotonic() - changed
            assert agent.epoch().number == before.number + 1, name

    assert max(heard.values()) < 0.9, heard


def test_change_that_is_refused_or_changes_nothing_is_not_announced(
    agent: Agent, other: Agent, watch: EpochWatch
) -> None:
    epoch = agent.epoch()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watch.wait)
        other.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'NO'"))
        other.subscriptions.start("A")
        other.subscriptions.enable("orders.in", enabled=True)
        assert (waiting.done(), agent.epoch()) == (False, epoch)
        other.subscriptions.stop("A")
        waiting.result(timeout=30)


def test_watch_that_lost_its_connection_says_so_and_then_looks_at_once(database: str, watch: EpochWatch) -> None:
    terminate = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query = 'LISTEN crossdock_epoch'"
    )
    assert rows(database, terminate) == [(True,)]

    with pytest.raises(TransientError):
        watch.wait()
    began = time.monotonic()
    watch.wait()

    assert time.monotonic() - began < 20


def test_publisher_with_a_stale_router_routes_by_the_subscriptions_as_they_are(agent: Agent, other: Agent) -> None:
    deploy(agent, port("Old", "Region = 'NO'"), port("Stopped", "Region = 'NO'"))
    publish(other, NORWAY)
    stale = other.router().epoch

    deploy(agent, port("New", "Region = 'NO'"), port("Stopped", "Region = 'NO'"))
    agent.subscriptions.stop("Stopped")
    published = publish(other, NORWAY)

    assert published.references == 1
    assert at_ports(agent) == {"Old": 1, "Stopped": 1, "New": 1}
    assert at_ports(agent, "suspended") == {"Stopped": 1}
    assert stale < other.router().epoch == agent.epoch()


def test_many_publishers_with_stale_routers_all_catch_up(agent: Agent, database: str) -> None:
    deploy(agent)
    others = [Agent(database, connections=2) for _ in range(3)]
    try:
        for other in others:
            publish(other, NORWAY)
        with ThreadPoolExecutor(3) as pool:
            for number in range(5):
                deploy(agent, port("Only", f"Region = 'R{number}'"))
                agent.subscriptions.subscribe_instance("Only", uuid4(), {"Region": f"I{number}"})
                published = pool.map(
                    lambda other, n=number: publish(other, {"Region": f"R{n}"}, {"Region": f"I{n}"}), others
                )
                assert [each.references for each in published] == [2] * 3
    finally:
        for other in others:
            other.close()


def test_router_of_a_process_that_looked_meanwhile_is_not_made_older(agent: Agent, other: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    listed(agent, "a")
    before = other.router()
    agent.subscriptions.deploy(deployment(A="Region = 'SE'"))

    assert other.router().epoch == agent.epoch() > before.epoch
    assert other.router() is other.router()
    until(lambda: [each.service for each in other.router().route({"Region": "SE"})] == ["A"], 1)
