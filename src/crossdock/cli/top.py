"""The live screen of `crossdock top`: rates, queues, hosts, what is suspended, and the busiest ports."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from crossdock.cli.keyboard import Keyboard, keyboard
from crossdock.errors import TransientError
from crossdock.printable import printable

if TYPE_CHECKING:
    from crossdock.administration.samples import Sample, ServiceSample

_STALE_SECONDS = 30.0
_CODES = 5
_HEAD_LINES = 6  # the first lines, and the blank ones between the tables
_FEWEST_PORTS = 3

_SORTS: dict[str, Callable[[ServiceSample], tuple[float, ...]]] = {
    "rate": lambda port: (port.delivered_per_second, port.delivered),
    "queued": lambda port: (port.ready + port.claimed + port.waiting,),
    "suspended": lambda port: (port.suspended + port.suspended_instances, port.failed),
    "oldest": lambda port: (port.oldest_seconds or 0,),
}
_NAME = "name"


@dataclass(slots=True)
class Screen:
    """What is shown, as somebody has asked for it by keys."""

    sort: str = "rate"
    first: int = 0
    paused: bool = False

    def press(self, key: str, page: int = 10) -> None:
        """p pauses, s sorts by the next column, arrows scroll."""
        match key:
            case "p":
                self.paused = not self.paused
            case "s":
                order = [*_SORTS, _NAME]
                self.sort, self.first = order[(order.index(self.sort) + 1) % len(order)], 0
            case "up" | "k":
                self.first -= 1
            case "down" | "j":
                self.first += 1
            case "page up":
                self.first -= page
            case "page down":
                self.first += page
            case "home":
                self.first = 0
        self.first = max(self.first, 0)

    def shown(self, sample: Sample, height: int, *, age: float | None = None, with_keys: bool = True) -> RenderableType:
        """Everything, in so many lines. `age` of the sample, in seconds, if that is more than when it was read."""
        hosts = _hosts(sample)
        parts: list[RenderableType] = [*_head(sample, sample.age_seconds if age is None else age), Text(), hosts]
        taken = _HEAD_LINES + hosts.row_count + 1
        if sample.box.suspensions:
            codes = _codes(sample)
            parts += [Text(), codes]
            taken += codes.row_count + 2
        ports = self._sorted(sample.details.services)
        room = max(height - taken - 2, _FEWEST_PORTS)
        self.first = min(self.first, max(len(ports) - room, 0))
        parts += [Text(), _ports(ports[self.first : self.first + room])]
        return Group(*parts, self._foot(len(ports), room)) if with_keys else Group(*parts)

    def _sorted(self, ports: Sequence[ServiceSample]) -> list[ServiceSample]:
        if self.sort == _NAME:
            return sorted(ports, key=lambda each: each.name)
        return sorted(ports, key=_SORTS[self.sort], reverse=True)

    def _foot(self, count: int, room: int) -> Text:
        last = min(self.first + room, count)
        where = f"{self.first + 1}-{last} of {count}" if count else "none"
        state = "PAUSED  " if self.paused else ""
        return Text(f"{state}by {self.sort}, {where}   q quit  p pause  s sort  arrows scroll", style="dim")


def live(read: Callable[[], Sample], seconds: float, out: Console, descriptor: int | None = None) -> None:
    """Until q or Ctrl-C. Reads every so many seconds; while PostgreSQL is away what was read last grows old."""
    with keyboard(sys.stdin.fileno() if descriptor is None else descriptor) as keys:
        screen, sample, read_at = Screen(), read(), time.monotonic()
        with Live(console=out, screen=True, auto_refresh=False) as shown:
            for key in _pressed(keys, seconds):
                if key is not None:
                    screen.press(key, page=max(out.height - 15, 1))
                elif not screen.paused:
                    with suppress(TransientError):
                        sample, read_at = read(), time.monotonic()
                age = sample.age_seconds + time.monotonic() - read_at
                shown.update(screen.shown(sample, out.height, age=age), refresh=True)


def _pressed(keys: Keyboard, seconds: float) -> Iterator[str | None]:
    """Keys, and None when it is time to read again; ends with q."""
    yield None
    due = time.monotonic() + seconds
    while True:
        found = keys.pressed(max(due - time.monotonic(), 0.01))
        for key in found:
            if key == "q":
                return
            yield key
        if time.monotonic() >= due:
            due = time.monotonic() + seconds
            yield None


def _head(sample: Sample, age: float) -> list[Text]:
    box, rate = sample.box, sample.box.per_second
    about = "" if box.exact else " (large queues are estimates)"
    stale = f"   NOBODY SAMPLES: this is {_age(age)} old" if age > _STALE_SECONDS else ""
    return [
        Text(f"Crossdock  {sample.at:%Y-%m-%d %H:%M:%S} UTC{about}{stale}", style="bold"),
        Text(
            f"per second: received {_rate(rate.received)}  published {_rate(rate.published)}  "
            f"delivered {_rate(rate.delivered)}  retried {_rate(rate.retried)}  "
            f"suspended {_rate(rate.suspended + rate.receive_suspended)}  unrouted {_rate(rate.unrouted)}"
        ),
        Text(
            f"there: unread {box.unread:,}  ready {box.ready:,}  in hand {box.claimed:,}  waiting {box.waiting:,}  "
            f"suspended {box.suspended:,}  unrouted {box.unrouted:,}  instances {box.instances:,}  "
            f"oldest {_age(box.oldest_seconds)}"
        ),
    ]


def _hosts(sample: Sample) -> Table:
    table = _table("host", "instances", ready=1, in_hand=1, waiting=1, suspended=1, oldest=1)
    for host in sample.box.hosts:
        lives = ", ".join(f"{count} {state}" for state, count in host.instances.items()) or "NONE"
        figures = (f"{each:,}" for each in (host.ready, host.in_hand, host.waiting, host.suspended))
        table.add_row(*map(_cell, (host.name, lives, *figures, _age(host.oldest_seconds))))
    return table


def _codes(sample: Sample) -> Table:
    table = _table("suspended by code", "kind", messages=1, oldest=1)
    for each in sample.box.suspensions[:_CODES]:
        table.add_row(*map(_cell, (each.code, each.kind, f"{each.count:,}", _age(each.oldest_seconds))))
    return table


def _ports(ports: Sequence[ServiceSample]) -> Table:
    right = dict.fromkeys(("per_second", "delivered", "ready", "waiting", "suspended", "oldest"), 1)
    table = _table("port", "state", **right)
    for port in ports:
        state = port.state if port.class_ != "orchestration" else f"{port.state}, {port.running_instances:,} instances"
        suspended = port.suspended + port.suspended_instances
        figures = (port.delivered, port.ready + port.claimed, port.waiting, suspended)
        row = (port.name, state, _rate(port.delivered_per_second), *(f"{each:,}" for each in figures))
        table.add_row(*map(_cell, (*row, _age(port.oldest_seconds))))
    return table


def _table(*left: str, **right: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in left:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in right:
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    return table


def _cell(value: str) -> Text:
    return Text(printable(value))


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def once(sample: Sample, out: Console) -> None:
    """The same as lines, with every port that is listed."""
    screen = Screen()
    out.print(screen.shown(sample, height=len(sample.details.services) + 1000, with_keys=False))
