"""Text from elsewhere, such as the name of a file, made harmless for terminals and logs."""

from __future__ import annotations

import json
import logging
import unicodedata
from datetime import UTC, datetime


def printable(text: str) -> str:
    """Letters of any language and blanks stay; what controls a terminal or the direction of text is escaped."""
    if text.isprintable():
        return text
    return "".join(letter if _is_plain(letter) else _escaped(letter) for letter in text)


def printable_lines(text: str) -> str:
    """The same for text that has lines of its own."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(document: str) -> str:
    """The same document, in which nothing but its own line breaks is not printable."""
    lines = (line if line.isprintable() else "".join(map(_in_json, line)) for line in document.split("\n"))
    return "\n".join(lines)


class OneLine(logging.Formatter):
    """A record is one line, whatever its values hold; the lines of a traceback below it are indented."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return _utc(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # which a formatter before us may have left there
        try:
            return super().format(record)
        finally:
            record.exc_text = None

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(stack_info)


class JsonLine(logging.Formatter):
    """A record is one JSON document in one line. What `extra={"facts": …}` says of it are members of its own."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": _utc(record), "level": record.levelname.lower(), "logger": record.name}
        told |= {"message": record.getMessage(), **getattr(record, "facts", {})}
        if record.exc_info:
            told["exception"] = logging.Formatter().formatException(record.exc_info)
        return printable_json(json.dumps(told, default=str, ensure_ascii=False))


def _utc(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _indented(lines: str) -> str:
    return "\n".join(f"  {printable(line)}" for line in lines.split("\n"))


def _is_plain(letter: str) -> bool:
    return letter.isprintable() or unicodedata.category(letter) == "Zs"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _in_json(letter: str) -> str:
    return letter if _is_plain(letter) else json.dumps(letter)[1:-1]
