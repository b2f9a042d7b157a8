"""Dynamic ports: where a message goes is in its context, as far as the port allows it."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from crossdock.adapter.allowed import Allowed
from crossdock.adapter.contract import SendAdapter
from crossdock.adapter.registry import TRANSPORTS, allowing, kind_of_scheme, printable_address, send_adapter
from crossdock.errors import ApplicationError, TerminalError
from crossdock.message.message import Message

LOCATION, TYPE = "BTS.OutboundTransportLocation", "BTS.OutboundTransportType"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MOST_KEPT = 64
_SHOWN_CHARACTERS = 200


def destination(message: Message) -> tuple[str, str]:
    """(adapter, address): what the context says, the adapter by the scheme of the address if it does not say one."""
    address, kind = message.context.get(LOCATION), message.context.get(TYPE)
    if not isinstance(address, str) or not address:
        raise TerminalError(f"the message has no {LOCATION}, which a dynamic port needs")
    chosen = kind.lower() if isinstance(kind, str) and kind else kind_of_scheme(address.partition(":")[0].lower())
    if chosen is None:
        raise TerminalError(f"the scheme of {LOCATION} names no adapter; say which in {TYPE}")
    return chosen, allowing(chosen).plain(address) if chosen in TRANSPORTS else address


def chosen(allow: Sequence[Allowed], kind: str, address: str, outgoing: Message) -> Allowed:
    """The first of the places that holds what a message names. TerminalError: none does.

    Macros in the address are filled from what goes out.
    """
    if not allow:
        raise TerminalError("it has no `allow`, and without it a dynamic port sends nowhere")
    if _CONTROL.search(address):
        raise TerminalError("the address that the message brings has a control character")
    try:
        found = next((each for each in allow if each.holds(kind, address, outgoing)), None)
        if found is None:
            allowing(kind)  # raises if there is no such adapter
            shown = printable_address(kind, address)[:_SHOWN_CHARACTERS]
            raise TerminalError(f"the message asks for {shown!r}, and `allow` of the port names nothing that holds it")
    except ApplicationError as error:
        raise TerminalError(str(error)) from error
    return found


class Transports:
    """The adapters of a dynamic port, the last few that were used."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, str], SendAdapter] = OrderedDict()
        self._lock = Lock()

    def adapter(self, allowed: Allowed, address: str, port: str) -> SendAdapter:
        """The adapter for an address that a message brings, at a place that is allowed."""
        target = allowed.target(address)
        key = (allowed.kind, allowed.address, target)
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                found = _made(allowed, target, port)
            self._kept[key] = found
            dropped = self._kept.popitem(last=False)[1] if len(self._kept) > _MOST_KEPT else None
        if dropped is not None:
            dropped.close()
        return found

    def close(self) -> None:
        with self._lock:
            for adapter in self._kept.values():
                adapter.close()
            self._kept.clear()


def _made(allowed: Allowed, target: str, port: str) -> SendAdapter:
    try:
        return allowed.adapter(target, port)
    except ApplicationError as error:
        raise TerminalError(str(error)) from error


def made_adapter(kind: str, address: str, options: Mapping[str, Any], port: str, code: str | None) -> SendAdapter:
    """What is wrong with it is found when a message is to be sent: a TerminalError."""
    try:
        return send_adapter(kind, address, options, port=port, code=code)
    except ApplicationError as error:
        raise TerminalError(str(error)) from error
