"""Who may send to an http location, how often and how much: a request is refused before its body is read."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from crossdock.adapter.http.transport import HttpReceiveOptions
from crossdock.adapter.secret import secret
from crossdock.errors import RefusedError, TransientError

logger = logging.getLogger(__name__)

_MOST_CLIENTS = 10_000
# Wrong credentials from one address where no `rate_limit` says otherwise: so many at once, then one each second.
_MISTAKES_PER_SECOND, _MISTAKES_AT_ONCE = 1.0, 10.0

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")


def _nothing() -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets. A status or a header that HTTP cannot carry is a ValueError here, not a broken answer.

    Either `sent` or `lost` is called once, when it has gone out or when it never will.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: Callable[[], None] = field(default=_nothing, compare=False, repr=False)
    lost: Callable[[], None] = field(default=_nothing, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 200 <= self.status <= 599:
            raise ValueError(f"an answer cannot have the status {self.status}: it is between 200 and 599")
        for name, value in self.headers.items():
            if not is_header(name, value):
                raise ValueError(f"an answer cannot have the header {name!r} with the value {value!r}")


def is_header(name: str, value: str) -> bool:
    """Whether HTTP can carry it."""
    return bool(_HEADER.fullmatch(f"{name}:{value}")) and ":" not in name and value == value.strip()


def failure(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer that says in one sentence, as JSON, why it is not the wanted one."""
    body = json.dumps({"error": reason}, ensure_ascii=False).encode()
    return Answer(status, body, {"Content-Type": "application/json", **(headers or {})})


class Room:
    """For the bodies of all requests in progress in a process. Threads may share it."""

    def __init__(self, most: int = 256 * 1024 * 1024) -> None:
        self._most = most
        self._held = 0
        self._lock = Lock()

    def take(self, size: int, mine: int, enough: int) -> bool:
        """Whether a location that holds `mine` may have so many bytes more: up to `enough` it surely may, and beyond
        that as long as it leaves the others as much as it has."""
        with self._lock:
            if mine + size > max(enough, self._most - self._held - size):
                return False
            self._held += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._held -= size


class Guard:
    """Admits the requests of one location. Only the server's own thread may use it."""

    def __init__(
        self, options: HttpReceiveOptions, room: Room | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options
        self._room = room or Room()
        self._bucket = None if options.rate_limit is None else _Bucket(options.rate_limit, clock)
        rate = options.rate_limit
        self._mistakes = _Mistakes(rate or _MISTAKES_PER_SECOND, None if rate else _MISTAKES_AT_ONCE, clock)
        self._in_progress = 0
        self._held = 0

    @contextmanager
    def admitted(self, method: str, headers: Mapping[str, str], client: str = "") -> Iterator[Admitted]:
        """RefusedError if it is not. The request is in progress, and its body held, until the end of the block."""
        self._check_method(method)
        self._check_mistakes(client)
        admitted = Admitted(self, self._authenticated(headers, client))
        self._check_size(headers)
        self._check_load()
        self._in_progress += 1
        try:
            yield admitted
        finally:
            self._in_progress -= 1
            self._held -= admitted.size
            self._room.give_back(admitted.size)

    def hold(self, size: int) -> None:
        """So many bytes more of a body; RefusedError where there is no room for them."""
        if not self._room.take(size, self._held, self.options.maximum_size):
            raise RefusedError(503, "the requests in progress are too large together: try again later", RETRY_SOON)
        self._held += size

    def _check_method(self, method: str) -> None:
        if method not in self.options.methods:
            allowed = ", ".join(self.options.methods)
            raise RefusedError(405, f"{method} is not allowed here: use {allowed}", {"Allow": allowed})

    def _check_mistakes(self, client: str) -> None:
        """Before credentials are compared: whoever guesses them must not learn more by being quick."""
        if self.options.api_keys or self.options.basic:
            _check_rate(self._mistakes.wait(client), self._mistakes.rate, "requests with wrong credentials")

    def _authenticated(self, headers: Mapping[str, str], client: str) -> str | None:
        if not self.options.api_keys and not self.options.basic:
            return None
        try:
            has_key = self._has_key(headers.get("x-api-key", ""))
            user = self._user(headers.get("authorization", ""))
        except TransientError as error:
            logger.error("Credentials cannot be checked: %s", error)
            raise RefusedError(503, "credentials cannot be checked now: try again later", RETRY_SOON) from None
        if user is None and not has_key:
            self._mistakes.add(client)
            challenge = {"WWW-Authenticate": 'Basic realm="crossdock", charset="UTF-8"'} if self.options.basic else {}
            raise RefusedError(401, "credentials are missing or wrong", challenge)
        return user

    def _has_key(self, given: str) -> bool:
        matches = [_same(given, secret(key)) for key in self.options.api_keys]  # all of them: time tells nothing
        return any(matches)

    def _user(self, authorization: str) -> str | None:
        given_user, given_password = _basic_credentials(authorization)
        found = None
        for user, password in self.options.basic.items():
            is_user, is_password = _same(given_user, user), _same(given_password, secret(password))
            if is_user & is_password:
                found = user
        return found

    def _check_size(self, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "0")
        if len(length) > 18 or int(length) > self.options.maximum_size:
            raise too_large(self.options.maximum_size)

    def _check_load(self) -> None:
        if self._in_progress >= self.options.concurrency:
            raise RefusedError(503, "too many requests are in progress: try again later", RETRY_SOON)
        if self._bucket:
            _check_rate(self._bucket.wait(), self._bucket.rate, "requests")
            self._bucket.take()


def _check_rate(wait: float, rate: float, of: str) -> None:
    if wait > 0:
        after = {"Retry-After": str(math.ceil(wait))}
        raise RefusedError(429, f"no more than {rate:g} {of} per second are taken", after)


@dataclass(slots=True)
class Admitted:
    """A request in progress, by a user who may have a name."""

    _guard: Guard
    user: str | None
    size: int = 0

    def hold(self, size: int) -> None:
        """So many bytes more of its body; RefusedError where there is no room for them."""
        self._guard.hold(size)
        self.size += size


RETRY_SOON: Mapping[str, str] = {"Retry-After": "1"}


def too_large(limit: int) -> RefusedError:
    """For a body of which more than `limit` bytes were announced or have come."""
    return RefusedError(413, f"the body is larger than {limit} bytes")


class _Bucket:
    """Holds the requests of one second, and at least one, if no `size` is given; time fills it."""

    def __init__(self, rate: float, clock: Callable[[], float], size: float | None = None) -> None:
        self.rate = rate
        self._clock = clock
        self._tokens = self._size = max(1.0, rate) if size is None else size
        self._filled_at = clock()

    def wait(self) -> float:
        """Zero if there is a token, else the seconds until there is one."""
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._filled_at) * self.rate)
        self._filled_at = now
        return max(0.0, (1 - self._tokens) / self.rate)

    def take(self) -> None:
        self._tokens -= 1


class _Mistakes:
    """Wrong credentials, by the address of the client: one who has only wrong ones does not keep out the others."""

    def __init__(self, rate: float, at_once: float | None, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._at_once = at_once
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def wait(self, client: str) -> float:
        """The seconds until this client may try again."""
        bucket = self._buckets.get(network_of(client)) if self._buckets else None
        return 0 if bucket is None else bucket.wait()

    def add(self, client: str) -> None:
        network = network_of(client)
        bucket = self._buckets.pop(network, None) or _Bucket(self.rate, self._clock, self._at_once)
        bucket.take()
        self._buckets[network] = bucket  # at the end: the one that is forgotten has made none for long
        if len(self._buckets) > _MOST_CLIENTS:
            del self._buckets[next(iter(self._buckets))]


def network_of(client: str) -> str:
    """Of an IPv6 address its /64, all of which one client has; any other as it is."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return client
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


def _same(given: str, expected: str) -> bool:
    # Header bytes arrive as Latin-1; an empty secret is nobody's.
    return hmac.compare_digest(given.encode("latin-1"), expected.encode()) and expected != ""


def _basic_credentials(authorization: str) -> tuple[str, str]:
    """User and password, each byte one character; both empty if there are none."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(encoded.strip(), validate=True).decode("latin-1").partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password
