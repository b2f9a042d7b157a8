"""How the command line logs: lines with time and level on standard error, for people or as JSON for programs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.logging import RichHandler

from crossdock.printable import JsonLine, OneLine

TEXT = "%(asctime)s %(levelname)s: %(message)s"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", envvar="CROSSDOCK_LOG_LEVEL", help="The least that is logged.")
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="CROSSDOCK_LOG_FORMAT", help="Lines for people, or a JSON document in each."),
]


class Logs(NamedTuple):
    """What is logged, and how."""

    level: LogLevel = LogLevel.WARNING
    format: LogFormat = LogFormat.TEXT


@contextmanager
def logging_to(err: Console, logs: Logs) -> Iterator[None]:
    """Until the end of the block. On a terminal the lines stay above the one that changes."""
    if logs.format is LogFormat.TEXT and err.is_terminal:
        handler: logging.Handler = RichHandler(console=err, show_path=False, omit_repeated_times=False, markup=False)
        handler.setFormatter(OneLine("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLine() if logs.format is LogFormat.JSON else OneLine(TEXT))
    root = logging.getLogger("crossdock")
    before = root.level
    root.setLevel(logs.level.upper())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
