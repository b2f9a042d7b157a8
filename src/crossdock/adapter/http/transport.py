"""The http transport: requests that are sent to us, and a request for each message.

Read `receive.py` next for what is sent to us, and `send.py` for what we send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from crossdock.adapter.contract import MAXIMUM_MESSAGES
from crossdock.adapter.http.address import is_address
from crossdock.adapter.http.request import Address, Prefix
from crossdock.adapter.transport import Allowing, Mark, Options, Receiving, Sending, Transport, imported
from crossdock.message.message import Message
from crossdock.message.trace import TRACE_PARENT, TRACE_STATE

_MEGABYTES = 1024 * 1024
_LARGEST_ANSWER = 16 * _MEGABYTES
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Text = Annotated[str, Field(min_length=1)]
_File = Annotated[str | None, Field(min_length=1), Mark.FILE]


class HttpReceiveOptions(Options):
    """What an http location asks of its requests. Sizes are in bytes, times in seconds."""

    methods: Annotated[tuple[Annotated[str, Field(pattern="^[A-Z]+$")], ...], Field(min_length=1, strict=False)] = (
        "POST",
    )
    maximum_size: Annotated[int, Field(ge=0)] = 16 * _MEGABYTES
    maximum_messages: Annotated[int, Field(ge=1)] = MAXIMUM_MESSAGES
    api_keys: Annotated[tuple[_Text, ...], Field(strict=False, repr=False)] = ()
    basic: Annotated[Mapping[str, _Text], Field(repr=False)] = {}
    rate_limit: _Seconds | None = None
    read_timeout: _Seconds = 30
    certificate: _File = None
    key: _File = None
    concurrency: Annotated[int, Field(ge=1)] = 2000
    timeout: _Seconds = 60

    @field_validator("key")
    @classmethod
    def _key_has_a_certificate(cls, key: str | None, info: ValidationInfo) -> str | None:
        if key is not None and info.data.get("certificate") is None:
            raise ValueError("a key needs the option 'certificate' too")
        return key


class HttpSendOptions(Options):
    """How a request is sent. `timeout`, in seconds, is for each step: to connect, to write, to read."""

    method: str = "POST"
    headers: Mapping[str, str] = {}
    content_type: _Text = "application/octet-stream"
    timeout: _Seconds = 30
    verify: bool = True
    ca: _File = None
    certificate: Annotated[_File, Mark.CREDENTIAL] = None
    certificate_key: Annotated[_File, Mark.CREDENTIAL] = None
    user: Annotated[str | None, Field(min_length=1), Mark.CREDENTIAL] = None
    password: Annotated[str | None, Mark.CREDENTIAL] = None
    token: Annotated[str | None, Field(min_length=1), Mark.CREDENTIAL] = None
    maximum_response: Annotated[int, Field(ge=0)] = _LARGEST_ANSWER


def _holds(place: str, address: str, message: Message) -> bool:
    prefix = Prefix(place)
    return prefix.holds(Address(address, prefix).expanded(message))


def _headers(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    headers = options.get("headers")
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        yield f"the header {name!r}", str(value)


def _largest_answer(options: Mapping[str, Any]) -> int:
    said = options.get("maximum_response")
    return said if isinstance(said, int) else _LARGEST_ANSWER


def _printable(address: str) -> str:
    """Where it is; not who sends, nor the query, which may hold a password. Where we listen has neither of them."""
    return address if is_address(address) else str(Address(address))


HTTP = Transport(
    name="http",
    type="HTTP",
    receive=Receiving(imported("crossdock.adapter.http.receive:HttpReceiveAdapter"), HttpReceiveOptions),
    send=Sending(
        imported("crossdock.adapter.http.send:HttpSendAdapter"),
        HttpSendOptions,
        answers=True,
        macros=(),
        templates=_headers,
        largest_answer=_largest_answer,
    ),
    allowing=Allowing(_holds, Prefix, schemes=("http", "https"), check=lambda place, _: Prefix(place)),
    printable=_printable,
    properties=(
        "HTTP.ContentType",
        "HTTP.Method",
        "HTTP.Path",
        "HTTP.Query",
        "HTTP.StatusCode",
        "HTTP.User",
        TRACE_PARENT,
        TRACE_STATE,
    ),
)
