"""The demo's application at work in a thread. Whoever waits for it sees a bar for each port, which grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from threading import Condition, Event, Thread

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from crossdock.administration.running import Applied, Deployment, Statistics, Summary, run
from crossdock.cli.output import Progress, table_of
from crossdock.errors import InterruptedDemoError
from crossdock.settings import Settings

_LOOK_SECONDS = 0.2  # somebody may have pressed Ctrl-C
_NARROWEST, _WIDEST = 10, 40
_BESIDE_BARS = 40  # columns of the terminal


class AtWork:
    """A run in a thread, from the start until `end`. `latest` is what it reported last."""

    def __init__(self, deployment: Deployment, settings: Settings, stop: Event, err: Console) -> None:
        self._deployment, self._settings, self._stop, self._err = deployment, settings, stop, err
        self._names = [port.name for port in deployment.ports]
        self._changed = Condition()
        self._applied: Applied | None = None
        self._progress = Progress(err, None)
        self._ended: Future[Summary] = Future()
        self.latest = Statistics()
        Thread(target=self._run, name="demo", daemon=True).start()

    def wait_until_deployed(self) -> str:
        """One line about the deployment."""
        self._wait(lambda: self._applied is not None, "PostgreSQL starts")
        assert self._applied is not None
        return self._applied.summary

    def wait(self, until: Callable[[Statistics], bool], doing: str) -> None:
        """Until a report says so. On a terminal bars grow meanwhile. Raises InterruptedDemoError."""
        self._wait(lambda: until(self.latest), doing)

    def end(self) -> Summary:
        """Stop it, and wait for its end. Raises what has ended it."""
        self._stop.set()
        with self._err.status("stopping") if self._err.is_terminal else nullcontext():
            return self._ended.result()

    def _wait(self, holds: Callable[[], bool], doing: str) -> None:
        began = time.monotonic()
        bars = Live(get_renderable=lambda: self._shown(doing, began), console=self._err, transient=True)
        with bars if self._err.is_terminal else nullcontext(), self._changed:
            while not holds():
                if self._stop.is_set() or self._ended.done():
                    raise InterruptedDemoError
                self._changed.wait(_LOOK_SECONDS)

    def _run(self) -> None:
        try:
            summary = run(
                self._deployment,
                self._settings,
                until_idle=False,
                stop=self._stop,
                progress=self._report,
                deployed=self._deployed,
            )
            self._ended.set_result(summary)
        except BaseException as error:
            self._ended.set_exception(error)

    def _deployed(self, applied: Applied) -> None:
        with self._changed:
            self._applied = applied
            self._changed.notify_all()

    def _report(self, phase: str, statistics: Statistics) -> None:
        with self._changed:
            self.latest = statistics
            self._changed.notify_all()
        if not self._err.is_terminal:
            self._progress(phase, statistics)

    def _shown(self, doing: str, began: float) -> Group:
        told = self.latest
        bars = bars_of({name: told.ports.get(name, 0) for name in self._names}, self._err.width)
        line = f"{doing}: {time.monotonic() - began:.0f} s, received {told.received:,}, delivered {told.delivered:,}"
        return Group(bars, Text(line, no_wrap=True, style="dim"))


def bars_of(delivered: Mapping[str, int], width: int, kept: Mapping[str, int] | None = None) -> Table:
    """How many each port has delivered, as long as the most that one has; and how many are `kept` for it."""
    most = max(delivered.values(), default=0) or 1
    longest = max(_NARROWEST, min(_WIDEST, width - _BESIDE_BARS))
    rows: Sequence[dict[str, object]] = [
        {"send port": name, "delivered": count, "": "█" * -(-count * longest // most)}
        | ({} if kept is None else {"suspended": kept.get(name, 0)})
        for name, count in delivered.items()
    ]
    return table_of(rows)
