"""Names for the completion of the shell: from a file beside the embedded MessageBox, or from the server.

The embedded PostgreSQL need not run where somebody types, so who deploys leaves the names in a file. Nothing heavy is
imported here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crossdock.home import NAMES

if TYPE_CHECKING:
    from crossdock.messagebox.agent import Agent
    from crossdock.settings import Settings


def remember_names(agent: Agent, settings: Settings) -> None:
    """Leave the names of what is deployed now. Without them completion knows none, and everything else works."""
    if settings.database:
        return
    with suppress(OSError):
        unfinished = settings.home / f".{NAMES}"
        unfinished.write_text(json.dumps(agent.configuration.names()), encoding="utf-8")
        unfinished.replace(settings.home / NAMES)


def known_names(home: Path, database: str) -> Mapping[str, list[str]]:
    """By kind: application, host, location, group, port, orchestration. Empty where they cannot be had quickly."""
    with suppress(Exception):  # whoever is typing wants names or nothing
        if database:
            from crossdock.messagebox.names import read_names

            return read_names(database)
        found: Mapping[str, list[str]] = json.loads((home / NAMES).read_text(encoding="utf-8"))
        return found
    return {}
