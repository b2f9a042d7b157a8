"""Where in an author's file something happens, as `fulfilment.py:14`. Frames of ours and of libraries are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from traceback import TracebackException
from types import CodeType, FrameType
from typing import Any

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_EXAMPLES = (f"{_PACKAGE}demo{os.sep}", f"{_PACKAGE}bench{os.sep}")
_PYTHON = str(Path(os.__file__).parent) + os.sep


def is_authors(code: CodeType) -> bool:
    """Whether an author of an orchestration wrote it, as far as its file tells."""
    return not _is_ours(code) and "site-packages" not in code.co_filename


def here(boundary: CodeType) -> str:
    """The author's line that is running now, called from `boundary`; empty if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not boundary:
        if not _is_ours(frame.f_code):
            return _place(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return ""


def waiting_line(coroutine: Any) -> str:
    """The author's line at which a suspended coroutine waits, the innermost; empty if there is none."""
    places = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            places.append((frame.f_code, frame.f_lineno))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return _innermost(places)


def raising_line(error: BaseException) -> str:
    """The author's line that raised, the innermost; empty if there is none."""
    places, trace = [], error.__traceback__
    while trace is not None:
        places.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return _innermost(places)


def raised_in(error: BaseException, package: str) -> bool:
    """Whether a package of Python's own library raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(f"{_PYTHON}{package}{os.sep}")


def without_ours(told: TracebackException) -> None:
    """Take our own frames out of what is told of an error and of those before it."""
    told.stack[:] = [each for each in told.stack if not each.filename.startswith(_PACKAGE)]
    for other in (told.__cause__, told.__context__):
        if other is not None:
            without_ours(other)


def defining_line(code: CodeType) -> str:
    """Where a function is defined."""
    return _place(code, code.co_firstlineno)


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_filename.rpartition(os.sep)[2]}:{line}"


def _innermost(places: list[tuple[CodeType, int]]) -> str:
    """The last that an author wrote, or, if they installed their code as a library does, the first of a library."""
    written = [place for place in places if is_authors(place[0])]
    installed = [place for place in places if not _is_ours(place[0])]
    return _place(*written[-1]) if written else _place(*installed[0]) if installed else ""


def _is_ours(code: CodeType) -> bool:
    """Crossdock's or Python's own, but not our examples."""
    file = code.co_filename
    if file.startswith(_PACKAGE):
        return not file.startswith(_EXAMPLES)
    return file.startswith((_PYTHON, "<frozen")) and "site-packages" not in file
