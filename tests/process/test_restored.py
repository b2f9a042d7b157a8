"""A MessageBox that goes back in time or becomes two: ids are not given twice, and a partner gets every new message once."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import URL

from copies import Copies, Open, new_database
from crossdock.adapter.file.adapter import file_identity
from crossdock.dataflow.worker import Worker
from crossdock.messagebox.agent import Agent
from office import Office
from walk import Walk, until

pytestmark = pytest.mark.process

# A sequence that is recovered from the log goes on up to 32 numbers later.
MANY = 40
APPLICATION = {
    "application": "shop",
    "properties": {"Region": "text"},
    "schemas": [{"type": "Order", "format": "json", "promote": {"Region": "$.region"}}],
    "receive_ports": [{"name": "In", "locations": [{"adapter": "file", "address": "in/*.json", "pipeline": "json"}]}],
}


@contextmanager
def server_with_copies(folder: Path) -> Iterator[Copies]:
    with ExitStack() as stack:
        yield Copies(folder, stack)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copies]:
    with server_with_copies(tmp_path_factory.mktemp("copies")) as made:
        yield made


@pytest.fixture
def origin(copies: Copies, request: pytest.FixtureRequest) -> Iterator[str]:
    with new_database(copies.server, f"box_{abs(hash(request.node.nodeid)) % 10**8}") as made:
        with Agent(made) as agent:
            agent.box.create()
        yield made


class Shop:
    """A partner with a database: what arrived, as often as it did."""

    def __init__(self, database: str) -> None:
        self._database = database
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("CREATE TABLE arrived (message uuid, body text)")

    @property
    def address(self) -> str:
        place = {name: str(value) for name, value in conninfo_to_dict(self._database).items()}
        return URL.create("postgresql", database=place.pop("dbname"), query=place).render_as_string(hide_password=False)

    def arrived(self) -> Counter[str]:
        with psycopg.connect(self._database) as connection:
            return Counter(body for (body,) in connection.execute("SELECT body FROM arrived"))

    def ids(self) -> set[str]:
        with psycopg.connect(self._database) as connection:
            return {str(id_) for (id_,) in connection.execute("SELECT DISTINCT message FROM arrived")}


@pytest.fixture
def shop(server: str) -> Iterator[Shop]:
    with new_database(server, f"shop_{os.getpid()}") as made:
        yield Shop(made)


def application(shop: Shop) -> dict[str, Any]:
    """From files to the shop."""
    options = {"statement": "INSERT INTO arrived VALUES (:MessageID, :Body)"}
    port = {"name": "Shop", "adapter": "sql", "address": shop.address, "filter": "EXISTS(Region)", "options": options}
    return {**APPLICATION, "send_ports": [port]}


def work(database: str, folder: Path, shop: Shop, name: str) -> None:
    """New processes list, read, publish and deliver: files, and what running code publishes."""
    (folder / "in").mkdir(exist_ok=True)
    office = Office(database, folder, application(shop))
    with office.agent as agent, office.open():
        [(location, _, _)] = agent.configuration.locations()
        files = [folder / "in" / f"{name}-{number}.json" for number in range(MANY)]
        for file in files:
            file.write_text(f'{{"region": "{file.stem}"}}')
        agent.ledger.enter([(location, file_identity(file), file.stat().st_size) for file in files])
        list(Worker(agent).receive(agent.ledger.read(0, 2**62)))
        for number in range(MANY):
            office.publish(f"{name} by code {number}", Region="NO")
        office.settled()


def bodies(*names: str) -> Counter[str]:
    made = [
        [f'{{"region": "{name}-{number}"}}', f"{name} by code {number}"] for name in names for number in range(MANY)
    ]
    return Counter(body for pair in made for body in pair)


WAYS: dict[str, Callable[[Copies, str, str], Open]] = {
    "cold copy": lambda copies, origin, _: copies.cold_copy(origin),
    "base backup": lambda copies, origin, _: copies.base_backup(origin),
    "point in time": lambda copies, origin, _: copies.point_in_time(origin),
    "template": lambda copies, origin, _: copies.template(origin),
    "dump": lambda copies, origin, other: copies.dump(origin, into=other),
}


@pytest.mark.parametrize("way", WAYS)
def test_copy_gives_new_ids_and_its_partner_gets_every_message_once(
    copies: Copies, origin: str, empty_database: str, shop: Shop, folder: Path, way: str
) -> None:
    work(origin, folder, shop, "before")
    opened = WAYS[way](copies, origin, empty_database)
    work(origin, folder, shop, "original")
    copy = opened()

    work(copy, folder, shop, "copy")

    assert shop.arrived() == bodies("before", "original", "copy")
    assert len(shop.ids()) == 6 * MANY


def test_running_process_goes_on_with_a_standby_that_had_not_followed(shop: Shop, folder: Path) -> None:
    walk = Walk(folder / "walk")
    (walk.folder / walk.application).write_text(json.dumps(application(shop)))
    with server_with_copies(folder) as copies:
        follower = str(copies.folder / "copy-0" / "postgres" / "data")
        either = make_conninfo(
            copies.server, host=f"{copies.origin.data},{follower}", target_session_attrs="read-write"
        )
        walk.environment["CROSSDOCK_DATABASE"] = either
        process = walk.start("run", walk.application)
        try:
            receive(walk, shop, "before")
            standby = copies.standby()
            receive(walk, shop, "original")
            copies.fail_over(standby)

            receive(walk, shop, "standby")

            names = ("before", "original", "standby")
            assert shop.arrived() == Counter(f'{{"region": "{name}-{n}"}}' for name in names for n in range(MANY))
            assert len(shop.ids()) == 3 * MANY
        finally:
            process.terminate()
            process.communicate(timeout=60)


def receive(walk: Walk, shop: Shop, name: str) -> None:
    """New files; wait until all of them have arrived and been removed."""
    before = shop.arrived().total()
    for number in range(MANY):
        walk.put(f"{name}-{number}.json", f'{{"region": "{name}-{number}"}}'.encode())
    until(lambda: shop.arrived().total() >= before + MANY and not list((walk.folder / "in").iterdir()), 240)
