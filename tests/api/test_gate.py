"""Who comes in: each way to sign in, wrong credentials, foreign pages and foreign names."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import psycopg
import pytest

from console_box import Seeded
from console_fixtures import box, console
from crossdock.administration.service import Administration
from crossdock.api.credentials import hash_password
from crossdock.api.options import AccessOptions, read_address
from crossdock.api.sessions import LIFETIME_SECONDS, Sessions
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from served import SAME_ORIGIN, Served, served

__all__ = ["box", "console"]

ME = "/api/v1/me"


def cookie_of(response: httpx.Response) -> dict[str, str]:
    name, _, value = response.headers["set-cookie"].partition(";")[0].partition("=")
    return {"cookie": f"{name}={value}"}


def test_the_one_time_token_signs_in_once_as_whoever_runs_the_console(database: str) -> None:
    with served(database, AccessOptions(one_time_token="once")) as made, made.client() as client:
        first = client.get("/?token=once")
        again = made.client().get("/?token=once")
        me = client.get(ME, headers=cookie_of(first)).json()

    assert (first.status_code, first.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(first.headers["set-cookie"].split("; "))
    assert again.headers["location"].startswith("/sign-in?problem=not-signed-in")
    assert me["administrator"]
    assert me["via"] == "session"


def test_whoever_signs_out_is_out(database: str) -> None:
    with served(database, AccessOptions(one_time_token="once")) as made, made.client() as client:
        cookie = cookie_of(client.get("/?token=once"))
        before = client.get(ME, headers=cookie).status_code
        client.post("/session/end", headers={**cookie, **SAME_ORIGIN})

        assert (before, client.get(ME, headers=cookie).status_code) == (200, 401)


def test_a_session_ends_after_twelve_hours() -> None:
    now = 0.0
    sessions = Sessions(clock=lambda: now)
    cookie = sessions.begin("ann", None)

    assert sessions.find(cookie) is not None
    now = LIFETIME_SECONDS + 1.0
    assert sessions.find(cookie) is None


def test_an_api_token_is_sent_as_a_bearer_and_shown_nowhere(console: Served, agent: Agent) -> None:
    token = console.token("script", "viewer", "bodies", application="orders")

    with console.client(token) as client:
        me = client.get(ME).json()

    assert me == {
        "person": "token script",
        "via": "token",
        "administrator": False,
        "rights": ["bodies:orders", "viewer"],
    }
    [row] = Administration(agent, text_limit=256).tokens.list()
    assert (row.name, row.expired, row.last_used_at is not None) == ("script", False, True)
    assert token not in repr(row)


def test_a_revoked_token_is_nobodys_and_the_session_that_it_began_ends(console: Served, agent: Agent) -> None:
    token = console.token("script", "viewer")
    with console.client() as client:
        cookie = cookie_of(client.post("/session", data={"token": token, "next": "/ports"}))
        before = client.get(ME, headers=cookie).status_code
        Administration(agent, text_limit=256).tokens.revoke("script")
        after = [client.get(ME, headers=each).status_code for each in (cookie, {"authorization": f"Bearer {token}"})]

    assert (before, after) == (200, [401, 401])


def test_an_expired_token_is_nobodys(console: Served, agent: Agent, database: str) -> None:
    made = Administration(agent, text_limit=256).tokens.create("short", "viewer", expires="1s")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE crossdock.api_token SET expires_at = crossdock.clock() - interval '1 second'")

    with console.client(made.token) as client:
        assert client.get(ME).status_code == 401


def test_users_of_a_file_sign_in_with_their_passwords(database: str, folder: Path) -> None:
    file = folder / "users"
    file.write_text(
        f"# people\nann operator {hash_password('right')}\nbo viewer,bodies:orders {hash_password('other')}\n"
    )
    basic = {"authorization": "Basic " + base64.b64encode(b"ann:right").decode()}
    wrong = {"authorization": "Basic " + base64.b64encode(b"ann:other").decode()}

    with served(database, AccessOptions(passwords=file)) as made, made.client() as client:
        me = client.get(ME, headers=basic).json()
        again = client.get(ME, headers=basic).json()
        cookie = cookie_of(client.post("/session", data={"user": "bo", "password": "other"}))
        bo = client.get(ME, headers=cookie).json()
        refused = client.get(ME, headers=wrong)

    assert me == again == {"person": "ann", "via": "password", "administrator": False, "rights": ["operator", "viewer"]}
    assert bo["rights"] == ["bodies:orders", "viewer"]
    assert refused.status_code == 401


def test_a_listed_proxy_names_people_who_have_a_role(database: str) -> None:
    options = AccessOptions(proxies=("127.0.0.1",), user_header="X-Forwarded-User", roles={"ann": "operator"})

    with served(database, options) as made, made.client() as client:
        ann = client.get(ME, headers={"x-forwarded-user": "ann"}).json()
        bo = client.get(ME, headers={"x-forwarded-user": "bo"})
        nobody = client.get(ME)

    assert (ann["person"], ann["via"], ann["rights"]) == ("ann", "proxy", ["operator", "viewer"])
    assert (bo.status_code, nobody.status_code) == (403, 401)
    assert "'bo' has no role here" in bo.json()["detail"]


def test_the_header_of_a_proxy_that_is_not_listed_is_nothing(database: str) -> None:
    options = AccessOptions(proxies=("127.0.0.2",), user_header="X-Forwarded-User", roles={"*": "administrator"})

    with served(database, options) as made, made.client() as client:
        assert client.get(ME, headers={"x-forwarded-user": "ann"}).status_code == 401


def test_whoever_guesses_has_to_wait_and_is_not_let_in_meanwhile_by_the_right_password(
    database: str, folder: Path
) -> None:
    passwords = folder / "passwords"
    passwords.write_text(f"ann viewer {hash_password('secret')}\n")
    with served(database, AccessOptions(passwords=passwords)) as made, made.client() as client:
        wrong = {"authorization": "Bearer wrong"}  # which is looked up much quicker than a password
        answers = [client.get(ME, headers=wrong) for _ in range(15)]
        right = client.get(ME, auth=("ann", "secret"))

    assert answers[0].status_code == 401
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert right.status_code == 429


FOREIGN: tuple[dict[str, str], ...] = (
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {},
)


def test_a_foreign_page_cannot_act_with_the_cookie_of_a_person(database: str, box: Seeded) -> None:
    with served(database, AccessOptions(one_time_token="once")) as made, made.client() as client:
        cookie = cookie_of(client.get("/?token=once"))
        foreign = [client.post("/api/v1/ports/Plain/stop", headers={**cookie, **headers}) for headers in FOREIGN]
        states = [port.state for port in box.agent.configuration.list_ports() if port.name == "Plain"]
        own = client.post("/api/v1/ports/Plain/stop", headers={**cookie, "origin": made.url})

    assert {(each.status_code, each.json()["code"]) for each in foreign} == {(403, "foreign-page")}
    assert states == ["started"]
    assert own.status_code == 200


def test_a_console_is_known_by_its_own_names_only(console: Served) -> None:
    with console.client() as client:
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8400", ""):
            assert client.get("/health", headers={"host": name}).status_code in (400, 421)


def test_every_answer_tells_browsers_to_be_careful(console: Served) -> None:
    with console.client() as client:
        for path in ("/health", ME, "/api/v1/openapi.json", "/nowhere"):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
            assert headers["cache-control"] == "no-store"


def test_a_request_that_is_too_large_is_refused_before_it_is_read(console: Served) -> None:
    with console.as_role("administrator") as client:
        announced = client.post("/api/v1/messages", content=b"x" * (16 * 1024 * 1024 + 1))
        streamed = client.post("/api/v1/messages", content=(b"x" * 1024 * 1024 for _ in range(17)))

    assert (announced.status_code, streamed.status_code) == (413, 413)


@pytest.mark.parametrize(
    "options",
    [
        AccessOptions(host="10.0.0.1"),
        AccessOptions(host="0.0.0.0", tokens=True),  # noqa: S104
        AccessOptions(proxies=("127.0.0.1",)),
        AccessOptions(user_header="X-User"),
        AccessOptions(proxies=("127.0.0.1",), user_header="X-User"),
        AccessOptions(proxies=("nowhere",), user_header="X-User", roles={"*": "viewer"}),
    ],
)
def test_a_console_that_people_could_reach_without_signing_in_does_not_start(options: AccessOptions) -> None:
    with pytest.raises(UsageError):
        options.check()


def test_an_address_is_read() -> None:
    assert read_address("127.0.0.1:9000") == ("127.0.0.1", 9000)
    assert read_address(":9000") == ("127.0.0.1", 9000)
    assert read_address("localhost") == ("localhost", 8400)
    assert read_address("[::1]:9000") == ("::1", 9000)
    for wrong in ("localhost:http", "x", "10.255.255.1", "x:", "[fe80::1]", ""):
        with pytest.raises(UsageError, match="write HOST:PORT"):
            read_address(wrong)


def test_signing_in_goes_on_at_a_page_of_ours(console: Served) -> None:
    token = console.token("script", "viewer")
    with console.client() as client:
        for target in ("//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil", ""):
            assert (
                client.post("/session", data={"token": token, "next": target}, headers=SAME_ORIGIN).headers["location"]
                == "/"
            )
        own = client.post("/session", data={"token": token, "next": "/ports?a=b"}, headers=SAME_ORIGIN)

    assert own.headers["location"] == "/ports?a=b"
