"""Secrets in addresses and options: written there, or only the name of the environment variable that holds them."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html.entities import codepoint2name
from typing import Any
from urllib.parse import quote, unquote

from crossdock.errors import TransientError

_FROM_ENVIRONMENT = "env:"
_NAMES = re.compile(
    "pass|pwd|secret|token|auth|credential|basic|odbc_connect|(api|access|account|shared|private).?key|^sig",
    re.IGNORECASE,
)
_USER = re.compile(r"://([^/?#]*)@")
_PARAMETER = re.compile(r"(?<=[?&;])([^=&;#]+)=([^&;#]*)")


def secret(value: str) -> str:
    """What `env:NAME` stands for now, or else the value itself. TransientError: there is no such variable."""
    if not value.startswith(_FROM_ENVIRONMENT):
        return value
    name = value.removeprefix(_FROM_ENVIRONMENT)
    held = os.environ.get(name)
    if not held:
        raise TransientError(f"the environment variable {name!r} is not set; set it where the host runs")
    return held


def is_secret(value: str) -> bool:
    """Whether the value only names where the secret is."""
    return value.startswith(_FROM_ENVIRONMENT)


def held_secret(value: str) -> str:
    """As `secret`, to hide it: what is not set stands for itself."""
    return os.environ.get(value.removeprefix(_FROM_ENVIRONMENT)) or value if is_secret(value) else value


def names_a_secret(name: str) -> bool:
    """Whether an option of this name holds one, as far as can be told."""
    return _NAMES.search(name) is not None


def without_secrets(text: str, address: str, options: Mapping[str, Any]) -> str:
    """The text without what nobody may read of an address and its options, whoever wrote it: an adapter, a driver."""
    return hidden(text, [*_in_address(address), *_in_options(options, secret=False)])


def in_base64(user: str, password: str) -> list[str]:
    """As basic authentication sends them, with and without what fills up the end."""
    encoded = b64encode(f"{user}:{password}".encode("utf-8", "replace")).decode()
    return [encoded, encoded.rstrip("=")]


def _in_address(address: str) -> Iterator[str]:
    """Its password, or its user if there is none, since it may be a token; and what the names of parameters tell."""
    found = _USER.search(address)
    if found is not None:
        user, _, password = found[1].partition(":")
        yield from _held(password or user)
        yield from in_base64(held_secret(unquote(user)), held_secret(unquote(password)))
    for name, value in _PARAMETER.findall(address):
        if names_a_secret(name) or is_secret(value):
            yield from _held(value)


def _in_options(value: Any, *, secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        users = value.items() if secret else [(value.get("user"), value.get("password"))]
        for user, password in users:
            if isinstance(user, str) and isinstance(password, str):
                yield from in_base64(held_secret(user), held_secret(password))
        for name, each in value.items():
            yield from _in_options(each, secret=secret or names_a_secret(str(name)))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _in_options(each, secret=secret)
    elif isinstance(value, str) and (secret or is_secret(value)):
        yield from _held(value)


def _held(value: str) -> set[str]:
    """What it stands for, as it is or as it is written in a URL."""
    return {held_secret(value), held_secret(unquote(value))}


def hidden(text: str, secrets: list[str]) -> str:
    """The text without the secrets, the longest first, since one may be a part of another; nor as JSON, HTML and URLs
    write them."""
    for each in sorted(filter(None, secrets), key=len, reverse=True):
        text = _spellings(each).sub("***", text.replace(each, "***"))
    return text


@lru_cache(maxsize=256)
def _spellings(value: str) -> re.Pattern[str]:
    return re.compile("".join(map(_spellings_of, value)))


def _spellings_of(letter: str) -> str:
    """Atomic, and the longest first: the time to look for a secret grows no faster than the text."""
    if letter.isascii() and letter.isalnum():
        return letter
    code = ord(letter)
    texts = [letter, f"\\{letter}", quote(letter, safe="", errors="replace"), json.dumps(letter)[1:-1]]
    texts += [f"\\u{code:04x}", f"&{codepoint2name.get(code, '')};", "+" if letter == " " else letter]
    ways = [f"&#x0*{code:x};", f"&#0*{code};", *map(re.escape, sorted(texts, key=len, reverse=True))]
    return f"(?>(?i:{'|'.join(ways)}))"
