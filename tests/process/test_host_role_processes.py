"""A server with a user for each host, as the how-to pages set it up: real processes under their roles."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from express import rows, unbalanced
from partner import Partner, partner
from walk import Walk, expected, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

APPLICATION = """
application: orders
properties: {{OrderId: text, Region: text, Amount: decimal}}
hosts: [{{name: Receiving}}, {{name: Sending}}, {{name: Web}}]
schemas:
  - {{type: Order, format: json, promote: {{OrderId: $.id, Region: $.region, Amount: $.amount}}}}
receive_ports:
  - name: OrdersIn
    locations: [{{adapter: file, address: "in/*.json", pipeline: json, host: Receiving}}]
  - name: Ask
    two_way: true
    locations:
      - {{adapter: http, address: "http://127.0.0.1:{port}/ask", pipeline: passthrough, host: Web,
          options: {{timeout: 60}}}}
send_ports:
  - {{name: Archive, host: Sending, adapter: file, address: "out/all/%MessageID%.json", filter: MessageType = 'Order'}}
  - {{name: Line, host: Sending, ordered: true, adapter: file, address: "out/line/%MessageID%.json",
      filter: MessageType = 'Order'}}
  - {{name: Refused, host: Sending, adapter: http, address: "{partner}/refused", failed_messages: route,
      options: {{timeout: 10}}, retry: {{count: 0}}, filter: OrderId = 'o0'}}
  - {{name: Failures, host: Web, adapter: file, address: "out/failures/%MessageID%.json",
      filter: ErrorReport.SendPortName = 'Refused'}}
  - {{name: Shop, host: Sending, adapter: http, address: "{partner}/shop", filter: ReceivePortName = 'Ask',
      options: {{timeout: 10}}, response: {{pipeline: passthrough}}}}
"""
_SHUT = "secret"


class Server:
    """A database that belongs to an owner who may make roles, and users that are made as the how-to page says."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._users = [f"{name}_owner"]
        self.execute(f"CREATE ROLE {name}_owner LOGIN CREATEROLE PASSWORD '{_SHUT}'")
        self.execute(f"CREATE DATABASE {name} OWNER {name}_owner")
        self.owner = self.connection(f"{name}_owner")

    def execute(self, statement: str, database: str | None = None) -> None:
        with psycopg.connect(database or self._url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def connection(self, user: str) -> str:
        parts: dict[str, Any] = {**conninfo_to_dict(self._url), "dbname": self._name, "user": user, "password": _SHUT}
        return make_conninfo(**parts)

    def user(self, host: str) -> str:
        """A user for a host, made by the owner."""
        [(role,)] = rows(self.owner, "SELECT host_role(id) FROM host WHERE name = %s", host)
        user = f"{self._name}_{host.lower()}"
        self._users.append(user)
        self.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{_SHUT}'", self.owner)
        self.execute(f"GRANT {role} TO {user}", self.owner)
        self.execute(f"ALTER ROLE {user} SET role TO {role}", self.owner)
        return self.connection(user)

    def drop(self) -> None:
        roles: list[tuple[Any, ...]] = []
        with suppress(psycopg.errors.UndefinedTable):  # nothing was deployed
            roles = rows(self.owner, "SELECT rolname FROM pg_roles WHERE rolname IN (SELECT host_role(id) FROM host)")
        self.execute(f"DROP DATABASE {self._name} WITH (FORCE)")
        for name in [*(role for (role,) in roles), *reversed(self._users)]:
            self.execute(f"DROP ROLE {name}")


@pytest.fixture
def existing(safe_server: str) -> Iterator[Server]:
    made = Server(safe_server, f"crossdock_roles_{os.getpid()}")
    yield made
    made.drop()


@pytest.fixture
def shop() -> Iterator[Partner]:
    with partner() as made:
        made.respond = lambda request: (404, b"") if request.path == "/refused" else (200, b"answer to " + request.body)
        yield made


@pytest.fixture
def walk(folder: Path, shop: Partner) -> Iterator[tuple[Walk, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = Walk(folder)
    (folder / made.application).write_text(APPLICATION.format(port=port, partner=shop.address))
    yield made, port
    for left in made.processes():
        with suppress(psutil.NoSuchProcess):
            left.kill()


def test_hosts_work_under_their_roles_and_the_pipeline_under_the_owner(
    existing: Server, walk: tuple[Walk, int], folder: Path
) -> None:
    orders, port = walk
    deployed = orders.command("run", orders.application, "--until-idle", "--database", existing.owner)
    assert deployed.returncode == 0, deployed.stderr
    assert "WARNING" not in deployed.stderr
    sending, web = existing.user("Sending"), existing.user("Web")
    processes = [
        orders.start("pipeline", "--database", existing.owner),
        orders.start("host", "Sending", "--database", sending),
        orders.start("host", "Web", "--database", web),
    ]
    orders.put_orders(30, per_file=10)

    until(lambda: orders.delivered("all") == expected(30)[0] and orders.delivered("line") == expected(30)[0], 300)
    until(lambda: len(list((folder / "out" / "failures").glob("[!.]*"))) == 1)
    assert ask(port, b"question") == b"answer to question"
    (folder / "extra.txt").write_bytes(b"by hand")
    by_hand = orders.command("publish", "extra.txt", "--to", "Archive", "--database", web, "-o", "json")
    unwanted = orders.command("publish", "extra.txt", "--database", web, "-o", "json")
    refused = orders.command("host", "Sending", "--database", web)
    asked = orders.command("get", "ports", "--database", web)
    until(lambda: len(list((folder / "out" / "all").glob("[!.]*"))) == 31)

    assert (by_hand.returncode, json.loads(by_hand.stdout)[0]["references"]) == (0, 1)
    assert (unwanted.returncode, json.loads(unwanted.stdout)[0]["result"]) == (3, "unrouted")
    assert (
        "nobody wants" in json.loads(unwanted.stdout)[0]["reason"]
        or "no type" in json.loads(unwanted.stdout)[0]["reason"]
    )
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "may not work for host 'Sending': make it a member of the role crossdock_" in refused.stderr
    assert (asked.returncode, asked.stderr.count("\n"), "Traceback" in asked.stderr) == (1, 1, False)
    assert "permission denied" in asked.stderr
    assert [stopped(process) for process in processes] == [0, 0, 0]
    assert "Traceback" not in orders.errors()
    assert "ERROR" not in orders.errors()
    assert unbalanced(existing.owner) == []
    received = "SELECT sum(received) FROM (SELECT received FROM publication WHERE NOT counted UNION ALL SELECT received FROM publication_total) AS done"
    assert rows(existing.owner, received) == [(31,)]


def test_owner_who_may_not_make_roles_is_told_so_and_everything_else_works(
    existing: Server, walk: tuple[Walk, int]
) -> None:
    orders, _ = walk
    existing.execute(f"ALTER ROLE {conninfo_to_dict(existing.owner)['user']} NOCREATEROLE")
    orders.put_orders(3)

    run = orders.command("run", orders.application, "--until-idle", "--database", existing.owner)

    warnings = [line for line in run.stderr.splitlines() if " WARNING: " in line]
    assert len([line for line in warnings if "role" in line]) == 1
    assert "may not create roles" in run.stderr
    assert "ALTER ROLE" in run.stderr
    assert orders.delivered("all") == expected(3)[0]


def ask(port: int, body: bytes) -> bytes:
    answer = b""

    def asked() -> bool:
        nonlocal answer
        with suppress(OSError), urlopen(Request(f"http://127.0.0.1:{port}/ask", data=body), timeout=60) as response:
            answer = response.read()
        return answer != b""

    until(asked)
    return answer


def stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(60)
