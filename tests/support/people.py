"""Users of the server with rights, for one application or for all, in a MessageBox with two applications."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from box import PROPERTIES, an_orchestration
from crossdock.message.property import PropertyType
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from express import deploy, port, rows
from roles import Roles, roles

__all__ = ["MINE", "THEIRS", "User", "roles", "user"]

MINE, THEIRS = {"Region": "Mine"}, {"Region": "Theirs"}
User = Callable[..., str]


@pytest.fixture
def user(agent: Agent, roles: Roles) -> User:  # noqa: ARG001 - it drops the users as well
    """Makes the connection string of a user who has these rights."""
    deploy(agent, port("Mine", "Region = 'Mine'"), application="mine")
    flows = [an_orchestration("Flow", "Region = 'IN'")]
    ports = [port("Theirs", "Region = 'Theirs'", track="bodies")]
    properties = {**PROPERTIES, "Customer": PropertyType.TEXT}
    agent.subscriptions.deploy(
        Deployment("theirs", properties, [], ports, {"Default": ()}, orchestrations=flows, personal=["Customer"])
    )
    [(box,)] = rows(agent.database, "SELECT to_hex(number) FROM box")

    def made(*rights: tuple[str, str | None]) -> str:
        name = f"crossdock_{box}_user_{uuid4().hex[:8]}"
        with psycopg.connect(agent.database, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
        for right, application in rights:
            agent.access.grant(right, name, application)
        return make_conninfo(agent.database, user=name, password="secret")

    return made
