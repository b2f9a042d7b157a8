"""The command line. `main` turns every error into one sentence; `app.py` has the commands, `output.py` prints."""

from __future__ import annotations

import logging
import os
import sys

_INTERRUPTED = 130  # as shells say it: 128 and the number of the signal


def main() -> None:
    """The entry point of the `crossdock` command."""
    try:
        _main()
    except KeyboardInterrupt:  # before a command has begun: the commands themselves handle it
        sys.exit(_INTERRUPTED)


def _main() -> None:
    from typer import TyperException

    from crossdock.cli.app import app
    from crossdock.errors import CrossdockError
    from crossdock.printable import OneLine

    # The pool logs every attempt to reach a database that is away; we say it once, in a sentence.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    if logging.lastResort is not None:  # what is logged where no command shows progress
        logging.lastResort.setFormatter(OneLine())
    try:
        sys.exit(app(standalone_mode=False))
    except TyperException as error:
        message = str(getattr(error, "format_message", error.__str__)())
        if message.startswith("Usage:"):  # no command at all: that is the help
            sys.stderr.write(f"{message}\n")
            sys.exit(2)
        _fail(f"{message.replace('Value error, ', '').rstrip('.')}. See: {_command(error)} --help", 2)
    except CrossdockError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has left
        sys.exit(1)
    except Exception as error:
        if os.environ.get("CROSSDOCK_DEBUG"):
            raise
        first = next(iter(str(error).strip().splitlines()), "")  # what comes from Java brings its stack
        _fail(f"Unexpected {type(error).__name__}: {first}. Set CROSSDOCK_DEBUG=1 to see where.", 1)


def _command(error: Exception) -> str:
    """The command that was used wrongly, as `crossdock get`."""
    return str(getattr(getattr(error, "ctx", None), "command_path", "crossdock"))


def _fail(sentence: str, code: int) -> None:
    from crossdock.printable import printable_lines

    sys.stderr.write(f"crossdock: {printable_lines(sentence)}\n")
    sys.exit(code)
