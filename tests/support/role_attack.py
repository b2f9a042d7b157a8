"""Whoever has the role of one host, and psql: the session of an attacker, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from box import PROPERTIES
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.subscription.predicate import Filter
from express import living, port, publish, rows
from roles import Roles

SECRET = "password-of-a-partner"
NORWAY = {"Region": "NO"}
TABLES = (
    "box", "host", "host_instance", "application", "property", "receive_location", "send_port_group", "service",
    "subscription", "subscription_removal", "subscription_version", "erased_message", "predicate", "correlation", "instance_subscription", "intake", "publication",
    "message", "part", "fragment", "queue", "claimed", "scheduled", "suspended", "subqueue_lease", "delivery",
    "reference_log", "message_ref_log_1", "message_ref_log_2", "part_ref_log_1", "part_ref_log_2", "message_ref_total",
    "part_ref_total", "routing_failure", "epoch_history", "refusal", "publication_total", "delivery_total", "service_class", "migration",
    "orchestration_version", "instance", "history", "held", "timer", "convoy",
    "track_published", "track_personal", "track_body", "track_few", "track_settled",
)  # fmt: skip


@dataclass
class Attack:
    """A session of a user who has the role of the host Mine, with `other` the number of the host Other."""

    connection: psycopg.Connection
    database: str
    mine: int
    other: int

    def refused(self, statement: str) -> None:
        with pytest.raises(InsufficientPrivilege):
            self.connection.execute(statement.encode())

    def changes_nothing(self, statement: str) -> None:
        """Refused, or without effect: rows that cannot be seen cannot be changed."""
        before = self.everything()
        with suppress(InsufficientPrivilege):
            self.connection.execute(statement.encode())
        assert self.everything() == before, statement

    def everything(self) -> list[tuple[Any, ...]]:
        tables = " UNION ALL ".join(f"SELECT '{table}', row::text FROM {table} AS row" for table in TABLES)
        return sorted(rows(self.database, tables))


class Publishing:
    """A call of `publish_few` by the attacker, with one message of its own."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack
        [(self.epoch,)] = attack.connection.execute("SELECT epoch_token FROM box").fetchall()
        self.message = uuid4()

    def __call__(
        self, references: Sequence[tuple[UUID, int]] = (), exceptions: str | None = None, context: str = "{}"
    ) -> None:
        given = [list(each) for each in zip(*references, strict=True)] or [[], []]
        self.attack.connection.execute(
            "SELECT publish_few(%s, %s::json[], %s, %s, '{body}', %s, '{}', '{}', %s::uuid[], %s::integer[], %s, %s, %s, NULL)",
            [[self.message], [context], [self.message], [self.message], [b"x"], *given, exceptions, SUBSCRIPTION_LOCK, self.epoch],
        )  # fmt: skip

    def refused(self, **what: Any) -> None:
        before = self.attack.everything()
        with pytest.raises(InsufficientPrivilege):
            self(**what)
        assert self.attack.everything() == before


@pytest.fixture
def attack(agent: Agent, roles: Roles) -> Iterator[Attack]:
    definition = {"name": "Other", "options": {"password": SECRET}}
    location = DeployedLocation("Other.in", "Other", {"name": "Other.in", "options": {"password": SECRET}})
    own_location = DeployedLocation("Mine.in", "Mine", {"name": "Mine.in"})
    ports = (
        port("Mine", "Region = 'NO'", host="Mine"),
        port("Other", "Region = 'NO'", host="Other"),
        port("Line", "Region = 'NO'", host="Other", ordered=True),
        DeployedPort("Secret", "Other", 5, Filter(), definition),
    )
    hosts = {"Default": (), "Mine": (), "Other": ()}
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [own_location, location], ports, hosts))
    numbers = {name: id_ for id_, _, kept in agent.configuration.locations() for name in [kept["name"]]}
    agent.ledger.enter([(numbers["Other.in"], b"in/order.json", 10)])
    agent.subscriptions.subscribe_instance("Other", uuid4(), {"Region": "SE"})
    publish(agent, *[NORWAY] * 3)
    roles.create()
    mine, other = agent.configuration.hosts()["Mine"], agent.configuration.hosts()["Other"]
    with living(agent, "Other"), psycopg.connect(roles.user("Mine"), autocommit=True) as connection:
        connection.execute("SET search_path TO crossdock")
        yield Attack(connection, agent.database, mine, other)
