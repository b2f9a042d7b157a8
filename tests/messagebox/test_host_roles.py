"""The database role of a host: it works for its own host, and reaches the queues of no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

import settling
from box import AT_ONCE, count
from crossdock.errors import TransientError, UnavailableError
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Clock, Complete, Elsewhere, Outcome, Postpone
from crossdock.message.message import Message, Part, StreamedPart
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.migrate import migrations
from express import a_message, at_ports, claim, delivered_now, deploy, kinds, living, port, publish, unbalanced
from roles import Roles, roles
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")

__all__ = ["roles"]

NORWAY = {"Region": "NO"}
PORTS = (
    port("Mine", "Region = 'NO'", host="Mine"),
    port("Line", "Region = 'NO'", host="Mine", ordered=True),
    port("Other", "Region = 'NO'", host="Other"),
    port("Stopped", "Region = 'NO'", host="Other"),
)


def read(part: Part | StreamedPart) -> bytes:
    return part.body if isinstance(part, Part) else b"".join(part.chunks())


class Collecting:
    """A service that takes everything."""

    name = "Partner"
    in_flight = None

    def __init__(self) -> None:
        self.delivered: list[tuple[Message, int, datetime]] = []

    def deliver(self, message: Message, *, attempt: int, now: Clock) -> Outcome:
        self.delivered.append((message, attempt, now()))
        return Complete()


def test_user_with_the_role_publishes_many_and_reads_large_parts_by_each_of_its_claims(
    agent: Agent, roles: Roles, database: str
) -> None:
    deploy(agent, port("A", "Region = 'NO'", host="Mine"), port("B", "Region = 'NO'", host="Mine"))
    roles.create()
    with Agent(roles.user("Mine")) as mine:
        host = mine.configuration.hosts()["Mine"]
        large = a_message(mine, NORWAY, parts=[Part("body", bytes(3 * 1024 * 1024)), Part("note", bytes(100_000))])
        published = publish(mine, *[NORWAY] * 200, large)
        assert (published.published, published.references) == (201, 402)
        with living(mine, "Mine") as life:
            claimed = claim(mine, life, "Mine", limit=1000)
            first, second = (each for each in claimed if each.message.id == large.id)
            settling.complete(mine, host, life.instance, [each.sequence for each in claimed if each is not second])
            assert [read(part) for part in second.message.parts] == [read(part) for part in large.parts]
            with pytest.raises(TransientError):
                read(first.message.parts[0])
            settling.complete(mine, host, life.instance, [second.sequence])

    assert agent.statistics().ports == {"A": 201, "B": 201}
    assert unbalanced(database) == []


def test_role_publishes_to_everybody_and_claims_and_settles_for_its_own_host(
    agent: Agent, roles: Roles, database: str
) -> None:
    deploy(agent, *PORTS)
    agent.subscriptions.stop("Stopped")
    agent.subscriptions.subscribe_instance("Other", uuid4(), {"Region": "NO"})
    roles.create()
    mine, host = roles.acting_as("Mine"), agent.configuration.hosts()["Mine"]

    large = a_message(mine, NORWAY, parts=[Part("body", bytes(1024 * 1024 + 1))])
    labelled = a_message(mine, NORWAY, labels=["secret"])
    published = publish(mine, *[NORWAY] * 4, large, labelled, {"Region": "SE"})
    assert (published.published, published.unrouted, published.references) == (5, 2, 20)
    with living(mine, "Mine") as life:
        first, second, third, fourth, fifth = claim(mine, life, "Mine")
        assert fifth.message.body == large.parts[0].body  # type: ignore[union-attr]
        settling.complete(mine, host, life.instance, [first.sequence])
        settling.retry(mine, host, life.instance, [(second.sequence, AT_ONCE, "down")])
        settling.suspend(mine, host, life.instance, [(third.sequence, "refused")])
        settling.give_back(mine, host, life.instance, [fourth.sequence])
        line = mine.queues.dequeue_ordered(host, life.instance, limit=10)
        done = settling.SubqueueOutcome(completed=[each.sequence for each in line])
        settling.settle_subqueue(mine, host, life.instance, line[0].service_id, done)
        mine.queues.requeue_due(host)
        assert not mine.queues.idle(host)

    def freed() -> bool:
        mine.queues.release_dead(host)
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
    instance = HostInstance(roles.acting_as("Mine"), agent.configuration.hosts()["Mine"], lambda _: service)
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
    agent.subscriptions.stop("Stopped")
    roles.create()
    publish(agent, NORWAY)
    mine, other = roles.acting_as("Mine"), agent.configuration.hosts()["Other"]
    [row] = agent.suspended.messages()

    with living(mine, "Mine") as life:
        refused: list[Callable[[], object]] = [
            lambda: claim(mine, life, "Other"),
            lambda: mine.queues.dequeue_ordered(other, life.instance, limit=1),
            lambda: settling.complete(mine, other, life.instance, [1]),
            lambda: settling.retry(mine, other, life.instance, [(1, AT_ONCE, "")]),
            lambda: settling.suspend(mine, other, life.instance, [(1, "")]),
            lambda: settling.give_back(mine, other, life.instance, [1]),
            lambda: mine.queues.requeue_due(other),
            lambda: mine.queues.release_dead(other),
            lambda: mine.queues.idle(other),
            lambda: mine.suspended.resume([row.id]),
            lambda: mine.suspended.terminate([row.id]),
            lambda: mine.suspended.messages(),
            lambda: mine.subscriptions.stop("Mine"),
        ]
        for attempt in refused:
            with pytest.raises(UnavailableError, match="may not do this"):
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
    with living(mine, "Mine") as life, pytest.raises(UnavailableError, match="may not do this"):
        claim(mine, life, "Late")
    roles.create()
    late = roles.acting_as("Late")

    with living(late, "Late") as life:
        assert len(claim(late, life, "Late")) == 1
    with living(mine, "Mine") as life:
        assert len(claim(mine, life, "Mine")) == 1
        with pytest.raises(UnavailableError, match="may not do this"):
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

    assert len(set(roles.names.values())) == len(agent.configuration.hosts())
    with psycopg.connect(agent.database, options="-csearch_path=crossdock") as connection:
        for host in names:
            connection.execute("SELECT set_config('role', %s, true)", [roles.names[host]])
            query = (
                "SELECT name, has_table_privilege('queue_' || id, 'SELECT'), bool_or(may), bool_and(may) FROM host,"
                " LATERAL (SELECT has_function_privilege(oid, 'EXECUTE') FROM pg_proc"
                "           WHERE starts_with(proname, format('host_%%s_', id))) AS function (may)"
                " GROUP BY id ORDER BY id"
            )
            reached = {name: set(allowed) for name, *allowed in connection.execute(query, [])}
            assert reached == {name: {name == host} for name in agent.configuration.hosts()}
            connection.rollback()


def test_functions_that_an_administrator_made_run_with_the_rights_of_the_owner(agent: Agent, database: str) -> None:
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute("CREATE ROLE plain_owner")
        try:
            connection.execute("ALTER TABLE box OWNER TO plain_owner")
            connection.execute("GRANT ALL ON SCHEMA crossdock TO plain_owner")
            connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA crossdock TO plain_owner")
            deploy(agent, port("A", "Region = 'NO'", host="New"))
            owners = connection.execute(
                "SELECT DISTINCT proowner::regrole::text FROM pg_proc"
                " WHERE prosecdef AND pronamespace = 'crossdock'::regnamespace"
            ).fetchall()
        finally:
            connection.execute("REASSIGN OWNED BY plain_owner TO CURRENT_USER")
            connection.execute("DROP OWNED BY plain_owner")
            connection.execute("DROP ROLE plain_owner")

    assert owners == [("plain_owner",)]


def test_roles_of_an_older_messagebox_lose_what_they_may_no_longer_do(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA crossdock")
        connection.execute("SET search_path TO crossdock")
        connection.execute("CREATE TABLE migration (name text PRIMARY KEY, applied_at timestamptz DEFAULT now())")
        for name, text in migrations().items():
            if name < "0012":
                connection.execute(text.encode())
                connection.execute("INSERT INTO migration (name) VALUES (%s)", [name])
        connection.execute("INSERT INTO box (number, case_sensitive) VALUES (1234567, false)")
        connection.execute("SELECT create_host('Old'), create_host('Without role')")
        [(role,)] = connection.execute("SELECT create_host_role('Old')").fetchall()
        may = "SELECT has_table_privilege(%(role)s, %(table)s, %(right)s)"
        wide = {"role": role, "table": "publication", "right": "INSERT"}
        assert connection.execute(may, wide).fetchone() == (True,)
        try:
            with Agent(empty_database) as agent:
                agent.box.create()

            assert connection.execute(may, wide).fetchone() == (False,)
            assert connection.execute(may, wide | {"table": "intake"}).fetchone() == (False,)
            assert connection.execute(may, wide | {"table": "service", "right": "SELECT"}).fetchone() == (False,)
            assert connection.execute(may, wide | {"table": "queue"}).fetchone() == (False,)
            assert connection.execute(may, wide | {"table": "message", "right": "SELECT"}).fetchone() == (False,)
            assert connection.execute(may, wide | {"table": "queue_1", "right": "DELETE"}).fetchone() == (False,)
            assert connection.execute(may, wide | {"table": "queue_1", "right": "SELECT"}).fetchone() == (True,)
            made = connection.execute("SELECT name FROM host WHERE to_regrole(host_role(id)) IS NOT NULL").fetchall()
            assert made == [("Old",)]
        finally:
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())


def test_port_that_moves_to_another_host_takes_along_what_a_process_under_a_role_has_in_hand(
    agent: Agent, roles: Roles
) -> None:
    deploy(agent, port("Moves", "Region = 'NO'", host="Mine"), hosts={"Mine": (), "Other": ()})
    roles.create()
    mine, host = roles.acting_as("Mine"), agent.configuration.hosts()["Mine"]
    publish(agent, NORWAY)

    with living(mine, "Mine") as life:
        [reference] = claim(mine, life, "Mine")
        assert [definition for _, _, definition in mine.configuration.services()] == [{}]
        deploy(agent, port("Moves", "Region = 'NO'", host="Other"), hosts={"Mine": (), "Other": ()})
        [(_, _, definition)] = mine.configuration.services()
        outcome = Elsewhere().deliver(reference.message, attempt=0, now=reference.claimed_at.now)
        assert isinstance(outcome, Postpone)
        settling.postpone(mine, host, life.instance, [(reference.sequence, outcome.after, outcome.reason)])

    assert definition is None
    assert agent.queues.requeue_due(agent.configuration.hosts()["Other"]) == 1
    assert [each.attempt for each in delivered_now(agent, "Other")] == [0]


def test_lease_of_a_line_that_moved_is_given_up_by_whoever_holds_it_and_taken_from_nobody(
    agent: Agent, roles: Roles, database: str
) -> None:
    line, ports = port("Line", "Region = 'NO'", host="Mine", ordered=True), {"Mine": (), "Other": ()}
    deploy(agent, line, hosts=ports)
    roles.create()
    mine, other = roles.acting_as("Mine"), roles.acting_as("Other")
    publish(agent, *[NORWAY] * 2)

    with living(mine, "Mine") as life, living(other, "Other") as theirs:
        held = mine.queues.dequeue_ordered(agent.configuration.hosts()["Mine"], life.instance, limit=1)
        deploy(agent, replace(line, host="Other"), hosts=ports)
        other.queues.release_dead(agent.configuration.hosts()["Other"])
        assert other.queues.dequeue_ordered(agent.configuration.hosts()["Other"], theirs.instance, limit=1) == []
        done = settling.SubqueueOutcome(completed=[held[0].sequence])
        settling.settle_subqueue(mine, agent.configuration.hosts()["Mine"], life.instance, held[0].service_id, done)

        assert len(other.queues.dequeue_ordered(agent.configuration.hosts()["Other"], theirs.instance, limit=1)) == 1
    assert unbalanced(database) == []


def test_role_follows_a_change_of_subscriptions(agent: Agent, roles: Roles) -> None:
    deploy(agent, *PORTS)
    roles.create()
    mine = roles.acting_as("Mine")
    publish(mine, NORWAY)

    deploy(agent, *PORTS, port("New", "Region = 'SE'", host="Other"))

    assert publish(mine, {"Region": "SE"}).references == 1
