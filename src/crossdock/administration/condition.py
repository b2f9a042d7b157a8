"""Conditions of lists, `--where`, in the language of filters."""

from __future__ import annotations

from crossdock.errors import FilterError, UsageError
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.subscription.predicate import Filter
from crossdock.subscription.text import parse_filter


def filter_of(agent: Agent, where: str) -> Filter:
    """The filter that a condition spells. Raises UsageError, which points at what is wrong."""
    try:
        return parse_filter(PropertyRegistry(agent.configuration.properties()), where)
    except FilterError as error:
        pointed = f"\n{error.pointed()}".rstrip()
        raise UsageError(f"--where: {error.reason}{pointed}") from error
