"""Custom components: Python callables that an application names as `module:name`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossdock.errors import ApplicationError


def load_callable(name: str, folder: str | None) -> Callable[..., Any]:
    """The callable; its module is looked for in `folder` first. Raises ApplicationError."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ApplicationError(f"{name!r} does not name a function; write it as module:function")
    try:
        with _searched(folder):
            found = importlib.import_module(module)
    except Exception as error:
        raise ApplicationError(f"module {module!r} cannot be imported: {type(error).__name__}: {error}") from error
    called = getattr(found, attribute, None)
    if not callable(called):
        raise ApplicationError(f"module {module!r} has no function {attribute!r}")
    return called  # type: ignore[no-any-return]


@contextmanager
def _searched(folder: str | None) -> Any:
    """Python looks into the folder too, for as long as it takes: what it finds stays loaded."""
    place = None if folder is None else str(Path(folder))
    if place is None or place in sys.path:
        yield
        return
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
