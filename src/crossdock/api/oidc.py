"""Signing in by OpenID Connect: the code flow with PKCE, and an id token whose signature and claims are checked."""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from threading import BoundedSemaphore, Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from crossdock.api.options import OidcOptions, is_loopback
from crossdock.errors import ProblemError, UsageError

BACK = "/session/oidc/back"
# Never one that takes a secret, with which whoever knows our secret could make a token, nor `none`.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_PATIENCE_SECONDS, _MOST_USED = 600, 10_000
_KNOWN_SECONDS = 3_600.0
_LEEWAY_SECONDS = 60
# Of the 40 requests that the console answers at once: the others are for people who have signed in.
_ASKING_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Begun:
    """A person who was sent to the provider: with what it has to come back, and where it wanted to go."""

    nonce: str
    verifier: str
    target: str


class Provider:
    """The provider that is configured. Threads may share it.

    Nothing is kept of those who were sent there: however many begin, nobody else is kept from coming back. The state
    says what has to be known, and only for the browser that was sent.
    """

    def __init__(self, options: OidcOptions) -> None:
        where = urlsplit(options.issuer)
        if where.scheme != "https" and not (where.scheme == "http" and is_loopback(where.hostname or "")):
            raise UsageError(f"--oidc-issuer {options.issuer!r} is not an https address.")
        self._options = options
        self._lock = Lock()
        self._key = secrets.token_bytes(32)
        self._used: dict[bytes, float] = {}
        self._known: tuple[float, Mapping[str, Any], KeySet] | None = None
        self._http = httpx.Client(timeout=10, follow_redirects=False)
        self._asking = BoundedSemaphore(_ASKING_AT_ONCE)

    def close(self) -> None:
        self._http.close()

    def begin(self, browser: str, target: str, back: str) -> str:
        """The address to send the browser to, which comes back to `back`."""
        configuration, _ = self._configuration()
        until = str(int(time.monotonic()) + _PATIENCE_SECONDS)
        state = f"{until}.{_encoded(target.encode())}.{self._secret('state', browser, until, target)}"
        begun = self._begun(browser, state)
        challenge = _encoded(sha256(begun.verifier.encode()).digest())
        asked = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": back,
            "scope": "openid email profile",
            "state": state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = str(configuration["authorization_endpoint"])
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    def finish(self, browser: str, state: str, code: str, back: str) -> tuple[str, str]:
        """Who has come back, and where that person wanted to go. ProblemError 401 if anything is wrong with it."""
        self._use(state)
        begun = self._begun(browser, state)
        claims = self._claims(self._token(code, begun, back), begun)
        name = claims.get(self._options.claim)
        if not isinstance(name, str) or not name.strip():
            raise _refused(f"the provider gives no claim {self._options.claim!r}")
        if self._options.claim == "email" and claims.get("email_verified") is not True:
            raise _refused("the provider has not verified the e-mail address")
        return name, begun.target

    def _begun(self, browser: str, state: str) -> Begun:
        """What the state says. ProblemError 401 if it was not made for this browser, or long ago."""
        until, _, rest = state.partition(".")
        encoded, _, mark = rest.partition(".")
        try:
            target = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        except ValueError:
            target = ""
        expected = self._secret("state", browser, until, target)
        if not hmac.compare_digest(expected.encode(), mark.encode()) or int(until) <= time.monotonic():
            raise _refused("this sign-in was not begun here, or took too long")
        return Begun(self._secret("nonce", browser, state), self._secret("verifier", browser, state), target)

    def _use(self, state: str) -> None:
        """A state works once, whoever brings it."""
        now, key = time.monotonic(), sha256(state.encode("utf-8", "surrogateescape")).digest()
        with self._lock:
            if key in self._used:
                raise _refused("this sign-in was used before")
            self._used = {each: until for each, until in self._used.items() if until > now}
            while len(self._used) >= _MOST_USED:
                del self._used[next(iter(self._used))]
            self._used[key] = now + _PATIENCE_SECONDS

    def _secret(self, *what: str) -> str:
        """Something that only this process can make of this."""
        return _encoded(hmac.digest(self._key, "\0".join(what).encode("utf-8", "surrogateescape"), "sha256"))

    def _token(self, code: str, begun: Begun, back: str) -> str:
        configuration, _ = self._configuration()
        asked = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self._options.client_id,
            "code_verifier": begun.verifier,
        }
        secret = self._options.client_secret
        auth = httpx.BasicAuth(self._options.client_id, secret) if secret else httpx.Auth()
        try:
            with self._one_of_few():
                answer = self._http.post(str(configuration["token_endpoint"]), data=asked, auth=auth)
            token = answer.json().get("id_token") if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError, AttributeError) as error:
            raise _away(error) from error
        if not isinstance(token, str):
            raise _refused("the provider does not accept the code")
        return token

    def _claims(self, token: str, begun: Begun) -> Mapping[str, Any]:
        """The claims of a token that is for us, of this sign-in, and signed by the provider."""
        registry = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self._options.issuer},
            aud={"essential": True, "value": self._options.client_id},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": begun.nonce},
        )
        for fresh in (False, True):  # the provider may have a new key since we asked
            _, keys = self._configuration(fresh=fresh)
            try:
                decoded = jwt.decode(token, keys, algorithms=_ALGORITHMS)
                registry.validate(decoded.claims)
            except (JoseError, ValueError) as error:
                if fresh:
                    raise _refused("its token is not valid") from error
            else:
                return decoded.claims
        raise AssertionError

    def _configuration(self, *, fresh: bool = False) -> tuple[Mapping[str, Any], KeySet]:
        known = self._known
        if known is not None and known[0] > time.monotonic() and not fresh:
            return known[1], known[2]
        issuer = self._options.issuer
        try:
            with self._one_of_few():
                where = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
                found = self._http.get(where).raise_for_status().json()
                keys = KeySet.import_key_set(self._http.get(str(found["jwks_uri"])).raise_for_status().json())
        except (httpx.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
            raise _away(error) from error
        if found.get("issuer") != issuer:
            raise _refused(f"the provider says it is {found.get('issuer')!r}, not {issuer!r}")
        self._known = time.monotonic() + _KNOWN_SECONDS, found, keys
        return found, keys

    @contextmanager
    def _one_of_few(self) -> Iterator[None]:
        """A question to the provider holds a thread for as long as it lasts. ProblemError 503 where too many do."""
        if not self._asking.acquire(blocking=False):
            raise ProblemError(503, "provider-away", "Too many people sign in at once. Try again in a moment.")
        try:
            yield
        finally:
            self._asking.release()


def _encoded(given: bytes) -> str:
    return urlsafe_b64encode(given).decode().rstrip("=")


def _refused(reason: str) -> ProblemError:
    return ProblemError(401, "not-signed-in", f"You could not be signed in: {reason}.")


def _away(error: Exception) -> ProblemError:
    return ProblemError(
        503, "provider-away", f"The OpenID Connect provider does not answer as it should: {type(error).__name__}."
    )
