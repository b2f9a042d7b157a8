"""Who is asking, and the service that acts for that person with no more than its rights.

Every route and page takes a `Service`. There is no other way to the MessageBox, so that none forgets to ask who it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Literal

from fastapi import Depends, Request

from crossdock.administration.open_box import OpenBox
from crossdock.administration.service import Administration, Rights
from crossdock.api.credentials import Credentials, Known
from crossdock.api.mistakes import Mistakes
from crossdock.api.oidc import Provider
from crossdock.api.options import AccessOptions
from crossdock.api.problems import ProblemError
from crossdock.api.sessions import Sessions
from crossdock.errors import CrossdockError

Attempt = Callable[[], Known | None]
Via = Literal["session", "token", "password", "proxy"]
REASON = "x-crossdock-reason"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who has signed in. `rights` are what it may do: those of the database user, within its own limit."""

    name: str
    rights: Rights
    limit: frozenset[str] | None
    via: Via


class Gate:
    """Knows everybody who may come in, by cookie, token, password or the word of a proxy."""

    def __init__(self, box: OpenBox, options: AccessOptions) -> None:
        self.options = options
        self.sessions = Sessions()
        self.mistakes = Mistakes()
        self._credentials = Credentials(box, options)
        self._box = box
        self.provider = None if options.oidc is None else Provider(options.oidc)
        if options.one_time_token is not None:
            self.sessions.accept_once(options.one_time_token)

    def close(self) -> None:
        if self.provider is not None:
            self.provider.close()

    def find(self, request: Request) -> Person:
        """Whoever asks. ProblemError 401 if nobody has signed in, 429 if too many tried in vain from there."""
        known, via = self._known(request)
        rights = self._box.acting_for(known.person, known.limit).rights()
        return Person(known.person, rights, known.limit, via)

    def knows(self, request: Request) -> bool:
        """Whether whoever asked is still signed in; also while the MessageBox is away, and nobody can tell."""
        try:
            self._known(request)
        except ProblemError:
            return False
        except CrossdockError:
            return True
        return True

    def _known(self, request: Request) -> tuple[Known, Via]:
        if (proxied := self._credentials.by_proxy(request)) is not None:
            return proxied, "proxy"  # first: the proxy may pass on what people gave to it
        authorization = request.headers.get("authorization", "")
        if authorization:
            by_token = authorization.lower().startswith("bearer ")
            found = self.attempted(request, lambda: self._credentials.by_header(authorization), guessable=not by_token)
            return found, "token" if by_token else "password"
        session = self.sessions.find(request.cookies.get(self.options.cookie, ""))
        if session is None or (session.token is not None and not self._credentials.is_valid(session.token)):
            raise unknown_person()
        return Known(session.person, session.limit), "session"

    def sign_in_once(self, request: Request, token: str) -> str:
        """The cookie of a new session for the one-time token, which is the only one that an address may have.

        With an API token in a link somebody would sign others in as himself.
        """
        if self.sessions.use(token):
            return self.sessions.begin(self._box.person, None)
        self.attempted(request, lambda: None)
        raise AssertionError

    def sign_in(self, request: Request, *, token: str = "", user: str = "", password: str = "") -> str:
        """The cookie of a new session, for whoever has the one-time token, an API token, or a password."""
        if token and self.sessions.use(token):
            return self.sessions.begin(self._box.person, None)
        if token:
            found = self.attempted(request, lambda: self._credentials.by_token(token), guessable=False)
            return self.sessions.begin(found.person, found.limit, sha256(token.encode()).digest())
        found = self.attempted(request, lambda: self._credentials.by_password(user, password))
        return self.sessions.begin(found.person, found.limit)

    def sign_in_as(self, name: str) -> str:
        """The cookie of a new session for somebody whom the provider names. ProblemError 403 if it has no role."""
        found = self._credentials.of_role(name)
        return self.sessions.begin(found.person, found.limit)

    def attempted(self, request: Request, attempt: Attempt, *, guessable: bool = True) -> Known:
        """Whom these credentials name; who has given wrong ones too often has to wait first.

        Nobody guesses a token: a right one is taken all the same. Behind a proxy all people have one address.
        """
        client = client_of(request)
        wait = self.mistakes.wait(client)
        found = None if wait and guessable else attempt()
        if found is not None:
            return found
        if wait:
            raise ProblemError(
                429,
                "too-many-mistakes",
                "Too many wrong credentials came from your address: wait a moment, and try again.",
                {"Retry-After": str(math.ceil(wait))},
            )
        self.mistakes.add(client)
        raise unknown_person("The credentials are wrong, or no longer valid.")


def unknown_person(detail: str = "You are not signed in.") -> ProblemError:
    return ProblemError(401, "not-signed-in", detail, {"WWW-Authenticate": 'Bearer realm="crossdock"'})


def client_of(request: Request) -> str:
    return "" if request.client is None else request.client.host


def signed_in(request: Request) -> Person:
    """Whoever asks: ProblemError 401 if nobody has signed in, for which a browser is sent to `/sign-in`."""
    known = getattr(request.state, "person", None)
    if isinstance(known, Person):
        return known
    gate: Gate = request.app.state.gate
    request.state.person = person = gate.find(request)
    return person


SignedIn = Annotated[Person, Depends(signed_in)]


def service(request: Request, person: SignedIn) -> Iterator[Administration]:
    """What an operator can ask and do, for the person who asks, within its rights."""
    box: OpenBox = request.app.state.box
    reason = request.headers.get(REASON, "").encode("latin-1").decode("utf-8", "replace")[:1_000]
    with box.asked():
        yield box.acting_for(person.name, person.limit, reason)


Service = Annotated[Administration, Depends(service)]
