"""Calls of a receive adapter, which may be foreign code: whatever it raises or gives, one source fails and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from crossdock.adapter.contract import ReceiveAdapter
from crossdock.errors import TransientError
from crossdock.foreign import FOREIGN_CODE, described

# A path has no more. A row may be named by a key of megabytes, and each of its messages has the name in its context.
NAME_LIMIT = 4_096

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def called(method: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs) -> _Result:
    """What the method of an adapter gives. Whatever it raises is a TransientError: the source is still there."""
    try:
        with FOREIGN_CODE:
            return method(*given, **named)
    except TransientError:
        raise
    except Exception as error:
        raise TransientError(f"its adapter failed: {described(error)}") from error


def source_name(adapter: ReceiveAdapter, identity: bytes) -> str:
    """What the adapter calls the source, cut where it is too long; its identity, where the adapter gives no text."""
    try:
        with FOREIGN_CODE:
            name = adapter.name(identity)[: NAME_LIMIT + 1].encode("utf-8", "backslashreplace").decode()
    except Exception:
        name = identity[: NAME_LIMIT + 1].decode("utf-8", "backslashreplace")
    return name if len(name) <= NAME_LIMIT else name[: NAME_LIMIT - 1] + "…"
