"""Whom credentials name: API tokens, users with passwords in a file, and people whom a listed proxy names."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from dataclasses import dataclass
from hashlib import scrypt, sha256
from pathlib import Path
from threading import Lock

from fastapi import Request

from crossdock.administration.open_box import OpenBox
from crossdock.administration.people import read_rights
from crossdock.api.options import AccessOptions
from crossdock.api.problems import ProblemError
from crossdock.errors import UsageError
from crossdock.whole_file import DECLARED_LIMIT_BYTES, read_whole

_COST, _BLOCK, _LANES = 2**14, 8, 1
_REMEMBERED_SECONDS, _REMEMBERED = 60.0, 1_000
_PROGRAM = "token "  # and the name of an API token: who signs in with it


@dataclass(frozen=True, slots=True)
class Known:
    """A person, and its rights at most; None: those of the database user."""

    person: str
    limit: frozenset[str] | None


class Credentials:
    """Threads may share it."""

    def __init__(self, box: OpenBox, options: AccessOptions) -> None:
        self._box = box
        self._options = options
        self._roles = {name: read_rights(text) for name, text in options.roles.items()}
        self._users = {} if options.passwords is None else read_passwords(options.passwords)
        self._nobody = hash_password(secrets.token_urlsafe(8))
        self._remembered = _Remembered()

    def by_header(self, authorization: str) -> Known | None:
        """What an Authorization header names: `Bearer TOKEN`, or `Basic` with user and password."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.by_token(value.strip())
        if scheme.lower() != "basic":
            return None
        try:
            user, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        return self.by_password(user, password)

    def by_token(self, token: str) -> Known | None:
        if not self._options.takes_tokens or not token:
            return None
        found = self._box.find_token(sha256(token.encode("utf-8", "surrogateescape")).digest())
        return None if found is None else Known(f"{_PROGRAM}{found.name}", frozenset(found.rights))

    def is_valid(self, digest: bytes) -> bool:
        """Whether the token of this digest is neither revoked nor expired."""
        return self._box.find_token(digest) is not None

    def by_password(self, user: str, password: str) -> Known | None:
        if not self._users:
            return None
        if (user, password) in self._remembered:
            return Known(user, self._users[user][0])
        limit, expected = self._users.get(user, (frozenset[str](), self._nobody))
        # Also for a user who is not there: the time that it takes tells nothing.
        if not _is_password(password, expected) or user not in self._users:
            return None
        self._remembered.add((user, password))
        return Known(user, limit)

    def by_proxy(self, request: Request) -> Known | None:
        """Whom a listed proxy names. ProblemError 403 for somebody who has no role here."""
        client = "" if request.client is None else request.client.host
        names = request.headers.getlist(self._options.user_header) if self._options.user_header else []
        if not any(names) or client not in self._options.proxies:
            return None
        if len(names) > 1:  # one of them may be what the browser sent
            raise ProblemError(403, "not-allowed", "The proxy names two people: it has to remove the header first.")
        return self.of_role(names[0].encode("latin-1").decode("utf-8", "replace"))

    def of_role(self, name: str) -> Known:
        """The person with the rights that its role gives. ProblemError 403 if it has none, or the name of a token."""
        if name.startswith(_PROGRAM) or not name.isprintable():
            raise ProblemError(
                403, "not-allowed", f"{name!r} is no name of a person: records would name somebody else."
            )
        limit = self._roles.get(name, self._roles.get("*"))
        if limit is None:
            raise ProblemError(403, "not-allowed", f"{name!r} has no role here. Ask an administrator of the console.")
        return Known(name, limit)


class _Remembered:
    """Passwords that were right a moment ago: to see that takes long, on purpose. Only digests are kept."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._until: dict[bytes, float] = {}
        self._lock = Lock()

    def __contains__(self, credentials: tuple[str, str]) -> bool:
        return self._until.get(self._digest(credentials), 0.0) > time.monotonic()

    def add(self, credentials: tuple[str, str]) -> None:
        with self._lock:
            if len(self._until) >= _REMEMBERED:
                self._until.clear()
            self._until[self._digest(credentials)] = time.monotonic() + _REMEMBERED_SECONDS

    def _digest(self, credentials: tuple[str, str]) -> bytes:
        return hmac.digest(self._key, "\0".join(credentials).encode("utf-8", "surrogateescape"), "sha256")


def read_passwords(file: Path) -> dict[str, tuple[frozenset[str], str]]:
    """Users of a file, with their rights and hashes. A line is `NAME RIGHTS HASH`. Raises UsageError."""
    try:
        lines = read_whole(file, DECLARED_LIMIT_BYTES).decode().splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    users = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 3 or not fields[2].startswith("scrypt$") or fields[2].count("$") != 5:
            raise UsageError(f"{file}, line {number}: write NAME RIGHTS HASH, as `crossdock token password` does.")
        users[fields[0]] = read_rights(fields[1]), fields[2]
    return users


def hash_password(password: str) -> str:
    """As a file of passwords has it: `scrypt$COST$BLOCK$LANES$SALT$HASH`."""
    salt = secrets.token_bytes(16)
    made = scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK, p=_LANES, maxmem=64 * 1024 * 1024)
    return f"scrypt${_COST}${_BLOCK}${_LANES}${salt.hex()}${made.hex()}"


def _is_password(password: str, expected: str) -> bool:
    try:
        _, cost, block, lanes, salt, digest = expected.split("$")
        made = scrypt(
            password.encode("utf-8", "surrogateescape"),
            salt=bytes.fromhex(salt),
            n=int(cost),
            r=int(block),
            p=int(lanes),
            maxmem=64 * 1024 * 1024,
        )
        return hmac.compare_digest(made, bytes.fromhex(digest))
    except ValueError:
        return False
