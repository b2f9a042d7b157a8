"""Every route times every role: what each role may do, and that nobody without one gets anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import RouteContext, iter_route_contexts

import databases
from console_box import Seeded, seeded
from crossdock.api.app import API
from crossdock.messagebox.agent import Agent
from served import Served, served
from who_may import ALLOWED, ROLES

BODIES: dict[str, dict[str, Any]] = {
    "preview": {"action": "resume", "everything": True},
    "execute": {"token": "none"},
    "edit": {"properties": ["Region=NO"]},
    "publish": {"body": "aGVsbG8=", "to": "Nobody"},
    "erase": {"where": "Region = 'NO'"},
    "plan": {"yaml": "application: none"},
    "apply": {"yaml": "nothing"},
    "try_filter": {"filter": "Region = 'NO'", "port": "Plain"},
    "grant": {"database_user": "nobody", "access": "viewer"},
    "revoke": {"database_user": "nobody", "access": "viewer"},
    "save_view": {"query": "type=Order"},
    "create_token": {"name": "x", "role": "viewer", "application": "nowhere"},
}


@pytest.fixture(scope="module")
def console(server: str, template: str) -> Iterator[tuple[Served, Seeded]]:
    database = databases.create(server, "crossdock_matrix", template)
    try:
        with Agent(database) as agent, served(database) as made:
            yield made, seeded(agent)
    finally:
        databases.drop(server, "crossdock_matrix")


def routes(made: Served) -> list[RouteContext]:
    return [each for each in iter_route_contexts(made.app.routes) if str(each.path).startswith(f"{API}/")]


def asked(client: httpx.Client, route: RouteContext, box: Seeded) -> int:
    """The status that it answers with. Acts are asked of things that are there, where that changes nothing for others."""
    id_ = box.instance if "/instances/" in str(route.path) else box.suspended
    path = (
        str(route.path)
        .replace("{id}", id_)
        .replace("{verb}", "start")
        .replace("{name:path}", "body" if "/parts/" in str(route.path) else "Plain")
    )
    method = next(iter(route.methods or []))
    with client.stream(method, path, json=BODIES.get(route.operation_id or "")) as response:
        return response.status_code


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_table_says_and_nothing_else(console: tuple[Served, Seeded], role: str) -> None:
    made, box = console
    answers = {}
    with made.as_role(*ROLES[role]) as client:
        for route in routes(made):
            if route.operation_id:
                answers[route.operation_id] = asked(client, route, box)

    assert answers.keys() == ALLOWED.keys()
    refused = {name for name, status in answers.items() if status == 403}
    assert refused == {name for name, roles in ALLOWED.items() if role not in roles}
    assert {name: status for name, status in answers.items() if status in (401, 405) or status >= 500} in (
        {},
        {"sample": 503},  # nobody has looked at this MessageBox
    )


def test_nobody_gets_anything_without_signing_in(console: tuple[Served, Seeded]) -> None:
    made, box = console

    with made.client() as client:
        answers = {route.operation_id: asked(client, route, box) for route in routes(made) if route.operation_id}

    assert set(answers.values()) == {401}


def test_every_route_asks_for_a_person_except_the_description_of_the_api(console: tuple[Served, Seeded]) -> None:
    made, _ = console

    assert [each.path for each in routes(made) if not each.operation_id] == [f"{API}/openapi.json"]
