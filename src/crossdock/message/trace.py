"""The trace that a message belongs to, as W3C Trace Context names it: carried in its context, and never routed by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from crossdock.message.context import Context
from crossdock.message.property import Value

TRACE_PARENT, TRACE_STATE = "Trace.Parent", "Trace.State"
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# A header of a partner: no letter of it may be matched in more than one way.
_STATE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")
_STATE_CHARACTERS = 512


class Trace(NamedTuple):
    """The headers `traceparent` and `tracestate` of who came before."""

    parent: str
    state: str = ""

    def properties(self) -> dict[str, Value]:
        """To be written into a context."""
        found: dict[str, Value] = {TRACE_PARENT: self.parent}
        return {**found, TRACE_STATE: self.state} if self.state else found


def as_trace(parent: object, state: object = None) -> Trace | None:
    """None if that is no trace. A state that is too long, or that no header can hold, is left out."""
    if not isinstance(parent, str) or _PARENT.fullmatch(parent) is None:
        return None
    kept = isinstance(state, str) and len(state) <= _STATE_CHARACTERS and _STATE.fullmatch(state) is not None
    return Trace(parent, str(state) if kept else "")


def trace_of(context: Context | Mapping[str, Value]) -> Trace | None:
    """The trace that a message, or what will be one, carries."""
    return as_trace(context.get(TRACE_PARENT), context.get(TRACE_STATE))


def with_trace(context: Context, trace: Trace) -> Context:
    """The same in another trace, or at another place in it."""
    return context.write(TRACE_PARENT, trace.parent).write(TRACE_STATE, trace.state or None)
