"""Signing in by OpenID Connect, at a real provider; and everything that a token must not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any

import httpx
import pytest
from joserfc.jwk import OctKey, RSAKey

from crossdock.api.oidc import Provider
from crossdock.api.options import AccessOptions, OidcOptions
from crossdock.errors import UsageError
from oidc_provider import CLIENT, SECRET, OidcProvider, oidc_provider
from served import Served, served

ME = "/api/v1/me"


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as made:
        yield made


@pytest.fixture
def signing(database: str, provider: OidcProvider) -> Iterator[Served]:
    oidc = OidcOptions(provider.issuer, CLIENT, SECRET)
    roles = {"ann@example.com": "operator"}
    with served(database, AccessOptions(oidc=oidc, roles=roles)) as made:
        yield made


def signed_in(client: httpx.Client, target: str = "/ports") -> httpx.Response:
    """What the browser is answered when it comes back."""
    to = client.get("/session/oidc", params={"next": target})
    assert to.status_code == 303
    back = httpx.get(to.headers["location"], trust_env=False, timeout=60)
    return client.get(back.headers["location"])


def test_somebody_whom_the_provider_names_has_the_rights_of_its_role(signing: Served) -> None:
    with signing.client() as browser:
        answer = signed_in(browser)
        me = browser.get(ME).json()

    assert answer.status_code == 200
    assert 'content="0;url=/ports"' in answer.text  # a redirect would not bring the strict cookie along
    assert (me["person"], me["rights"]) == ("ann@example.com", ["operator", "viewer"])


def _foreign_key(provider: OidcProvider) -> None:
    provider.key = RSAKey.generate_key(2048, {"kid": "first"})


def _shared_secret(provider: OidcProvider) -> None:
    provider.key, provider.algorithm = OctKey.import_key(SECRET * 3), "HS256"


WRONG: dict[str, Callable[[OidcProvider], object]] = {
    "foreign key": _foreign_key,
    "shared secret": _shared_secret,
    "other audience": lambda provider: provider.claims.update(aud="somebody"),
    "other issuer": lambda provider: provider.claims.update(iss="https://evil.example"),
    "other sign-in": lambda provider: provider.claims.update(nonce="x"),
    "expired": lambda provider: provider.claims.update(exp=1_000_000_000),
    "address not verified": lambda provider: provider.claims.update(email_verified=False),
    "no name": lambda provider: provider.claims.update(email=None),
    "no role": lambda provider: provider.claims.update(email="bo@example.com"),
}


def test_a_token_that_is_not_right_signs_nobody_in(signing: Served, provider: OidcProvider) -> None:
    key, algorithm = provider.key, provider.algorithm
    for name, spoil in WRONG.items():
        provider.key, provider.algorithm, provider.claims = key, algorithm, {}
        spoil(provider)
        with signing.client() as browser:
            answer = signed_in(browser)
            assert (answer.status_code, browser.get(ME).status_code) == (303, 401), name
            assert answer.headers["location"].startswith("/sign-in?problem=not-"), name


def test_a_provider_may_change_its_key(signing: Served, provider: OidcProvider) -> None:
    with signing.client() as browser:
        signed_in(browser)
    provider.key = provider.published = RSAKey.generate_key(2048, {"kid": "second"})

    with signing.client() as browser:
        assert signed_in(browser).status_code == 200


def test_another_browser_cannot_be_made_to_sign_in_as_somebody(signing: Served) -> None:
    with signing.client() as attacker, signing.client() as victim:
        to = attacker.get("/session/oidc")
        back = httpx.get(to.headers["location"], trust_env=False, timeout=60).headers["location"]
        tricked = victim.get(back)
        late = attacker.get(back)

    assert (tricked.status_code, late.status_code) == (303, 303)  # a state works once
    assert "set-cookie" not in tricked.headers


def test_a_provider_without_encryption_or_that_is_away_is_refused(database: str) -> None:
    with pytest.raises(UsageError, match="is not an https address"):
        Provider(OidcOptions("http://provider.example", CLIENT))
    away = AccessOptions(oidc=OidcOptions("http://127.0.0.1:1", CLIENT), roles={"*": "viewer"})
    with served(database, away) as made, made.client() as browser:
        assert browser.get("/session/oidc").status_code == 503


def test_nobody_is_kept_from_coming_back_by_how_many_others_begin(signing: Served) -> None:
    with signing.client() as browser, signing.client() as others:
        to = browser.get("/session/oidc")
        for _ in range(1_100):
            assert others.get("/session/oidc").status_code == 303
        back = httpx.get(to.headers["location"], trust_env=False, timeout=60)

        assert browser.get(back.headers["location"]).status_code == 200


def test_a_provider_that_is_slow_leaves_the_console_to_people_who_have_signed_in(
    signing: Served, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is nobody could hold every thread of the console by coming back with codes of its own."""
    asked, go_on = Event(), Event()

    def slow(*_: Any) -> None:
        asked.set()
        go_on.wait(60)

    monkeypatch.setattr(provider, "token", slow)

    def come_back() -> None:
        with signing.client() as nobody, suppress(httpx.HTTPError):
            to = nobody.get("/session/oidc")
            state = httpx.URL(to.headers["location"]).params["state"]
            nobody.get("/session/oidc/back", params={"state": state, "code": "any"})

    with signing.as_role("viewer") as ann, ThreadPoolExecutor(60) as many:
        comers = [many.submit(come_back) for _ in range(60)]
        try:
            assert asked.wait(60)
            for _ in range(20):
                assert ann.get(ME, timeout=5).status_code == 200
        finally:
            go_on.set()
        for each in comers:
            each.result(60)


def test_sign_in_works_once(signing: Served) -> None:
    with signing.client() as browser:
        to = browser.get("/session/oidc")
        back = httpx.get(to.headers["location"], trust_env=False, timeout=60).headers["location"]
        cookies = dict(browser.cookies)
        told = [
            browser.get(back),
            browser.get(back, headers={"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}),
            browser.get(back.replace("state=", "state=9")),
            browser.get("/session/oidc/back?state=&code="),
        ]

    assert [each.status_code for each in told] == [200, 303, 303, 303]
