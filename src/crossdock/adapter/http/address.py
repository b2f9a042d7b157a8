"""The address of an http location: where to listen, and for which path."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import unquote

from crossdock.errors import ApplicationError


class HttpAddress(NamedTuple):
    """`host` is without brackets, `path` decoded and at least a slash."""

    scheme: str
    host: str
    port: int
    path: str


_ADDRESS = re.compile(
    r"(?:(?P<scheme>https?)://(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)))?"
    r":(?P<port>[0-9]{1,5})(?P<path>/[^?#\s\x00-\x1f\x7f\\]*)?"
)


def parse_address(address: str) -> HttpAddress:
    """Take `http://HOST:PORT/PATH`, https the same, or `:PORT/PATH` for this machine only; ApplicationError else."""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise _wrong(address)
    try:
        path = unquote(found["path"] or "/", errors="strict")
        host = str(ipaddress.IPv6Address(found["v6"])) if found["v6"] else found["host"] or "127.0.0.1"
    except ValueError:
        raise _wrong(address) from None
    return HttpAddress(found["scheme"] or "http", host, int(found["port"]), path)


def is_address(address: str) -> bool:
    """Whether it is written as where to listen, which has neither a user nor a query."""
    return _ADDRESS.fullmatch(address) is not None


def _wrong(address: str) -> ApplicationError:
    shown = re.sub(r"[?#].*", "", re.sub(r"//.*@", "//", address, flags=re.DOTALL), flags=re.DOTALL)
    return ApplicationError(
        f"{shown!r} is no address for http: write http://HOST:PORT/PATH, https://HOST:PORT/PATH or :PORT/PATH,"
        " without a user and without a query"
    )
