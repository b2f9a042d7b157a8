"""The role of authors: whoever has the role of a host does not become it, nor puts triggers on what authors write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from crossdock.messagebox.agent import Agent
from crossdock.messagebox.statement import statement
from express import rows
from roles import Roles, roles
from running import clean, deploy, engine, message, publish, run, sent, settled

__all__ = ["roles"]

ATOMIC = """
out = Port("Out")

def charge(connection, card):
    connection.execute("INSERT INTO public.charge VALUES (%s)", [card])
    return connection.execute("SELECT current_user::text").fetchone()[0]

@orchestration(Receive("Order"))
async def pay(process: Process, order: Message) -> None:
    done = await process.atomic(charge, order["OrderId"])
    await process.send(out, process.message("Note", {"id": "x", "amount": 0, "done": done}))
"""
TRIGGER = """
CREATE FUNCTION pg_temp.take() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('role', 'none', true);
    UPDATE crossdock.property SET personal = true;
    RETURN NEW;
END $$;
CREATE TRIGGER take BEFORE INSERT ON public.charge FOR EACH ROW EXECUTE FUNCTION pg_temp.take();
"""


@dataclass
class Shop:
    """An orchestration whose atomic work writes a table of its own. `author` is the role that may write there."""

    author: str


@pytest.fixture
def shop(agent: Agent, folder: Path, roles: Roles, database: str) -> Iterator[Shop]:
    deploy(agent, folder, ATOMIC, "pay")
    roles.create()
    [(number,)] = rows(database, "SELECT to_hex(number) FROM box")
    made = Shop(f"crossdock_{number}_code")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.charge (card text)")
        connection.execute(f"GRANT ALL ON public.charge TO {made.author}".encode())
    yield made
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP TABLE public.charge")


def test_whoever_has_the_role_of_a_host_runs_no_code_in_the_session_of_the_owner(
    agent: Agent, shop: Shop, roles: Roles, database: str
) -> None:
    with psycopg.connect(roles.user("Default"), autocommit=True) as attacker:
        for attack in (f"SET ROLE {shop.author}", TRIGGER, "INSERT INTO public.charge VALUES ('forged')"):
            with pytest.raises(InsufficientPrivilege):
                attacker.execute(attack.encode())
        publish(agent, message(agent, "Order", "a"))
        run(agent)

    assert [each["done"] for _, each in sent(agent)] == [shop.author]
    assert rows(database, "SELECT name FROM property WHERE personal") == []
    clean(agent)


def test_membership_that_an_older_version_gave_to_hosts_is_taken_back(
    agent: Agent, shop: Shop, roles: Roles, database: str
) -> None:
    role = roles.names["Default"]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"GRANT {shop.author} TO {role}".encode())

    agent.box.create_host_roles()

    assert rows(database, "SELECT pg_has_role(%s, %s, 'MEMBER')", role, shop.author) == [(False,)]


@pytest.mark.usefixtures("shop")
def test_atomic_work_under_the_role_of_a_host_has_the_rights_of_that(agent: Agent, roles: Roles, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"GRANT INSERT ON public.charge TO {roles.names['Default']}".encode())
    publish(agent, message(agent, "Order", "a"))

    with Agent(roles.user("Default")) as acting, engine(acting):
        settled(agent)

    assert [each["done"] for _, each in sent(agent)] == [f"{roles.names['Default']}_user"]
    clean(agent)


@pytest.fixture
def plain_owner(empty_database: str) -> Iterator[str]:
    """The connection string of an owner that is no superuser, and may create roles."""
    name = f"crossdock_owner_{uuid4().hex[:8]}"
    with psycopg.connect(empty_database, autocommit=True) as connection:
        user, place = connection.info.user, connection.info.dbname
        connection.execute(f"CREATE ROLE {name} LOGIN CREATEROLE PASSWORD 'secret'".encode())
        connection.execute(f"ALTER DATABASE {place} OWNER TO {name}".encode())
    yield make_conninfo(empty_database, user=name, password="secret")
    made = (
        "SELECT rolname FROM pg_roles, crossdock.box WHERE starts_with(rolname, format('crossdock_%%s_', to_hex(number)))"
        " UNION ALL SELECT %s"
    )
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {place} OWNER TO {user}".encode())
        for (role,) in connection.execute(made.encode(), [name]).fetchall():
            connection.execute(f"DROP OWNED BY {role} CASCADE".encode())
            connection.execute(f"DROP ROLE {role}".encode())


def test_owner_that_is_no_superuser_becomes_the_role_of_authors(plain_owner: str) -> None:
    with Agent(plain_owner) as agent:
        agent.box.create()
        agent.box.create_host_roles()
        agent.box.create_host_roles()

        with psycopg.connect(plain_owner, options="-csearch_path=crossdock") as connection:
            connection.execute(statement("become_author").encode(), {})
            [(role, path)] = connection.execute("SELECT current_user::text, current_schemas(false)::text").fetchall()

    assert role.endswith("_code")
    assert path == "{public}"
