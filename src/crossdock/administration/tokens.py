"""API tokens: by which programs, and people at a browser, sign in at the console. Nobody can read one again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from crossdock.administration.audit import since_of
from crossdock.administration.people import rights_of
from crossdock.errors import UsageError
from crossdock.messagebox.access import Right
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.console import FoundToken, TokenRow

__all__ = ["CreatedToken", "FoundToken", "TokenRow", "Tokens"]

_PREFIX = "crossdock_"
_NAME_LIMIT = 100
_Act = Callable[[str, Sequence[str], Right], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A new token. `token` is what its bearer sends, and is shown this once."""

    name: str
    token: str
    rights: Sequence[str]
    expires_at: datetime | None


class Tokens:
    """`service.tokens`. All of it takes an administrator."""

    def __init__(self, agent: Agent, act: _Act) -> None:
        self._agent = agent
        self._act = act

    def list(self) -> Sequence[TokenRow]:
        with self._act("list tokens", ["tokens"], "administrator"):
            return self._agent.console.tokens()

    def create(
        self,
        name: str,
        role: str,
        grants: Iterable[str] = (),
        application: str | None = None,
        expires: str | None = None,
    ) -> CreatedToken:
        """Make a token for a role and grants, for all applications or one. `expires` is as `90d`; without it never."""
        with self._act("create token", [name], "administrator"):
            rights = sorted(rights_of(role, grants, application))
            self._check(name, application)
            token = _PREFIX + secrets.token_urlsafe(32)
            lifetime = None if expires is None else _lifetime(expires)
            ends = self._agent.console.create_token(name, sha256(token.encode()).digest(), rights, lifetime)
        return CreatedToken(name, token, rights, ends)

    def revoke(self, name: str) -> None:
        """Whoever signed in with it is signed out."""
        with self._act("revoke token", [name], "administrator"):
            self._agent.console.revoke_token(name)

    def _check(self, name: str, application: str | None) -> None:
        if not name.strip() or len(name) > _NAME_LIMIT or not name.isprintable():
            raise UsageError(f"A token has a name of 1 to {_NAME_LIMIT} printable characters.")
        known = {each.name for each in self._agent.configuration.list_applications()}
        if application is not None and application not in known:
            raise UsageError(f"There is no application {application!r}.")


def _lifetime(text: str) -> timedelta:
    found = since_of(text, "--expires")
    if not isinstance(found, timedelta) or not found:
        raise UsageError(f"--expires {text!r} is no length of time: write 12h, 90d or 52w.")
    return found
