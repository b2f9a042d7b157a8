"""Atomic functions: called by the engine in the transaction of a step, with their outcome recorded for replays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from crossdock.errors import AtomicError, DocumentError, brief
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.message.document import parse_json, write_json
from crossdock.orchestration.history import AtomicDone, Raised
from crossdock.orchestration.stepped import AtomicWanted


def perform(wanted: AtomicWanted, *leading: object) -> AtomicDone:
    """Call the function with `leading` (the connection) before its arguments. What it raises is an outcome.

    Where `error` is not None the caller rolls back to the savepoint that it made before.
    """
    try:
        with FOREIGN_CODE:
            value = wanted.function(*leading, *wanted.arguments)
    except Exception as error:
        return AtomicDone(wanted.number, error=_recorded(error))
    try:
        return AtomicDone(wanted.number, write_json(value))
    except DocumentError as error:
        told = AtomicError(f"atomic function {name_of(wanted.function)!r} returns what JSON cannot hold: {error}")
        return AtomicDone(wanted.number, error=_recorded(told))


def restored(done: AtomicDone, *functions: Callable[..., Any]) -> tuple[Any, BaseException | None]:
    """The value, or the error as the class that it had. The class is looked for where the functions were written."""
    if done.error is None:
        return parse_json(done.value), None
    recorded = done.error
    for kind in _classes(recorded.kind, functions):
        try:
            with FOREIGN_CODE:
                return None, kind(*parse_json(recorded.arguments))
        except Exception:  # noqa: S112 - its class does not take its own arguments: the general error has the text
            continue
    return None, AtomicError(recorded.text)


def name_of(function: Callable[..., Any]) -> str:
    """A partial function, or an object that can be called, has no name of its own."""
    return getattr(function, "__name__", type(function).__name__)


def _recorded(error: Exception) -> Raised:
    kind = f"{type(error).__module__}:{type(error).__qualname__}"
    text = brief(described(error))
    try:
        arguments = write_json(list(error.args))
    except DocumentError:
        arguments = write_json([text])
    return Raised(kind, arguments, text)


def _classes(kind: str, functions: tuple[Callable[..., Any], ...]) -> Iterator[type[Exception]]:
    """Those of this name: of the module that raised, then of the author's, which another process names otherwise."""
    module, _, name = kind.partition(":")
    places = [vars(sys.modules[module])] if module in sys.modules else []
    places += [getattr(function, "__globals__", {}) for function in functions]
    for place in places:
        found: Any = place.get(name.partition(".")[0])
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, Exception):
            yield found
