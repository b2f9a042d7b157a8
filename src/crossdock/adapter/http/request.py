"""What a request to a web server consists of: address, headers and credentials, made from options and a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from unicodedata import normalize
from urllib.parse import SplitResult, quote, unquote, urlsplit

from crossdock.adapter.macro import expand, has_macro, without_macros
from crossdock.adapter.secret import held_secret, in_base64, is_secret, secret
from crossdock.errors import ApplicationError, TerminalError
from crossdock.message.message import Message
from crossdock.message.trace import trace_of

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")  # the last one stands for bytes that are no UTF-8
_PLAIN = re.compile(r"[!-\[\]-~]+")  # printable ASCII without blank and backslash
_PLAIN_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?")
_REFERENCE = re.compile(r"(?<==)env:[A-Za-z_]\w*(?=&|$)", re.ASCII)
_ESCAPED_AT_MOST = 8
_UNREADABLE_TEXT = "a control character or bytes that are no UTF-8"
_ELSEWHERE = f"has a step '.' or '..', {_UNREADABLE_TEXT}"
_PORTS = {"http": 80, "https": 443}
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


class Prefix:
    """Where a message may lead: a scheme, a host, a port and the beginning of a path. Raises ApplicationError."""

    def __init__(self, address: str) -> None:
        parts = _split(address)
        if not _plain(address, parts) or parts.query or parts.fragment or has_macro(address):
            raise ApplicationError("a prefix for http is a URL such as https://partner.example.org/orders/ and no more")
        if _leads_elsewhere(parts.path):
            raise ApplicationError(f"the prefix {address} {_ELSEWHERE}; write the path without it")
        self._server = _server(parts)
        self._path = parts.path if parts.path.endswith("/") else f"{parts.path}/"

    def holds(self, url: str) -> bool:
        """Whether a URL without macros is below: whole steps of the path count, and `/a/b` is not below `/a/bc`."""
        parts = _split(url)
        below = f"{parts.path}/".startswith(self._path)
        return _plain(url, parts) and _server(parts) == self._server and below and not _leads_elsewhere(parts.path)


class Address:
    """A URL. Macros may stand in its path and query: which server it is does not come from a message.

    The address itself comes from a message if there is a prefix `within` which it has to stay.
    """

    def __init__(self, address: str, within: Prefix | None = None) -> None:
        parts = _split(address)
        if within is not None and not _plain(address, parts):
            raise ApplicationError(
                "an address for http that a message brings is plain: no user, no backslash, nothing but ASCII"
            )
        self._within = within
        self.user, self.password = unquote(parts.username or ""), unquote(parts.password or "")
        self._origin = f"{parts.scheme}://{_host(parts)}"
        self._path, self._query = parts.path, parts.query
        if _leads_elsewhere(without_macros(parts.path)):
            raise ApplicationError(f"the address {self} {_ELSEWHERE}; write the path without it")

    def __str__(self) -> str:
        return self._origin + self._path

    def of(self, message: Message) -> str:
        """The URL for this message, its values escaped. TerminalError: they would lead to another place."""
        url = self.expanded(message)
        if self._within is not None and not self._within.holds(url):
            raise TerminalError(f"{self}: the properties of the message lead to a place that is not allowed")
        return url

    def expanded(self, message: Message) -> str:
        """The same, wherever it is."""
        path, query = (expand(part, message, _escaped) for part in (self._path, self._with_secrets()))
        if _leads_elsewhere(path):
            raise TerminalError(
                f"{self}: a property of the message would be a step '.' or '..' of the path, or {_UNREADABLE_TEXT}"
            )
        return f"{self._origin}{path}?{query}" if query else self._origin + path

    def secrets(self) -> list[str]:
        """What stands in the query in place of references, and nobody may read."""
        return [held_secret(value) for value in _REFERENCE.findall(self._query)]

    def _with_secrets(self) -> str:
        """The query with what its references `env:NAME` stand for; in a query that a message brings they are text."""
        if self._within is not None:
            return self._query
        return _REFERENCE.sub(lambda found: _escaped(secret(found[0])), self._query)


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
        encoded = in_base64(secret(self.user), password)
        return f"Basic {encoded[0]}", [password, *encoded]


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
        # Whoever writes these headers does not want those of the message.
        self._traced = {"traceparent", "tracestate"}.isdisjoint(name.lower() for name in headers)

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
        if self._traced and (trace := trace_of(message.context)) is not None:
            values |= {"traceparent": trace.parent} | ({"tracestate": trace.state} if trace.state else {})
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


def _escaped(value: str) -> str:
    return quote(value, safe="", errors="replace")


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _plain(address: str, parts: SplitResult) -> bool:
    """Whether nobody can read it in another way than we do: no user, no letters that some drop or take for others."""
    return _PLAIN.fullmatch(address) is not None and _PLAIN_HOST.fullmatch(parts.netloc) is not None


def _server(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _leads_elsewhere(path: str) -> bool:
    """Whether a server may take a step of it for one to the folder itself or above, however it is escaped or spelled,
    or may end it early."""
    for _ in range(_ESCAPED_AT_MOST):
        escaped, path = path, normalize("NFKC", unquote(path))
        if path == escaped:
            return _UNREADABLE.search(path) is not None or any(map(_is_dots, re.split(r"[/\\]", path)))
    return True


def _is_dots(step: str) -> bool:
    seen = "".join(letter for letter in step.partition(";")[0] if letter.isprintable())
    return seen.strip() in (".", "..")
