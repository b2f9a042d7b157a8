"""Every page times every role: nobody sees or does with a browser what its role may not."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import RouteContext, iter_route_contexts

import databases
from console_box import Seeded, seeded
from crossdock.console.pages import install
from crossdock.messagebox.agent import Agent
from served import SAME_ORIGIN, Served, served

OPEN = {
    "/health",
    "/sign-in",
    "/session",
    "/session/end",
    "/session/oidc",
    "/session/oidc/back",
    "/problems/{code}",
    "/",
}
FORMS = {
    "/suspended/preview": {"action": "resume"},
    "/suspended/execute": {"token": "none"},
    "/ports/act": {"name": "Plain", "verb": "start"},
    "/plan": {"text": "application: none"},
    "/plan/apply": {
        "text": "application: none",
        "epoch": "1",
        "epoch_token": "00000000-0000-8000-8000-000000000000",
        "digest": "none",
    },
    "/views": {"name": "Mine", "query": "?type=Order"},
    "/views/delete": {"name": "Mine"},
    "/suspended/{id_}/edit": {"port": "Stopped", "act": "compare", "body": "x"},
}
# What is refused to each role: (method, path). All other pages answer.
READS_BODIES = {
    ("GET", "/messages/{id_}/parts"),
    ("GET", "/messages/{id_}/parts/{name:path}"),
    ("GET", "/suspended/{id_}/edit"),
    ("POST", "/suspended/{id_}/edit"),
    ("POST", "/suspended/save"),
}
DEPLOYS = {("POST", "/plan"), ("POST", "/plan/apply")}
ACTS = {
    ("POST", "/suspended/preview"),
    ("POST", "/operations/{id_}/cancel"),
    ("POST", "/ports/act"),
    ("POST", "/instances/{id_}/{verb}"),
}
REFUSED = {
    "viewer": READS_BODIES | DEPLOYS | ACTS,
    "operator": READS_BODIES | DEPLOYS,
    "administrator": set(),
}


@pytest.fixture(scope="module")
def console(server: str, template: str) -> Iterator[tuple[Served, Seeded]]:
    database = databases.create(server, "crossdock_pages", template)
    try:
        with Agent(database) as agent, served(database, install=install) as made:
            yield made, seeded(agent)
    finally:
        databases.drop(server, "crossdock_pages")


def pages(made: Served) -> list[tuple[str, str]]:
    """(method, path) of every page; `/` stays out where nobody is signed in, as it takes the token of the address."""
    found: list[RouteContext] = list(iter_route_contexts(made.app.routes))
    return sorted(
        (method, str(each.path))
        for each in found
        for method in each.methods or ()
        if method in ("GET", "POST") and not str(each.path).startswith(("/api/", "/static"))
    )


def answer(client: httpx.Client, method: str, path: str, box: Seeded) -> httpx.Response:
    id_ = box.instance if path.startswith("/instances") else box.suspended
    address = path.replace("{id_}", id_).replace("{verb}", "resume").replace("{name:path}", "body")
    return client.request(method, address, data=FORMS.get(path, {}), headers=SAME_ORIGIN)


def test_nobody_who_is_not_signed_in_sees_a_page(console: tuple[Served, Seeded]) -> None:
    made, box = console

    with made.client() as client:
        for method, path in pages(made):
            if path in OPEN:
                continue
            response = answer(client, method, path, box)
            assert response.status_code == 303, (method, path)
            assert response.headers["location"].startswith("/sign-in"), (method, path)


@pytest.mark.parametrize("role", list(REFUSED))
def test_a_role_is_refused_what_the_table_says_and_nothing_fails(console: tuple[Served, Seeded], role: str) -> None:
    made, box = console

    with made.as_role(role) as client:
        refused = set()
        for method, path in pages(made):
            status = answer(client, method, path, box).status_code
            assert status < 500, (method, path, status)
            if status == 403:
                refused.add((method, path))

    assert refused == REFUSED[role]


def test_refusal_is_a_page_with_the_sentence(console: tuple[Served, Seeded]) -> None:
    made, _ = console

    with made.as_role("viewer", "edit") as client:
        response = client.post("/ports/act", data={"name": "Plain", "verb": "stop"}, headers=SAME_ORIGIN)

    assert response.status_code == 403
    assert "You may not do this" in response.text
    assert "operator" in response.text


def test_page_of_somebody_else_cannot_act(console: tuple[Served, Seeded]) -> None:
    made, _ = console

    with made.as_role("administrator", "bodies") as client:
        foreign = {"sec-fetch-site": "cross-site"}
        response = client.post("/ports/act", data={"name": "Plain", "verb": "stop"}, headers=foreign)

    assert response.status_code == 403


def test_pages_say_what_browsers_may_load(console: tuple[Served, Seeded]) -> None:
    made, box = console

    with made.as_role("administrator", "edit") as client:
        page = client.get("/messages")
        part = client.get(f"/messages/{box.suspended}/parts/body")

    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert part.headers["content-disposition"].startswith("attachment")
    assert part.headers["content-type"] == "application/octet-stream"
    assert part.headers["x-content-type-options"] == "nosniff"
