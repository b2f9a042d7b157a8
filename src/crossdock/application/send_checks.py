"""What is wrong with a send port though its adapter can be made: unknown macros, retries that come too late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from crossdock.adapter.contract import ForgettingSendAdapter, SendAdapter
from crossdock.adapter.macro import macros_in
from crossdock.adapter.registry import TRANSPORTS, kind_of_place
from crossdock.application.model import ApplicationModel, SendPortModel, WindowModel
from crossdock.application.problems import Problems
from crossdock.errors import ApplicationError
from crossdock.message.property import PropertyRegistry

_ADDRESS = "its address"
# What is written beside the system properties.
_WRITTEN = (
    "BTS.RequestMessageID",
    "ErrorReport.FailureMessageID",
    *(name for transport in TRANSPORTS.values() for name in transport.properties),
)


def check_macros(application: ApplicationModel, registry: PropertyRegistry, problems: Problems) -> None:
    """Refuse macros in addresses and headers that are neither built in nor properties: they would always be empty."""
    distinguished = {
        name
        for schema in application.schemas
        for record in (schema, schema.header, schema.trailer)
        if record is not None
        for name in record.distinguished
    }
    known = {*_WRITTEN, *(name.removeprefix("BTS.") for name in _WRITTEN), *distinguished}
    for number, port in enumerate(application.send_ports):
        built_in = ("MessageID", *(_own_macros(port) or ()))
        for place, name in _macros(port):
            if name not in built_in and name not in known and registry.resolve(name) is None:
                declared = ", ".join(sorted({*registry.declared, *distinguished})) or "none"
                problems.add(
                    ("send_ports", number, "address" if place == _ADDRESS else "options"),
                    f"send port {port.name!r}: {place} has the macro %{name}%, and there is no such property. "
                    f"There are {', '.join(f'%{each}%' for each in built_in)}, the declared properties ({declared}) "
                    "and those of the system",
                )


def check_retries(port: SendPortModel, adapter: SendAdapter) -> None:
    """Refuse retries after the adapter has forgotten what it delivered: such a retry could deliver a second time."""
    kept = adapter.remembers() if isinstance(adapter, ForgettingSendAdapter) else None
    span = port.retry.count * (port.retry.interval + _closed(port.service_window))
    if kept is not None and span >= kept:
        raise ApplicationError(
            f"its last retry may come {span.days} days after the first attempt, and what was delivered is known for "
            f"{kept.days} days only; lower retry.count or retry.interval"
        )


def _macros(port: SendPortModel) -> Iterator[tuple[str, str]]:
    """Where macros stand, and their names. Adapters of one's own have none, or understand them in their own way."""
    texts = [(_ADDRESS, port.address or "")] if _own_macros(port) is not None else []
    for kind, options in _options(port):
        if kind in TRANSPORTS and isinstance(options, dict):
            texts += TRANSPORTS[kind].send.templates(options)
    for place, text in texts:
        yield from ((place, name) for name in macros_in(text))


def _own_macros(port: SendPortModel) -> tuple[str, ...] | None:
    """Those that the addresses of its adapter have besides properties; None if they have no macros at all."""
    transport = TRANSPORTS.get(port.adapter or "")
    return None if transport is None else transport.send.macros


def _options(port: SendPortModel) -> Iterator[tuple[str, object]]:
    """Options, each after the adapter that they are for."""
    if port.adapter is not None:
        yield port.adapter, port.options
    else:
        yield from port.options.items()
        yield from ((kind_of_place(each.address), each.options) for each in port.allow)


def _closed(window: WindowModel | None) -> timedelta:
    """For how long a service window is closed in a row; one more hour, since clocks are changed."""
    if window is None:
        return timedelta(0)
    start, end = (datetime.combine(datetime.min, each, UTC) for each in (window.from_, window.to))
    return (start - end) % timedelta(days=1) + timedelta(hours=1)
