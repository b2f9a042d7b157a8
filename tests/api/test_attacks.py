"""Somebody who is not signed in, or has few rights, neither exhausts the console, nor keeps others out, nor finds a token."""

from __future__ import annotations

import pytest
from fastapi.routing import RouteContext, iter_route_contexts

from console_fixtures import box, console
from crossdock.api.app import API
from crossdock.api.guarded import SMALL_BYTES, Guarded
from crossdock.api.options import AccessOptions
from crossdock.api.safety import SAFE_METHODS, SIZE_LIMIT_BYTES
from crossdock.api.sessions import Sessions
from crossdock.console.pages import install
from express import rows
from served import SAME_ORIGIN, Served, served

__all__ = ["box", "console"]

ME, PLAN = f"{API}/me", f"{API}/plan"
JSON = {"content-type": "application/json"}


def test_nobody_has_a_body_read_before_it_is_known_who_asks(console: Served) -> None:
    with console.client() as client:
        unknown = client.post(PLAN, content=b"[", headers=JSON)

    assert unknown.status_code == 401


def test_every_route_that_takes_a_body_knows_who_asks_first(database: str) -> None:
    with served(database, install=install) as made:
        every: list[RouteContext] = list(iter_route_contexts(made.app.routes))
    changing = [
        each for each in every if (each.methods or set()) - SAFE_METHODS and not str(each.path).startswith("/session")
    ]

    assert len(changing) > 30
    assert [each.path for each in changing if not isinstance(each.original_route, Guarded)] == []


@pytest.mark.parametrize(("role", "status"), [("viewer", 413), ("operator", 413), ("administrator", 422)])
def test_only_who_may_need_it_sends_a_large_body(console: Served, role: str, status: int) -> None:
    with console.as_role(role) as client:
        at_once = client.post(PLAN, content=b"[" + b"1," * SMALL_BYTES + b"1]", headers=JSON)
        in_pieces = client.post(PLAN, content=iter([b"["] + [b"1," * 1024] * 1024 + [b"1]"]), headers=JSON)

    assert (at_once.status_code, in_pieces.status_code) == (status, status)


def test_signing_in_takes_a_small_form(console: Served) -> None:
    with console.client() as client:
        assert client.post("/session", data={"token": "x" * 100_000}, headers=SAME_ORIGIN).status_code == 413
        assert client.post(PLAN, content=b"x" * (SIZE_LIMIT_BYTES + 1), headers=JSON).status_code == 413


def test_wrong_credentials_of_one_address_keep_out_nobody_who_has_a_token(console: Served) -> None:
    """Behind a proxy all people have one address."""
    token = console.token("right", "viewer")
    with console.client() as client:
        wrong = [client.get(ME, headers={"authorization": "Bearer wrong"}).status_code for _ in range(15)]
        right = client.get(ME, headers={"authorization": f"Bearer {token}"})
        by_form = client.post("/session", data={"token": token}, headers=SAME_ORIGIN)

    assert (wrong[0], wrong[-1]) == (401, 429)
    assert right.status_code == 200
    assert by_form.headers["location"] == "/"


def test_link_with_an_api_token_signs_nobody_in(console: Served) -> None:
    token = console.token("mallory", "viewer")
    with console.client() as client:
        followed = client.get(f"/?token={token}")

    assert followed.headers["location"].startswith("/sign-in?problem=not-signed-in")
    assert "set-cookie" not in followed.headers


def test_new_token_is_kept_nowhere_though_its_request_has_a_key(console: Served) -> None:
    key = {"idempotency-key": "once"}
    with console.as_role("administrator") as client:
        first = client.post(f"{API}/tokens", json={"name": "new", "role": "viewer"}, headers=key)
        again = client.post(f"{API}/tokens", json={"name": "new", "role": "viewer"}, headers=key)

    assert (first.status_code, again.status_code, again.json()["code"]) == (201, 409, "shown-once")
    [(kept,)] = rows(console.database, "SELECT content FROM api_answer")
    assert bytes(kept) == b""


@pytest.mark.parametrize("host", ["[::1", "evil.example@127.0.0.1", "127.0.0.1:99999x@127.0.0.1", ""])
def test_host_that_no_browser_asks_for_is_refused(console: Served, host: str) -> None:
    with console.client() as client:
        assert client.get("/sign-in", headers={"host": host}).status_code == 421


def test_who_signs_in_again_and_again_signs_nobody_else_out() -> None:
    sessions = Sessions()
    ann = sessions.begin("ann", None)
    first = sessions.begin("mallory", frozenset({"viewer"}))

    others = [sessions.begin("mallory", frozenset({"viewer"})) for _ in range(20_000)]

    assert sessions.find(ann) is not None
    assert sessions.find(first) is None
    assert sessions.find(others[-1]) is not None


def test_proxy_that_is_not_listed_names_nobody(database: str) -> None:
    access = AccessOptions(proxies=("10.9.9.9",), user_header="x-user", roles={"*": "administrator"})
    with served(database, access) as made, made.client() as client:
        forged = {"x-user": "ann", "x-forwarded-for": "10.9.9.9", "forwarded": "for=10.9.9.9"}
        assert client.get(ME, headers=forged).status_code == 401
