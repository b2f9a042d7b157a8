"""The database role of a host: it works for its own host, and reaches the queues of no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from box import NOW, count
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Complete, Outcome
from crossdock.message.message import Message, Part
from crossdock.messagebox import queues
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import LineOutcome
from express import a_message, at_ports, claim, deploy, kinds, living, port, publish, unbalanced
from walk import until

NORWAY = {"Region": "NO"}
PORTS = (
    port("Mine", "Region = 'NO'", host="Mine"),
    port("Line", "Region = 'NO'", host="Mine", ordered=True),
    port("Other", "Region = 'NO'", host="Other"),
    port("Stopped", "Region = 'NO'", host="Other"),
)


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_DEAD_GRACE", timedelta(0))


class Roles:
    """Makes the roles of all hosts, opens agents that act as one, and takes the roles away again."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._opened: list[Agent] = []
        self.names: dict[str, str] = {}

    def create(self) -> None:
        self.names = dict(zip(self._agent.hosts(), self._agent.create_host_roles(), strict=True))

    def acting_as(self, host: str) -> Agent:
        made = Agent(make_conninfo(self._agent.database, options=f"-crole={self.names[host]}"))
        self._opened.append(made)
        return made

    def drop(self) -> None:
        for opened in self._opened:
            opened.close()
        with psycopg.connect(self._agent.database, autocommit=True) as connection:
            for (name,) in connection.execute(
                "SELECT quote_ident(rolname) FROM pg_roles, crossdock.box"
                " WHERE starts_with(rolname, format('crossdock_%s_', to_hex(number)))"
            ).fetchall():
                connection.execute(f"DROP OWNED BY {name}")
                connection.execute(f"DROP ROLE {name}")


@pytest.fixture
def roles(agent: Agent) -> Iterator[Roles]:
    made = Roles(agent)
    yield made
    made.drop()


class Collecting:
    """A service that takes everything."""

    name = "Partner"
    in_flight = None

    def __init__(self) -> None:
        self.delivered: list[tuple[Message, int, datetime]] = []

    def deliver(self, message: Message, *, attempt: int, now: datetime) -> Outcome:
        self.delivered.append((message, attempt, now))
        return Complete()


def test_role_publishes_to_everybody_and_claims_and_settles_for_its_own_host(
    agent: Agent, roles: Roles, database: str
) -> None:
    deploy(agent, *PORTS)
    agent.stop("Stopped")
    agent.subscribe_instance("Other", uuid4(), {"Region": "NO"})
    roles.create()
    mine, host = roles.acting_as("Mine"), agent.hosts()["Mine"]

    large = a_message(mine, NORWAY, parts=[Part("body", bytes(1024 * 1024 + 1))])
    labelled = a_message(mine, NORWAY, labels=["secret"])
    published = publish(mine, *[NORWAY] * 4, large, labelled, {"Region": "SE"})
    assert (published.published, published.unrouted, published.references) == (5, 2, 20)
    with living(mine, "Mine") as life:
        first, second, third, fourth, fifth = claim(mine, life, "Mine")
        assert fifth.message.body == large.parts[0].body  # type: ignore[union-attr]
        mine.complete(host, life.instance, [first.sequence], now=NOW)
        mine.retry(host, life.instance, [(second.sequence, NOW, "down")], now=NOW)
        mine.suspend(host, life.instance, [(third.sequence, "refused")], now=NOW)
        mine.give_back(host, life.instance, [fourth.sequence])
        line = mine.dequeue_ordered(host, life.instance, limit=10, now=NOW)
        done = LineOutcome(completed=[each.sequence for each in line])
        mine.settle_line(host, life.instance, line[0].service_id, done, now=NOW)
        mine.requeue_due(host, now=NOW)
        assert not mine.idle(host, now=NOW)

    def freed() -> bool:
        mine.release_dead(host)
        return count(database, "claimed") == 0

    until(freed, 10)
    assert at_ports(agent) == {"Mine": 3, "Other": 10}
    assert sorted(kinds(agent), key=str) == [
        ("send", "Mine"), *[("stopped", "Stopped")] * 5, *[("unrouted", None)] * 2
    ]  # fmt: skip
    assert unbalanced(database) == []


def test_host_instance_works_with_nothing_but_its_role(agent: Agent, roles: Roles) -> None:
    deploy(agent, *PORTS)
    roles.create()
    service = Collecting()
    instance = HostInstance(roles.acting_as("Mine"), agent.hosts()["Mine"], lambda _: service)
    instance.start()
    try:
        publish(agent, *[NORWAY] * 5)
        until(lambda: agent.statistics().delivered == 10, 20)
        instance.check()
    finally:
        instance.stop()

    assert at_ports(agent) == {"Other": 5, "Stopped": 5}


def test_role_reaches_the_queues_of_no_other_host(agent: Agent, roles: Roles) -> None:
    deploy(agent, *PORTS)
    agent.stop("Stopped")
    roles.create()
    publish(agent, NORWAY)
    mine, other = roles.acting_as("Mine"), agent.hosts()["Other"]
    [row] = agent.suspended()

    with living(mine, "Mine") as life:
        refused: list[Callable[[], object]] = [
            lambda: claim(mine, life, "Other"),
            lambda: mine.dequeue_ordered(other, life.instance, limit=1, now=NOW),
            lambda: mine.complete(other, life.instance, [1], now=NOW),
            lambda: mine.retry(other, life.instance, [(1, NOW, "")], now=NOW),
            lambda: mine.suspend(other, life.instance, [(1, "")], now=NOW),
            lambda: mine.give_back(other, life.instance, [1]),
            lambda: mine.requeue_due(other, now=NOW),
            lambda: mine.release_dead(other),
            lambda: mine.idle(other, now=NOW),
            lambda: mine.resume_deliveries([row.id]),
            lambda: mine.terminate([row.id]),
            lambda: mine.suspended(),
            lambda: mine.stop("Mine"),
        ]
        for attempt in refused:
            with pytest.raises(InsufficientPrivilege):
                attempt()
    tables = [f"{table}_{other}" for table in ("queue", "claimed", "scheduled", "suspended")]
    with psycopg.connect(mine.database, autocommit=True, options=f"-crole={roles.names['Mine']}") as connection:
        for table in (*tables, "queue", "claimed", "scheduled", "suspended"):
            for query in (
                f"SELECT FROM crossdock.{table}",
                f"DELETE FROM crossdock.{table}",
                f"TRUNCATE crossdock.{table}",
            ):
                with pytest.raises(InsufficientPrivilege):
                    connection.execute(query.encode())
        for table in tables:
            with pytest.raises(InsufficientPrivilege):
                connection.execute(f"INSERT INTO crossdock.{table} DEFAULT VALUES".encode())
    assert at_ports(agent) == {"Mine": 1, "Line": 1, "Other": 1}


def test_host_that_is_deployed_later_is_out_of_reach_until_roles_are_made_again(agent: Agent, roles: Roles) -> None:
    deploy(agent, *PORTS)
    roles.create()
    deploy(agent, *PORTS, port("Late", "Region = 'NO'", host="Late"))
    mine = roles.acting_as("Mine")

    publish(mine, NORWAY)
    with living(mine, "Mine") as life, pytest.raises(InsufficientPrivilege):
        claim(mine, life, "Late")
    roles.create()
    late = roles.acting_as("Late")

    with living(late, "Late") as life:
        assert len(claim(late, life, "Late")) == 1
    with living(mine, "Mine") as life:
        assert len(claim(mine, life, "Mine")) == 1
        with pytest.raises(InsufficientPrivilege):
            claim(mine, life, "Late")


def test_every_host_has_a_role_of_its_own_whatever_its_name(agent: Agent, roles: Roles) -> None:
    names = [
        "A host with a name of forty characters or more: receiving",
        "A host with a name of forty characters or more: sending",
        "Übertragung äöü" * 4,
        "Übertragung äöü" * 4 + " zwei",
        'O\'Hara "quoted" %s',
        "back\\slash, comma; semicolon",
    ]
    deploy(agent, *(port(name, "Region = 'NO'", host=name) for name in names))

    roles.create()
    roles.create()

    assert len(set(roles.names.values())) == len(agent.hosts())
    with psycopg.connect(agent.database, options="-csearch_path=crossdock") as connection:
        for host in names:
            connection.execute("SELECT set_config('role', %s, true)", [roles.names[host]])
            query = "SELECT has_table_privilege('queue_' || id, 'DELETE') FROM host ORDER BY id"
            reached = [allowed for (allowed,) in connection.execute(query)]
            assert dict(zip(agent.hosts(), reached, strict=True)) == {name: name == host for name in agent.hosts()}
            connection.rollback()
