"""Histories of instances for tests: `crossdock save INSTANCE` writes one, `messagebox.replay` of the kit replays it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from crossdock.administration.deliveries import Saved, read, write_body
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.instance_rows import InstanceDetail
from crossdock.orchestration.recorded import recorded_history

_SOURCE = "history.json"


def save_histories(agent: Agent, ids: Sequence[str], folder: Path) -> list[Saved]:
    """Write the history of each of these instances to `ID.json`, with the messages it was given."""
    return [_save(agent, UUID(id_), folder) for id_ in ids]


def _save(agent: Agent, id_: UUID, folder: Path) -> Saved:
    found = _found(agent, id_)
    while True:
        messages = read(agent, [message for message, _, _ in found.messages], "save")
        after = _found(agent, id_)
        if after.records == found.records and after.messages == found.messages:
            break
        found = after  # it has gone on meanwhile
    row = found.row
    content = recorded_history(row.orchestration, row.version, id_, found.records, messages.values())
    return write_body(str(id_), _SOURCE, [content], folder)


def _found(agent: Agent, id_: UUID) -> InstanceDetail:
    found = agent.instances.describe(id_)
    if found is None:
        raise UsageError(f"There is no instance {id_}: it has ended, or never was. See: crossdock get instances")
    return found
