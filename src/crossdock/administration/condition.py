"""Conditions of lists, `--where`, in the language of filters, and the rule for personal properties in them."""

from __future__ import annotations

from crossdock.errors import FilterError, NotAllowedError, UsageError
from crossdock.message.property import TOKEN, PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.audit import Act
from crossdock.subscription.predicate import Filter
from crossdock.subscription.text import parse_filter

# What a refusal says to somebody who only has to agree.
AGREEING = "add: --personal"


def filter_of(agent: Agent, where: str) -> Filter:
    """The filter that a condition spells. Raises UsageError, which points at what is wrong."""
    try:
        return parse_filter(PropertyRegistry(agent.configuration.properties()), where)
    except FilterError as error:
        pointed = f"\n{error.pointed()}".rstrip()
        raise UsageError(f"--where: {error.reason}{pointed}") from error


def personal_names(agent: Agent, condition: Filter | None) -> list[str]:
    """The properties of a condition whose values are masked: those that are personal, and the token of a request."""
    asked = {each.property for group in (condition.groups if condition else ()) for each in group}
    return sorted(asked & (agent.configuration.personal() | {TOKEN})) if asked else []


def search_personal(agent: Agent, condition: Filter | None, *, agreed: bool, of: str = "messages") -> bool:
    """Whether a condition asks for personal values; then it is recorded as a search `of` something.

    Raises NotAllowedError for somebody who may not see the values: the condition would be compared with masks. Raises
    UsageError if that was not agreed.
    """
    names = personal_names(agent, condition)
    if not names:
        return False
    if not agent.access.rights().allow("bodies", None):
        raise NotAllowedError(
            f"Property {names[0]!r} is personal: to search by it takes the right bodies for all applications. "
            "An administrator gives it with: crossdock grant bodies USER"
        )
    if not agreed:
        raise UsageError(f"Property {names[0]!r} is personal. To search by it, which is recorded, {AGREEING}")
    agent.audit.record([Act("search", f"{of} by {', '.join(names)}")])
    return True
