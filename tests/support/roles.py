"""The database roles of hosts, and users who have them, for tests."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from crossdock.messagebox.agent import Agent


class Roles:
    """Makes the roles of all hosts, opens agents that act as one, and takes the roles away again."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._opened: list[Agent] = []
        self.names: dict[str, str] = {}

    def create(self) -> None:
        self.names = dict(zip(self._agent.configuration.hosts(), self._agent.box.create_host_roles(), strict=True))

    def acting_as(self, host: str) -> Agent:
        made = Agent(make_conninfo(self._agent.database, options=f"-crole={self.names[host]}"))
        self._opened.append(made)
        return made

    def user(self, host: str) -> str:
        """The connection string of a user who is a member of the role of a host, and of nothing else."""
        name = f"{self.names[host]}_user"
        with psycopg.connect(self._agent.database, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
            connection.execute(f"GRANT {self.names[host]} TO {name}".encode())
        return make_conninfo(self._agent.database, user=name, password="secret")

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
