"""Secrets in options: written there, or only the name of the environment variable that holds them."""

from __future__ import annotations

import os

from crossdock.errors import TransientError

_FROM_ENVIRONMENT = "env:"


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


def hidden(text: str, secrets: list[str]) -> str:
    """The text without the secrets, the longest first, since one may be a part of another."""
    for each in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(each, "***")
    return text
