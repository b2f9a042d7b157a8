"""Rehearsal: what running instances have done so far, replayed by other code than theirs. Nothing is written.

Instances whose code did the same things in the same order have histories of one shape. A few of each are replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from msgspec import DecodeError

from crossdock.errors import CrossdockError, Mismatch
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.instance_rows import StoredInstance
from crossdock.orchestration.history import decode_record
from crossdock.orchestration.program import Program, RunTools
from crossdock.orchestration.run import InstanceRun

MOST_INSTANCES = 2_000
MOST_SHAPES = 20
REPLAYED_OF_EACH = 3
_LOADED_AT_ONCE = 100

Shape = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The instances of one version and one shape. `mismatch` is why the first that differs does; None if none does.

    `instances` are those that were looked at, `replayed` those of them that were replayed.
    """

    version: str
    shape: Shape
    instances: int
    replayed: int
    mismatch: Exception | None


def rehearse(agent: Agent, program: Program) -> list[Rehearsed]:
    """The most frequent shapes first. Instances that run this version already are left out."""
    found: defaultdict[tuple[str, Shape], list[tuple[int, UUID]]] = defaultdict(list)
    for host, stored in _sampled(agent, program):
        found[stored.version, _shape(stored)].append((host, stored.id))
    frequent = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))[:MOST_SHAPES]
    return [_rehearsed(agent, program, version, shape, each) for (version, shape), each in frequent]


def _sampled(agent: Agent, program: Program) -> Iterator[tuple[int, StoredInstance]]:
    by_host: defaultdict[int, list[UUID]] = defaultdict(list)
    for host, id_ in agent.instances.sample(program.name, excluding=program.version, limit=MOST_INSTANCES):
        by_host[host].append(id_)
    for host, ids in by_host.items():
        for start in range(0, len(ids), _LOADED_AT_ONCE):
            for stored in agent.instances.load(host, ids[start : start + _LOADED_AT_ONCE]).values():
                yield host, stored


def _shape(stored: StoredInstance) -> Shape:
    try:
        records = [decode_record(each) for each in stored.records]
    except DecodeError:
        return ("unreadable",)
    return tuple(f"{command.kind} {command.name}".strip() for record in records for command in record.commands)


def _rehearsed(
    agent: Agent, program: Program, version: str, shape: Shape, instances: Sequence[tuple[int, UUID]]
) -> Rehearsed:
    replayed, mismatch = 0, None
    for host, id_ in instances[:REPLAYED_OF_EACH]:
        if mismatch is None:
            mismatch = _mismatch(agent, program, host, id_)
            replayed += 1
    return Rehearsed(version, shape, len(instances), replayed, mismatch)


def _mismatch(agent: Agent, program: Program, host: int, id_: UUID) -> Exception | None:
    """None too if the instance has ended meanwhile."""
    stored = agent.instances.load(host, [id_]).get(id_)
    while stored is not None:
        different = replayed(program, stored.id, stored.records, stored.messages)
        after = agent.instances.load(host, [id_]).get(id_)
        # Its rows are read one after the other: if it has gone on meanwhile they may not belong together.
        if different is None or (after is not None and after.step == stored.step and after.records == stored.records):
            return different
        stored = after
    return None


def replayed(
    program: Program, instance: UUID, records: Sequence[bytes], messages: Mapping[UUID, Message]
) -> Exception | None:
    """Why this history cannot be replayed by this program; None if it can."""
    tools = RunTools(program)
    tools.give(messages.values())
    try:
        decoded = [decode_record(each) for each in records]
        with FOREIGN_CODE:
            InstanceRun(program.orchestration, instance, tools, replaying=decoded).drop()
    except (Mismatch, CrossdockError) as error:
        return error
    except Exception as error:
        return CrossdockError(f"the replay fails: {described(error)}")
    return None
