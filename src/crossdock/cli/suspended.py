"""The commands by which people deal with suspended messages: save, resume, terminate and edit them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crossdock.cli.asked import Place, acting
from crossdock.cli.options import (
    AnyIds,
    Code,
    MessageType,
    Output,
    Personal,
    PortOf,
    SuspendedSince,
    Where,
    stop_on_signals,
)
from crossdock.cli.output import Format

if TYPE_CHECKING:
    from crossdock.administration.service import Outcome, Selection
    from crossdock.cli.asked import Asked

suspended = typer.Typer()

All = Annotated[bool, typer.Option("--all", help="All of them, also where a message is suspended at several ports.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Rate = Annotated[float | None, typer.Option(min=0.1, help="How many in a second at most.")]
_SAMPLE = 5
_IDS_LIMIT = 64 * 1024 * 1024


_DEALING: dict[Literal["resume", "terminate"], str] = {
    "resume": "Take suspended messages up again: deliver, route or receive them once more."
    "\n\nOr let suspended instances go on, with the code that is deployed now if that replays their history. The exit "
    "code is 3 if anything is left suspended. Ctrl-C finishes the batch in hand and says what is done.",
    "terminate": "End suspended messages, or instances, for good. Save messages first if their bytes are still needed."
    "\n\nNo code of an instance is run; `crossdock cancel` lets it undo what it has done. Ctrl-C finishes the batch in "
    "hand and says what is done.",
}


def _dealing(action: Literal["resume", "terminate"]) -> Callable[..., None]:
    @acting
    def deal(
        place: Place,
        ids: AnyIds = None,
        port: PortOf = None,
        code: Code = None,
        type_: MessageType = None,
        where: Where = None,
        since: SuspendedSince = None,
        personal: Personal = False,
        everything: All = False,
        yes: Yes = False,
        rate: Rate = None,
        output: Output = Format.TABLE,
    ) -> None:
        selection = _selection(ids, port, code, type_, where, since, everything=everything, personal=personal)
        _deal(action, place.asked(), selection, yes=yes, rate=rate, output=output)

    return deal


for _action, _help in _DEALING.items():
    suspended.command(_action, help=_help)(_dealing(_action))


@suspended.command()
@acting
def save(
    place: Place,
    ids: AnyIds = None,
    port: PortOf = None,
    code: Code = None,
    type_: MessageType = None,
    where: Where = None,
    since: SuspendedSince = None,
    personal: Personal = False,
    everything: All = False,
    to: Annotated[Path, typer.Option(help="The folder to write to.")] = Path(),
    output: Output = Format.TABLE,
) -> None:
    """Write the original bytes of messages to files: of any that are named, or of suspended ones that are chosen.

    Of an instance its history is written, which a test can replay.
    """
    from crossdock.cli.output import print_rows

    selection = _selection(ids, port, code, type_, where, since, everything=everything, personal=personal)
    with place.asked() as service:
        wanted = selection.ids
        if not wanted:
            wanted = list(dict.fromkeys(str(row.id) for row in service.choose("save", selection).deliveries))
        rows = service.save(wanted, to)
    print_rows(rows, output, empty="Nothing was saved.")


@suspended.command()
@acting
def edit(
    place: Place,
    id_: Annotated[str, typer.Argument(metavar="ID", help="A message, as `get suspended` shows it.")],
    port: Annotated[
        str | None,
        typer.Option("--port", metavar="NAME", help="The port whose delivery is meant, if there are several."),
    ] = None,
    body: Annotated[Path | None, typer.Option(help="A file with the new body, instead of an editor.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="A property to promote.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Change a suspended message for exactly one subscriber, and deliver it there.

    Opens $EDITOR on the body, unless --body or --property says what to change. Other deliveries of the message stay as
    they are, and so does the original, for a week. Properties are not promoted anew from a changed body.
    """
    from crossdock.cli.output import print_edited
    from crossdock.whole_file import BODY_LIMIT_BYTES, read_whole

    new_body = None if body is None else read_whole(body, BODY_LIMIT_BYTES)
    with place.asked() as service:
        what: Any = service.editable(id_, port)
        if body is None and not properties:
            new_body = _in_editor(what.body, what.suffix)
        edited = service.edit(what, body=new_body, properties=properties or [])
    print_edited(edited, output)


def _in_editor(body: bytes, suffix: str) -> bytes:
    """What a person makes of these bytes. The file is in a folder that nobody else can open, and goes."""
    from crossdock.errors import UsageError
    from crossdock.whole_file import BODY_LIMIT_BYTES, read_whole

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"body{suffix}"
        file.write_bytes(body)
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except OSError as error:
            raise UsageError(
                f"The editor {editor!r} cannot be started: {error.strerror}. Set EDITOR, or give --body FILE."
            ) from error
        if ended:
            raise UsageError(f"The editor {editor!r} ended with the code {ended}: nothing was changed.")
        return read_whole(file, BODY_LIMIT_BYTES)


def _selection(
    ids: Sequence[str] | None,
    port: str | None,
    code: str | None,
    type_: str | None,
    where: str | None,
    since: str | None,
    *,
    everything: bool,
    personal: bool,
) -> Selection:
    from crossdock.administration.service import Selection
    from crossdock.errors import UsageError

    wanted = list(ids or [])
    if "-" in wanted:
        read = sys.stdin.read(_IDS_LIMIT + 1).split()
        if sum(map(len, read)) > _IDS_LIMIT:
            raise UsageError(f"There are more than {_IDS_LIMIT:,} characters of ids on standard input.")
        if not read:
            raise UsageError("There are no ids on standard input.")
        wanted = [id_ for id_ in wanted if id_ != "-"] + read
    if wanted and any(each is not None for each in (code, type_, where, since)):
        raise UsageError("Messages are named by ids, or chosen with --code, --type, --where or --since; not both.")
    return Selection(wanted, port, code, type_, where, since, everything, personal=personal)


def _deal(
    action: Literal["resume", "terminate"],
    asking: AbstractContextManager[Asked],
    selection: Selection,
    *,
    yes: bool,
    rate: float | None,
    output: Format,
) -> None:
    """Say what will be done, ask where it was not named one by one, do it, and say what became of each."""
    from crossdock.cli.output import print_outcomes, stages

    outcomes: list[Outcome] = []
    with asking as service:
        chosen: Any = service.choose(action, selection)
        verb = service.resume if action == "resume" else service.terminate
        total = chosen.total
        if not selection.ids:
            _announce(action, chosen, output)
            if not yes:
                _ask(action, total)
        stop = stop_on_signals()
        with stages() as say:
            for outcome in verb(chosen, rate=rate, stop=stop):
                outcomes.append(outcome)
                if total > 1 and (len(outcomes) % 100 == 0 or len(outcomes) == total):
                    say(f"{len(outcomes):,} of {total:,}")
    print_outcomes(outcomes, output, total=total)
    if len(outcomes) < total or not all(each.done for each in outcomes):
        raise typer.Exit(3)


def _announce(action: str, chosen: Any, output: Format) -> None:
    """What will be done, on standard error: how many, and a few of them."""
    from crossdock.cli.output import brief, console, table_of

    err = console(stderr=True)
    count = chosen.total
    err.print(f"This will {action} {count:,} suspended deliver{'y' if count == 1 else 'ies'}.", highlight=False)
    if output is Format.TABLE:
        err.print(table_of([brief(row) for row in chosen.rows(_SAMPLE)]))
        if count > _SAMPLE:
            err.print(f"... and {count - _SAMPLE:,} more", highlight=False)


def _ask(action: str, count: int) -> None:
    from crossdock.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(f"Nobody can be asked whether to {action} {count:,}: nothing was done. Give --yes.")
    if not typer.confirm(f"{action.capitalize()} {count:,}?", err=True):
        raise UsageError("Nothing was done.")
