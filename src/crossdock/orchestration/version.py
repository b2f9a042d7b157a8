"""Versions of an orchestration: its code by digest, stored in the MessageBox, loaded under a private name.

An instance goes on with the version that it began with. The digest is one of the syntax tree, so that a comment makes
no new version.
"""

from __future__ import annotations

import ast
import platform
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, packages_distributions
from importlib.metadata import version as installed_version
from pathlib import Path

from crossdock.errors import ApplicationError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.messagebox.deployment import Version
from crossdock.orchestration.bundle import (
    Sources,
    bundle_of,
    has_module,
    import_from,
    path_of,
    sources_of,
    without_private_names,
)
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.line import raising_line

_FORMAT = 1  # of the digest
_NOT_CODE = frozenset({"kind", "type_comment", "type_ignores"})
_PYTHON = "python"
_OURSELVES = "crossdock"


def version_of(folder: Path, function: str) -> Version:
    """The version of `module:name` that lies in this folder now. Raises ApplicationError."""
    bundle = bundle_of(folder)
    return version_in(bundle, function)


def version_in(bundle: bytes, function: str) -> Version:
    """The version of `module:name` that this bundle holds."""
    sources = sources_of(bundle)
    modules = reachable(function.partition(":")[0], sources)
    shapes = [(path, _shape(tree)) for path, tree in sorted(modules.items())]
    digest = sha256(repr((_FORMAT, function, shapes)).encode("utf-8", "surrogatepass")).hexdigest()
    return Version(digest, bundle, _packages(modules, sources))


def load(bundle: bytes, function: str, packages: Mapping[str, str] | None = None) -> Orchestration:
    """The orchestration `module:name` of a stored bundle.

    Raises ApplicationError with one sentence that says why it cannot be loaded here; `packages` are those that the
    version was deployed with.
    """
    module, _, name = function.partition(":")
    if not name or not all(part.isidentifier() for part in module.split(".")):
        raise ApplicationError(f"{function!r} does not name an orchestration; write it as module:function")
    if path_of(module, sources_of(bundle)) is None:
        raise ApplicationError(f"there is no module {module!r} beside the application, where its source is taken from")
    try:
        with FOREIGN_CODE:
            found = getattr(import_from(bundle, module), name, None)
    except Exception as error:
        reason = without_private_names(described(error), bundle)
        hint = _difference(error, packages or {})
        file, _, line = raising_line(error).partition(":")
        place = f"{file}, line {line}: " if line else ""
        raise ApplicationError(f"{place}module {module!r} cannot be loaded: {reason}{hint}") from error
    if not isinstance(found, Orchestration):
        what = "has no" if found is None else "does not decorate with @orchestration its"
        raise ApplicationError(f"module {module!r} {what} function {name!r}")
    return found


def reachable(module: str, sources: Sources) -> dict[str, ast.Module]:
    """The syntax trees of a module and of those in the bundle that it imports, however deep, by their paths."""
    found: dict[str, ast.Module] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = path_of(name, sources)
        if path is not None and path not in found:
            found[path] = parsed(path, sources[path])
            waiting += imported(found[path], name, is_package=path.endswith("__init__.py"))
        waiting += [parent for parent in (name.rpartition(".")[0],) if parent]
    return found


def parsed(path: str, source: bytes) -> ast.Module:
    try:
        return ast.parse(source, path)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}, line {line}" if line else path
        raise ApplicationError(f"{place}: it is not Python: {getattr(error, 'msg', error)}") from error


def imported(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """The names of all modules that a module may import, also inside its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = _start(node, module, is_package=is_package)
            if start:
                yield start
            yield from (f"{start}.{alias.name}" if start else alias.name for alias in node.names if alias.name != "*")


def _start(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    """The module that `from … import` names, with the dots of a relative import resolved."""
    if node.level == 0:
        return node.module or ""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _shape(node: object) -> object:
    """What the code does, without places, comments and docstrings; the same in every version of Python."""
    if isinstance(node, ast.AST):
        fields = [(name, _without_docstring(node, name, value)) for name, value in ast.iter_fields(node)]
        return (
            type(node).__name__,
            *((name, _shape(value)) for name, value in fields if value not in (None, []) and name not in _NOT_CODE),
        )
    if isinstance(node, list):
        return [_shape(each) for each in node]
    return (type(node).__name__, repr(node))


def _without_docstring(node: ast.AST, name: str, value: object) -> object:
    documented = isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    if name != "body" or not documented or not isinstance(value, list):
        return value
    first = value[0] if value else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return value[1:] if is_text else value


def _packages(modules: Mapping[str, ast.Module], sources: Sources) -> dict[str, str]:
    """The installed distributions that these modules import, by their versions, and Python's."""
    tops = {
        name.partition(".")[0]
        for path, tree in modules.items()
        for name in imported(tree, _module(path), is_package=path.endswith("__init__.py"))
    }
    versions = {_PYTHON: platform.python_version(), _OURSELVES: installed_version(_OURSELVES)}
    known = {_OURSELVES, *sys.stdlib_module_names}
    foreign = {top for top in tops if top not in known and not has_module(top, sources)}
    # Reads the metadata of everything that is installed, which takes a tenth of a second and more.
    distributions = packages_distributions() if foreign else {}
    for name in sorted({each for top in foreign for each in distributions.get(top, ())}):
        try:
            versions[name] = installed_version(name)
        except PackageNotFoundError:
            continue
    return versions


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _difference(error: BaseException, packages: Mapping[str, str]) -> str:
    """What is different here from where the version was deployed, if that may be why."""
    here = platform.python_version()
    if isinstance(error, SyntaxError) and packages.get(_PYTHON, here) != here:
        return f" (it was deployed with Python {packages[_PYTHON]}, and this is {here})"
    if not isinstance(error, ImportError):
        return ""
    others = []
    for name, version in packages.items():
        if name != _PYTHON:
            try:
                found = installed_version(name)
            except PackageNotFoundError:
                found = "not installed"
            others += [f"{name} {version}, here {found}"] if found != version else []
    return f" (it was deployed with {'; '.join(others)})" if others else ""
