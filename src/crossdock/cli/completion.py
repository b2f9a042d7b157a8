"""What the shell is told while somebody types a name. It imports nothing that takes long, and never fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import typer


def names_of(*kinds: str) -> Callable[[typer.Context, str], list[str]]:
    """Completes the names of deployed artefacts of these kinds, in the MessageBox that the options so far name."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from crossdock.administration.names import known_names

        given = context.params
        home = given.get("home") or os.environ.get("CROSSDOCK_HOME") or ".crossdock"
        database = given.get("database") or os.environ.get("CROSSDOCK_DATABASE") or ""
        known = known_names(Path(home), str(database))
        return [name for kind in kinds for name in known.get(kind, ()) if name.startswith(incomplete)]

    return complete


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete
