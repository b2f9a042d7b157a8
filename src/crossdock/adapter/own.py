"""Adapters of an application's own: classes that it names as `module:Class`, made as the built-in ones are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

from crossdock.adapter.contract import is_pushed
from crossdock.adapter.secret import without_secrets
from crossdock.adapter.transport import Receiving, Sending, Transport
from crossdock.component import load_callable
from crossdock.errors import ApplicationError, CrossdockError
from crossdock.foreign import FOREIGN_CODE, described

_POLLED = ("list", "read", "acknowledge", "name")
_PUSHED = ("start", "close", "stop")
_SENDING = ("send", "close")


def is_own(kind: str) -> bool:
    """Whether it names a class of the application's own."""
    return ":" in kind


def own_transport(kind: str, code: str) -> Transport:
    """What a class says of itself; its module is looked for in the folder `code` first, once an adapter is made."""
    return Transport(
        name=kind,
        type=kind.rpartition(":")[2],
        receive=Receiving(partial(_made, kind, code, lambda adapter: _PUSHED if is_pushed(adapter) else _POLLED)),
        send=Sending(partial(_made, kind, code, lambda _: _SENDING), answers=True),
        printable=without_user,
    )


def _made(kind: str, code: str, methods: Callable[[Any], Sequence[str]], address: str, /, **options: Any) -> Any:
    """`Class(address, **options)`, which has these methods. Raises ApplicationError."""
    class_ = load_callable(kind, code, what="class")
    try:
        signature(class_).bind(address, **options)
    except TypeError as error:
        raise ApplicationError(f"adapter {kind!r} cannot be made with its address and options: {error}") from error
    except ValueError:  # not every class tells
        pass
    try:
        with FOREIGN_CODE:
            adapter = class_(address, **options)
            needed = methods(adapter)
            missing = [method for method in needed if not callable(getattr(adapter, method, None))]
    except CrossdockError as error:
        raise ApplicationError(without_secrets(str(error), address, options)) from None
    except Exception as error:
        # Not chained: what code that is not ours says of an address may quote it.
        told = without_secrets(described(error), address, options)
        raise ApplicationError(f"adapter {kind!r} cannot be made: {told}") from None
    if missing:
        raise ApplicationError(f"adapter {kind!r} has no method {missing[0]!r}; it needs {', '.join(needed)}")
    return adapter


def without_user(address: str) -> str:
    """An address to show: if it is a URL, without who uses it, which may be a password, and without other secrets."""
    return without_secrets(re.sub(r"(?<=://)[^/?#]*@", "", address), address, {})
