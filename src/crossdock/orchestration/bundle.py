"""The Python files beside an application as one value, and modules that are loaded from it, without any file.

Each bundle is a private package of its own, so that two versions of one module live side by side in one process.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, find_spec
from itertools import islice
from pathlib import Path
from types import CodeType, ModuleType

from crossdock.component import builtins_within
from crossdock.errors import ApplicationError, UsageError
from crossdock.whole_file import DECLARED_LIMIT_BYTES, read_whole

_PRIVATE = "crossdock_version_"
_SOURCES = "__crossdock_sources__"
_FILES_AT_MOST = 2_000
_BYTES_AT_MOST = 16 * 1024 * 1024
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first day that a zip knows; the same files give the same bytes

Sources = Mapping[str, bytes]


def bundle_of(folder: Path) -> bytes:
    """A zip of every Python file beside the application and in the folders below. Raises ApplicationError."""
    content = io.BytesIO()
    size = 0
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        for number, path in enumerate(sorted(islice(_python_files(folder), _FILES_AT_MOST + 1)), start=1):
            source = _read(folder / path)
            size += len(source)
            if number > _FILES_AT_MOST or size > _BYTES_AT_MOST:
                raise ApplicationError(
                    f"{folder} has more than {_FILES_AT_MOST:,} Python files or {_BYTES_AT_MOST // 2**20} MB of them, "
                    "and all of them are stored with an orchestration; give the application a folder of its own"
                )
            bundle.writestr(zipfile.ZipInfo(path, _LONG_AGO), source, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def sources_of(bundle: bytes) -> dict[str, bytes]:
    """The files of a bundle, by their paths."""
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as files:
            return {name: files.read(name) for name in files.namelist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise ApplicationError(f"the stored source cannot be read: {error}") from error


def path_of(module: str, sources: Sources) -> str | None:
    """The path of a module in the bundle; None if the bundle has no such file."""
    place = module.replace(".", "/")
    return next((path for path in (f"{place}/__init__.py", f"{place}.py") if path in sources), None)


def has_module(top: str, sources: Sources) -> bool:
    """Whether `import top` means what is in the bundle. A folder without `__init__.py` counts if nothing else has the
    name, as beside an application.
    """
    if path_of(top, sources) is not None:
        return True
    return _is_folder(top, sources) and top not in sys.modules and find_spec(top) is None


def import_from(bundle: bytes, module: str) -> ModuleType:
    """The module of this name in the bundle, under a private name. It is loaded once."""
    return importlib.import_module(f"{_package(bundle)}.{module}")


def without_private_names(text: str, bundle: bytes) -> str:
    """An error as its author knows the names in it."""
    return text.replace(f"{_name(bundle)}.", "")


def _python_files(folder: Path) -> Iterator[str]:
    for place, below, names in os.walk(folder):
        below[:] = [name for name in below if _is_code(Path(place) / name)]
        yield from (
            (Path(place) / name).relative_to(folder).as_posix()
            for name in names
            if name.endswith(".py") and name.removesuffix(".py").isidentifier()
        )


def _is_code(folder: Path) -> bool:
    """Not the packages that are installed below the application."""
    return folder.name.isidentifier() and folder.name not in _LEFT_OUT and not (folder / "pyvenv.cfg").exists()


def _read(path: Path) -> bytes:
    try:
        return read_whole(path, DECLARED_LIMIT_BYTES)
    except UsageError as error:
        raise ApplicationError(str(error)) from error


def _name(bundle: bytes) -> str:
    return _PRIVATE + sha256(bundle).hexdigest()[:16]


def _package(bundle: bytes) -> str:
    """The name of the package that stands for a bundle; nothing of it is loaded yet."""
    name = _name(bundle)
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = []
        package.__dict__[_SOURCES] = sources_of(bundle)
        sys.modules.setdefault(name, package)
        if _Stored not in sys.meta_path:
            sys.meta_path.insert(0, _Stored)
    return name


def _is_folder(module: str, sources: Sources) -> bool:
    place = module.replace(".", "/") + "/"
    return any(path.startswith(place) for path in sources)


class _Stored:
    """Finds what is below a private package in the sources that it holds."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG004
        private, _, module = name.partition(".")
        if not private.startswith(_PRIVATE) or not module or private not in sys.modules:
            return None
        sources: Sources = sys.modules[private].__dict__[_SOURCES]
        found = path_of(module, sources)
        if found is not None:
            return ModuleSpec(
                name,
                _Loader(private, found, sources),
                origin=_file_name(private, found),
                is_package=found.endswith("__init__.py"),
            )
        return ModuleSpec(name, None, is_package=True) if _is_folder(module, sources) else None


class _Loader(InspectLoader):
    """Loads one file of a bundle. A traceback shows the stored source."""

    def __init__(self, private: str, path: str, sources: Sources) -> None:
        self._private = private
        self._path = path
        self._sources = sources

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002
        return self._path.endswith("__init__.py")

    def get_source(self, fullname: str) -> str:  # noqa: ARG002
        return decode_source(self._sources[self._path])

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        file = _file_name(self._private, self._path)
        code: CodeType = compile(self._sources[self._path], file, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__file__"] = _file_name(self._private, self._path)
        module.__dict__["__builtins__"] = builtins_within(self._private, lambda top: has_module(top, self._sources))
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - what the owner of the MessageBox deployed


def _file_name(private: str, path: str) -> str:
    """No file has this name, so that no traceback shows another file's lines."""
    return f"{private.removeprefix(_PRIVATE)}/{path}"
