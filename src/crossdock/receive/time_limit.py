"""A limit to the time that somebody's code may take, so that one endless document does not hold up all others."""

from __future__ import annotations

import faulthandler
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from crossdock.errors import OutOfTimeError

TIME_LIMIT_SECONDS = 300.0
_AGAIN_SECONDS = 1.0
LAST_RESORT_SECONDS = 5.0
_STANDARD_ERROR = 2


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside the block after so many seconds, again every second until the block is left.

    By a signal, and so in the main thread only; elsewhere `threads.py` limits it. Code in C is interrupted when it
    returns. If it does not, the process ends some seconds later: a source that ends processes is set aside, one that
    never ends would hold up all others for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _raise)
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    faulthandler.dump_traceback_later(seconds + LAST_RESORT_SECONDS, exit=True, file=_STANDARD_ERROR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if delay:  # somebody else's alarm goes on
            left = delay - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), interval)


def _raise(*_: object) -> None:
    raise OutOfTimeError
