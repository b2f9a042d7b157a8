"""Code that is not ours: an application's, and the libraries it calls. What it raises fails its message, nothing else.

`sys.exit()`, `GeneratorExit`, a cancelled task and the panic of a library in Rust are not an Exception: past an
`except Exception` they would end the thread or the process, again on every start.
"""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Final

from crossdock.errors import ForeignError, Interruption


class _ForeignCode:
    """Has no state: threads share it, and one block may be inside another. Never put a `yield` into the block."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception | Interruption) or _stops_us(error):
            return
        raise ForeignError(described(error)) from error


# `with FOREIGN_CODE:` around a call of foreign code; whatever it raises leaves the block as an Exception.
FOREIGN_CODE: Final = _ForeignCode()


def described(error: BaseException) -> str:
    """`Type: text`. The text is made by foreign code too, and may fail."""
    if isinstance(error, ForeignError):
        return str(error)
    try:
        with FOREIGN_CODE:
            return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose text cannot be made"


def _stops_us(error: BaseException) -> bool:
    """A real Ctrl-C: it arrives in the main thread, and as an exception only where nobody handles the signal."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
