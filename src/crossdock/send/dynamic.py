"""Dynamic ports: where a message goes is in its context."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

from crossdock.adapter.contract import SendAdapter
from crossdock.adapter.registry import send_adapter
from crossdock.errors import ApplicationError, TerminalError
from crossdock.message.message import Message

LOCATION, TYPE = "BTS.OutboundTransportLocation", "BTS.OutboundTransportType"
_BY_SCHEME = {"file": "file", "http": "http", "https": "http"}
_FILE_URL = "file://"
_MOST_KEPT = 64


def destination(message: Message) -> tuple[str, str]:
    """(adapter, address): what the context says, the adapter by the scheme of the address if it does not say one."""
    address, kind = message.context.get(LOCATION), message.context.get(TYPE)
    if not isinstance(address, str) or not address:
        raise TerminalError(f"the message has no {LOCATION}, which a dynamic port needs")
    scheme = address.partition(":")[0].lower()
    if isinstance(kind, str) and kind:
        chosen = kind.lower()
    elif scheme in _BY_SCHEME:
        chosen = _BY_SCHEME[scheme]
    else:
        raise TerminalError(f"the scheme of {LOCATION} names no adapter; say which in {TYPE}")
    is_url = chosen == "file" and address[: len(_FILE_URL)].lower() == _FILE_URL
    return chosen, address[len(_FILE_URL) :] if is_url else address


class Transports:
    """The adapters of a dynamic port, the last few that were used."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], SendAdapter] = OrderedDict()
        self._lock = Lock()

    def adapter(self, kind: str, address: str, options: Mapping[str, Any], port: str) -> SendAdapter:
        """`options` are those for every adapter, by its name."""
        with self._lock:
            found = self._kept.pop((kind, address), None)
            if found is None:
                found = made_adapter(kind, address, options.get(kind, {}), port)
            self._kept[kind, address] = found
            dropped = self._kept.popitem(last=False)[1] if len(self._kept) > _MOST_KEPT else None
        if dropped is not None:
            dropped.close()
        return found

    def close(self) -> None:
        with self._lock:
            for adapter in self._kept.values():
                adapter.close()
            self._kept.clear()


def made_adapter(
    kind: str, address: str, options: Mapping[str, Any], port: str, code: str | None = None
) -> SendAdapter:
    """What is wrong with it is found when a message is to be sent: a TerminalError.

    Without `code` it is a built-in one: a message must not name code that is run.
    """
    try:
        return send_adapter(kind, address, options, port=port, code=code)
    except ApplicationError as error:
        raise TerminalError(str(error)) from error
