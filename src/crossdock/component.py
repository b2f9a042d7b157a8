"""Code of an application's own, which it names as `module:name`: components of pipelines, maps, adapters.

A module beside the application file is loaded under a private name that its folder has, and so are those beside it that
it imports: two applications may each have a `checks.py`, and one of them a `queue.py`, in the same process.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from crossdock.errors import ApplicationError
from crossdock.foreign import FOREIGN_CODE, described

_PRIVATE = "crossdock_application_"


def load_callable(name: str, folder: str | None, *, what: str = "function") -> Callable[..., Any]:
    """The function or class; its module is looked for in `folder` first. Raises ApplicationError."""
    module, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise ApplicationError(f"{name!r} does not name a {what}; write it as module:{what}")
    private = None if folder is None else _package(Path(folder))
    try:
        with FOREIGN_CODE:
            beside = private is not None and _is_beside(private, module.partition(".")[0])
            found = importlib.import_module(f"{private}.{module}" if beside else module)
            called = getattr(found, attribute, None)
    except Exception as error:
        reason = described(error).replace(f"{private}.", "")
        raise ApplicationError(f"module {module!r} cannot be imported: {reason}") from error
    if not callable(called):
        raise ApplicationError(f"module {module!r} has no {what} {attribute!r}")
    return called  # type: ignore[no-any-return]


def load_function(name: str, folder: str | None) -> Callable[[Any], Any]:
    """A function of a pipeline or a map: it is called with one argument, and gives its result at once."""
    called = load_callable(name, folder)
    _check_signature(name, called)
    return called


def _check_signature(name: str, called: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise ApplicationError(f"{name!r} is a coroutine, and here a plain function is called; write it with `def`")
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some functions that are written in C do not say
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ApplicationError(f"{name!r} is called with one argument, and takes {signature}") from error


def builtins_beside(folder: Path) -> Mapping[str, Any]:
    """What code in this folder has for builtins: its imports find what lies beside it first, whenever they are run."""
    private = _package(folder)
    return builtins_within(private, lambda top: _is_beside(private, top))


def builtins_within(private: str, is_beside: Callable[[str], bool]) -> Mapping[str, Any]:
    """The same for the code of a private package: `is_beside` says whether the package has a module of that name."""
    known: dict[str, bool] = {}

    def import_(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level == 0 and top not in known:
            known[top] = is_beside(top)
        if level != 0 or not known[top]:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = importlib.import_module(f"{private}.{name}")
        if not fromlist:
            return sys.modules[f"{private}.{top}"]
        return builtins.__import__(found.__name__, globals, locals, fromlist, 0)

    return {**vars(builtins), "__import__": import_}


def _package(folder: Path) -> str:
    """The name of the package that stands for a folder; nothing of it is loaded yet."""
    place = str(folder.resolve())
    name = _PRIVATE + sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [place]
        sys.modules.setdefault(name, package)
        if _Beside not in sys.meta_path:
            sys.meta_path.insert(0, _Beside)
    return name


def _is_beside(private: str, top: str) -> bool:
    """A mere folder of that name, which may hold anything, is only taken for code if nothing else has the name."""
    found = _Beside.find_spec(f"{private}.{top}", sys.modules[private].__path__)
    if found is None or found.loader is not None:
        return found is not None
    return top not in sys.modules and find_spec(top) is None


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        package = sys.modules[module.__name__.partition(".")[0]]
        module.__dict__["__builtins__"] = builtins_beside(Path(package.__path__[0]))
        super().exec_module(module)


_KINDS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (_Loader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


class _Beside:
    """Finds what is below a private package. It does not remember what a folder held: files may come later."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_PRIVATE) or path is None:
            return None
        found = (FileFinder(place, *_KINDS).find_spec(name, target) for place in path)
        return next((spec for spec in found if spec is not None), None)
