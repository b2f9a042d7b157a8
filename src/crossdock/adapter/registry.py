"""The transports by name, and adapters made from their descriptions. An application may name a class of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from crossdock.adapter.contract import PushedReceiveAdapter, ReceiveAdapter, RememberingSendAdapter, SendAdapter
from crossdock.adapter.file.transport import FILE
from crossdock.adapter.http.transport import HTTP
from crossdock.adapter.own import is_own, own_transport
from crossdock.adapter.sql.transport import SQL
from crossdock.adapter.transport import Allowing, Transport, checked, suggestion
from crossdock.errors import ApplicationError
from crossdock.foreign import FOREIGN_CODE, described

TRANSPORTS: Mapping[str, Transport] = {each.name: each for each in (FILE, HTTP, SQL)}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def transport_of(kind: str, code: str | None = None) -> Transport:
    """The description of what `adapter:` says. ApplicationError: there is no such adapter.

    `code` is the folder of an application that may name a class of its own; without it, `kind` may be anybody's word.
    """
    if kind in TRANSPORTS:
        return TRANSPORTS[kind]
    if is_own(kind) and code is not None:
        return own_transport(kind, code)
    own = "" if get_close_matches(kind, list(TRANSPORTS), n=1) else ", or a class of your own as module:Class"
    raise ApplicationError(f"there is no adapter {kind!r}{suggestion(kind, TRANSPORTS)}{own}")


def receive_adapter(
    kind: str, address: str, options: Mapping[str, Any], *, code: str | None = None
) -> ReceiveAdapter | PushedReceiveAdapter:
    """The adapter of this kind at work. Raises ApplicationError if there is none or its options are wrong."""
    receive = transport_of(kind, code).receive
    return receive.adapter(address, **checked(kind, receive.options, options))


def send_adapter(
    kind: str, address: str, options: Mapping[str, Any], *, port: str = "", code: str | None = None
) -> SendAdapter:
    """The same for sending, on behalf of a port."""
    send = transport_of(kind, code).send
    return _remembering(kind, send.adapter(address, **checked(kind, send.options, options)), port)


def allowed_adapter(kind: str, place: str, target: str, options: Mapping[str, Any], port: str) -> SendAdapter:
    """The adapter for a target that a message has chosen in a place. It goes nowhere but where that is allowed."""
    send, within = transport_of(kind).send, allowing(kind).within
    bounds = {} if within is None else {"within": within(place)}
    return _remembering(kind, send.adapter(target, **bounds, **checked(kind, send.options, options)), port)


def largest_answer(kind: str, options: Mapping[str, Any]) -> int | None:
    """In bytes; None if there is no limit, or nobody says."""
    said = TRANSPORTS[kind].send.largest_answer if kind in TRANSPORTS else None
    return None if said is None else said(options)


def allowing(kind: str) -> Allowing:
    """What a message may choose of this kind. ApplicationError: it must not name code that is run."""
    found = TRANSPORTS[kind].allowing if kind in TRANSPORTS else None
    if found is None:
        raise ApplicationError(f"there is no adapter {kind!r}{suggestion(kind, TRANSPORTS)}")
    return found


def kind_of_scheme(scheme: str) -> str | None:
    """The transport whose addresses have this scheme."""
    named = (name for name, each in TRANSPORTS.items() if each.allowing and scheme in each.allowing.schemes)
    return next(named, None)


def kind_of_place(address: str) -> str:
    """The transport of a place that a dynamic port allows: by its scheme; without one it is a folder."""
    found = _SCHEME.match(address)
    scheme = found[1].lower() if found else ""
    others = (name for name, each in TRANSPORTS.items() if each.allowing and not each.allowing.schemes)
    return kind_of_scheme(scheme) or next(others)


def printable_address(kind: str, address: str) -> str:
    """The address without a password, for people, logs and message contexts."""
    if kind not in TRANSPORTS and not is_own(kind):
        return address
    return transport_of(kind, "").printable(address)


def _remembering(kind: str, adapter: SendAdapter, port: str) -> SendAdapter:
    if isinstance(adapter, RememberingSendAdapter):
        try:
            with FOREIGN_CODE:
                adapter.remember_for(port)
        except Exception as error:
            raise ApplicationError(f"adapter {kind!r} cannot remember for {port!r}: {described(error)}") from error
    return adapter
