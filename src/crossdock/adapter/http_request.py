"""What a request to a web server consists of: address, headers and credentials, made from options and a message."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from crossdock.adapter.macro import expand, has_macro
from crossdock.adapter.secret import is_secret, secret
from crossdock.errors import ApplicationError, TerminalError
from crossdock.message.message import Message

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Those that frame the request or tell it apart, and the option that says the same.
_RESERVED = {
    "content-length": None,
    "transfer-encoding": None,
    "host": None,
    "connection": None,
    "x-crossdock-message-id": None,
    "idempotency-key": None,
    "content-type": "content_type",
    "authorization": "user or token",
}


class Address:
    """A URL. Macros may stand in its path and query: which server it is does not come from a message."""

    def __init__(self, address: str) -> None:
        parts = _split(address)
        self.user, self.password = unquote(parts.username or ""), unquote(parts.password or "")
        self._origin = f"{parts.scheme}://{_host(parts)}"
        self._place = urlunsplit(("", "", parts.path, parts.query, ""))
        if _leads_elsewhere(parts.path):
            raise ApplicationError(f"the address {self} has a step '.' or '..'; write the path without it")

    def __str__(self) -> str:
        return self._origin + self._place.partition("?")[0]

    def of(self, message: Message) -> str:
        """The URL for this message, its values escaped. TerminalError: they would lead to another place."""
        place = expand(self._place, message, lambda value: quote(value, safe="", errors="replace"))
        if _leads_elsewhere(place.partition("?")[0]):
            raise TerminalError(f"{self}: a property of the message would be a step '.' or '..' of the path")
        return self._origin + place


def printable_address(address: str) -> str:
    """Where it is; not who sends, nor the query, which may hold a password."""
    return str(Address(address))


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user with a password, or a token; each may be `env:NAME`."""

    user: str | None = None
    password: str | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        if self.token is not None and self.user is not None:
            raise ApplicationError("adapter 'http' takes a user or a token, not both")
        if self.password is not None and self.user is None:
            raise ApplicationError("adapter 'http' has a password without a user; add the option 'user'")

    def header(self) -> tuple[str | None, list[str]]:
        """What the header Authorization says, and what nobody may read."""
        if self.token is not None:
            token = secret(self.token)
            return f"Bearer {token}", [token]
        if self.user is None:
            return None, []
        password = secret(self.password or "")
        encoded = b64encode(f"{secret(self.user)}:{password}".encode()).decode()
        return f"Basic {encoded}", [password, encoded]


class Headers:
    """Headers with macros in their values; one that is `env:NAME` is a secret."""

    def __init__(self, headers: Mapping[str, str], content_type: str, credentials: Credentials) -> None:
        for name, value in headers.items():
            _check(name, value)
        if _CONTROL.search(content_type):
            raise ApplicationError("option 'content_type' of adapter 'http' has a line break")
        self._headers = headers
        self._content_type = content_type
        self._credentials = credentials

    def of(self, message: Message) -> tuple[list[tuple[bytes, bytes]], list[str]]:
        """The headers for this message, and the secrets that are in them."""
        authorization, secrets = self._credentials.header()
        values = {
            "X-Crossdock-Message-ID": str(message.id),
            "Idempotency-Key": str(message.id),
            "Content-Type": str(message.context.get("HTTP.ContentType") or self._content_type),
        }
        if authorization is not None:
            values["Authorization"] = authorization
        for name, value in self._headers.items():
            values[name] = secret(value) if is_secret(value) else expand(value, message)
            secrets += [values[name]] * is_secret(value)
        return [_encoded(name, value) for name, value in values.items()], secrets


def _check(name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name):
        raise ApplicationError(f"{name!r} is no name of a header")
    if name.lower() in _RESERVED:
        option = _RESERVED[name.lower()]
        raise ApplicationError(
            f"the header {name!r} is not set by hand" + (f"; use the option {option}" if option else "")
        )
    if _CONTROL.search(value):
        raise ApplicationError(f"the header {name!r} has a line break or another control character")


def _encoded(name: str, value: str) -> tuple[bytes, bytes]:
    if _CONTROL.search(value):  # the partner would take what follows for another header
        raise TerminalError(f"the header {name!r} would have a line break or another control character")
    return name.encode(), value.strip().encode("utf-8", "replace")


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.port != 0 and (parts.hostname or "").encode("idna")
    except ValueError:
        usable = False
    if not usable:
        # Not chained, and the address not shown: it may hold a password.
        raise ApplicationError(
            "the address of an http port is a URL such as https://partner.example.org/orders/%OrderId%"
        ) from None
    if has_macro(_host(parts)):
        raise ApplicationError("the address of an http port has a macro in its host; only path and query may have one")
    return parts


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _leads_elsewhere(path: str) -> bool:
    return any(unquote(step) in (".", "..") for step in path.split("/"))
