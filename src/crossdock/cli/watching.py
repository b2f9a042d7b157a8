"""Watching a MessageBox: the command `top`, and lists that are shown again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from crossdock.cli.asked import Place, asking
from crossdock.cli.options import Output, stop_on_signals
from crossdock.cli.output import Format
from crossdock.errors import TransientError
from crossdock.printable import printable

Watch = Annotated[
    float | None,
    typer.Option(min=0.1, max=86_400, metavar="[SECONDS]", help="Show it again every so many seconds, by default 2."),
]
_SECONDS = "2"
_CLEAR = "\x1b[H\x1b[2J"

_Read = TypeVar("_Read")


@asking
def top(
    place: Place,
    once: Annotated[bool, typer.Option("--once", help="Print what there is now, and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
    output: Output = Format.TABLE,
) -> None:
    """Show rates, queues, hosts, what is suspended and the busiest ports, live: q quits, p pauses, s sorts.

    It reads the samples that `run`, `pipeline` and `host` take every five seconds, and costs the MessageBox no more.
    """
    from crossdock.cli import top as screen
    from crossdock.cli.output import columns_of, console, print_json
    from crossdock.errors import UsageError

    if output is Format.JSON and not once:
        raise UsageError("A live screen is no JSON document. Use: crossdock top --once -o json")
    with place.asked() as service:
        if output is Format.JSON:
            print_json(columns_of(service.sample()))
        elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            screen.once(service.sample(), console())
        else:
            screen.live(service.sample, interval, console())


class WatchedCommand(TyperCommand):
    """A command whose `--watch` may be followed by seconds, and need not be."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_seconds(args))


def with_seconds(words: Sequence[str]) -> list[str]:
    """The words of a command line, with the usual seconds after a `--watch` that is followed by none."""
    found: list[str] = []
    for position, word in enumerate(words):
        if word == "--":
            return [*found, *words[position:]]
        found.append(word)
        if word == "--watch" and not _is_number(words[position + 1] if position + 1 < len(words) else ""):
            found.append(_SECONDS)
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def shown(read: Callable[[], _Read], show: Callable[[_Read], None], output: Format, every: float | None) -> None:
    """Once, or again `every` so many seconds until Ctrl-C: on a terminal in place, elsewhere one after the other.

    While PostgreSQL is away that is said on standard error, and it is read again.
    """
    if every is None:
        show(read())
        return
    stop, for_people = stop_on_signals(), output in (Format.TABLE, Format.WIDE)
    between = (_CLEAR if sys.stdout.isatty() else "\n") if for_people else ""
    before = between if sys.stdout.isatty() else ""
    while not stop.is_set():
        try:
            found = read()
        except TransientError as error:
            sys.stderr.write(f"crossdock: {printable(str(error))}\n")
        else:
            sys.stdout.write(before)
            show(found)
            sys.stdout.flush()
            before = between
        stop.wait(every)
