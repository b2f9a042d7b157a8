"""Sends each message as the body of one request to a web server. The status of the answer decides what comes next.

Delivery is at least once: every attempt carries the id of the message, by which the partner can tell a second one.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from crossdock.adapter.contract import Reply
from crossdock.adapter.http.deadline import Deadline, DeadlineTransport
from crossdock.adapter.http.request import Address, Credentials, Headers, Prefix
from crossdock.adapter.http.transport import HttpSendOptions
from crossdock.adapter.secret import hidden
from crossdock.errors import ApplicationError, PartnerError, TerminalError, TransientError
from crossdock.message.message import Message, Part, StreamedPart
from crossdock.message.property import Value

_DEADLINE_TIMEOUTS = 4  # the whole answer may take so many times as long as one step
_WITHOUT_BODY = ("GET", "HEAD", "DELETE")
_WORTH_ANOTHER_TRY = (408, 425, 429)
_EXCERPT_BYTES = 2000
_EXCERPT_CHARACTERS = 200
_PLACE_CHARACTERS = 300

logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells the whole address, and the query may hold a password


class HttpSendAdapter:
    """Sends to `address`, a URL with macros in its path and query; the answer is the reply.

    `timeout`, in seconds, is for each step: to connect, to write, to read. The whole answer may take four times that.
    An address that a message brings stays `within` a prefix.
    """

    def __init__(self, address: str, *, within: Prefix | None = None, **options: Any) -> None:
        self._options = HttpSendOptions(**options)
        self._address = Address(address, within)
        user, password, token = self._options.user, self._options.password, self._options.token
        if user is None and token is None and self._address.user:
            user, password = self._address.user, self._address.password
        credentials = Credentials(user, password, token)
        self._headers = Headers(self._options.headers, self._options.content_type, credentials)
        self._method = _checked_method(self._options.method)
        self._seconds = self._options.timeout * _DEADLINE_TIMEOUTS
        if not self._options.verify and self._options.ca is not None:
            raise ApplicationError("adapter 'http' has a ca that nothing is checked against; leave out verify: false")
        if self._options.certificate_key is not None and self._options.certificate is None:
            raise ApplicationError("adapter 'http' has a certificate_key without a certificate")
        self._deadline = Deadline()
        self._lock = threading.Lock()
        self._connections: _Connections | None = None

    def send(self, message: Message, *, attempt: int) -> Reply:  # noqa: ARG002
        url = self._address.of(message)
        place = f"{self._method} {url.partition('?')[0]}"[:_PLACE_CHARACTERS]
        headers, secrets = self._headers.of(message)
        secrets += self._address.secrets()
        try:
            with self._answer(url, headers, self._body(message)) as response:
                if response.is_success:
                    return self._reply(place, response)
                raise _refusal(place, response, secrets)
        except httpx.InvalidURL as error:
            raise TerminalError(f"{place} is no address: {error}") from None
        except httpx.HTTPError as error:
            # Not chained: what it tells may repeat what was sent.
            raise TransientError(f"{place} has no answer: {_one_line(str(error), secrets)}") from None

    def close(self) -> None:
        """What threads are sending now is finished; the next one connects anew, and reads the certificates again."""
        with self._lock:
            connections, self._connections = self._connections, None
            if connections is not None:
                connections.leave()

    @contextmanager
    def _answer(
        self, url: str, headers: list[tuple[bytes, bytes]], body: bytes | Iterator[bytes]
    ) -> Iterator[httpx.Response]:
        with self._lock:
            if self._connections is None:
                self._connections = _Connections(self._connect())
            connections = self._connections
            connections.users += 1
        self._deadline.extend(self._seconds)
        try:
            with connections.client.stream(self._method, url, headers=headers, content=body) as response:
                yield response
        finally:
            with self._lock:
                connections.leave()

    def _connect(self) -> httpx.Client:
        return httpx.Client(
            transport=DeadlineTransport(self._context(), self._deadline),
            headers={"User-Agent": "crossdock", "Accept-Encoding": "identity"},  # a small answer stays small
            timeout=self._options.timeout,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # messages do not know each other
        )

    def _context(self) -> ssl.SSLContext:
        ca, certificate, key = self._options.ca, self._options.certificate, self._options.certificate_key
        try:
            if ca is None:
                context = httpx.create_ssl_context(verify=self._options.verify)
            else:
                context = ssl.create_default_context(cafile=ca)
            if certificate is not None:
                context.load_cert_chain(certificate, key, password="")  # else OpenSSL would ask the terminal for one
        except OSError as error:
            files = ", ".join(filter(None, (ca, certificate, key)))
            raise TransientError(f"{self._address}: a certificate cannot be read ({files}): {error}") from error
        return context

    def _body(self, message: Message) -> bytes | Iterator[bytes]:
        if self._method in _WITHOUT_BODY:
            return b""
        part = message.parts[0]
        return part.body if isinstance(part, Part) else self._chunks(part)

    def _chunks(self, part: StreamedPart) -> Iterator[bytes]:
        """A large body takes its time, as long as the partner goes on reading."""
        for chunk in part.chunks():
            self._deadline.extend(self._seconds)
            yield chunk

    def _reply(self, place: str, response: httpx.Response) -> Reply:
        body = bytearray()
        for chunk in response.iter_raw():  # not decoded: 300 bytes may become a gigabyte
            if _is_encoded(response):
                raise TerminalError(
                    f"{place} has taken the message, and its answer has a Content-Encoding, though none was asked for"
                )
            body += chunk
            if len(body) > self._options.maximum_response:
                raise TerminalError(
                    f"{place} has taken the message, and its answer has more than "
                    f"{self._options.maximum_response:,} bytes; raise maximum_response"
                )
        properties: dict[str, Value] = {"HTTP.StatusCode": response.status_code}
        if "content-type" in response.headers:
            properties["HTTP.ContentType"] = response.headers["content-type"]
        return Reply(bytes(body), properties)


@dataclass
class _Connections:
    """The last one to leave closes them. The adapter itself is one of the users."""

    client: httpx.Client
    users: int = 1

    def leave(self) -> None:
        self.users -= 1
        if self.users == 0:
            self.client.close()


def _refusal(place: str, response: httpx.Response, secrets: list[str]) -> TransientError | PartnerError:
    status = response.status_code
    kind = TransientError if status in _WORTH_ANOTHER_TRY or status >= 500 else PartnerError
    phrase, told = (_one_line(text, secrets) for text in (response.reason_phrase, _excerpt(response)))
    return kind(f"{place} answered {status} {phrase}".rstrip() + (f": {told}" if told else ""))


def _excerpt(response: httpx.Response) -> str:
    if _is_encoded(response):
        return ""
    content = bytearray()
    try:
        for chunk in response.iter_raw():
            content += chunk
            if len(content) >= _EXCERPT_BYTES:
                break
    except httpx.HTTPError:
        pass  # the status is known, and that decides
    return content[:_EXCERPT_BYTES].decode("utf-8", "replace")


def _is_encoded(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "").lower() not in ("", "identity")


def _one_line(text: str, secrets: list[str]) -> str:
    """Hidden before and after: what is dropped may be a part of a secret, or stand in the middle of one."""
    kept = "".join(letter for letter in hidden(text, secrets) if letter.isprintable() or letter.isspace())
    return hidden(" ".join(kept.split()), secrets)[:_EXCERPT_CHARACTERS]


def _checked_method(method: str) -> str:
    if not method.isascii() or not method.isalpha() or method.upper() == "CONNECT":
        raise ApplicationError(f"{method!r} is no method that sends a message; write POST, PUT or another")
    return method.upper()
