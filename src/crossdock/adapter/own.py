"""Adapters of an application's own: classes that it names as `module:Class`, made as the built-in ones are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from crossdock.component import load_callable
from crossdock.errors import ApplicationError, CrossdockError

RECEIVING = ("list", "read", "acknowledge", "name")
SENDING = ("send", "close")


def own_adapter(kind: str, code: str, address: str, options: Mapping[str, Any], methods: Sequence[str]) -> Any:
    """`Class(address, **options)`; its module is looked for in the folder `code` first. Raises ApplicationError."""
    made_by = load_callable(kind, code, what="class")
    try:
        signature(made_by).bind(address, **options)
    except TypeError as error:
        raise ApplicationError(f"adapter {kind!r} cannot be made with its address and options: {error}") from error
    except ValueError:  # not every class tells
        pass
    try:
        adapter = made_by(address, **options)
    except CrossdockError as error:
        raise ApplicationError(str(error)) from error
    except Exception as error:
        raise ApplicationError(f"adapter {kind!r} cannot be made: {type(error).__name__}: {error}") from error
    missing = [method for method in methods if not callable(getattr(adapter, method, None))]
    if missing:
        raise ApplicationError(f"adapter {kind!r} has no method {missing[0]!r}; it needs {', '.join(methods)}")
    return adapter


def without_user(address: str) -> str:
    """An address to show: if it is a URL, without who uses it, which may be a password."""
    return re.sub(r"(?<=://)[^/?#]*@", "", address)
