"""Erasing what is tracked about a person: find the messages by a condition, count them, mark them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from crossdock.administration.condition import filter_of, search_personal
from crossdock.messagebox.agent import Agent
from crossdock.subscription.predicate import Filter

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Erased:
    """How many tracked messages satisfy the condition, and how many of them were erased by this.

    `in_box` of them are still in the MessageBox with their content: they are to be delivered, or terminated.
    """

    found: int
    erased: int
    in_box: int


def erase_messages(agent: Agent, where: str, *, preview: bool) -> Erased:
    """Erase properties and bodies of tracked messages, for every reader at once; only count them for a `preview`.

    The audit names the properties of the condition, not its values: these are what is to be forgotten. A preview by
    personal properties is recorded as a search. Raises UsageError for a condition that cannot be read.
    """
    condition = filter_of(agent, where)
    if preview:
        search_personal(agent, condition, agreed=True)
    ids = list(_found(agent, condition))
    in_box = sum(len(agent.whereabouts.stored(ids[begin : begin + _PAGE])) for begin in range(0, len(ids), _PAGE))
    if preview:
        return Erased(len(ids), 0, in_box)
    names = sorted({each.property for group in condition.groups for each in group})
    return Erased(len(ids), agent.track.erase(ids, f"messages by {', '.join(names)}"), in_box)


def _found(agent: Agent, condition: Filter) -> Iterator[UUID]:
    """Every message of the track, by pages."""
    before: str | None = None
    while True:
        page = agent.track.search(condition, limit=_PAGE, before=before, personal=True)
        yield from (each.id for each in page.messages)
        before = page.before
        if before is None:
            return
