"""What differs between two definitions of an artefact, key by key. Values that may be secrets are never shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossdock.adapter.registry import TRANSPORTS, printable_address
from crossdock.adapter.secret import names_a_secret
from crossdock.adapter.transport import Mark
from crossdock.errors import CrossdockError
from crossdock.messagebox.deployment import StoredService
from crossdock.messagebox.stored_filter import read_groups

_KEY_DEPTH = 2  # deeper keys are names that partners chose, such as headers
_LONGEST = 120
# What may hold a password wherever it stands; the options are told apart one by one.
_HIDDEN = ("allow",)


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose value differs, such as `options.timeout`. `before` and `after` are None where there is nothing, and
    both None where the values may be secret or take more than a line.
    """

    key: str
    before: str | None = None
    after: str | None = None


def service_differences(before: StoredService, after: StoredService) -> list[Difference]:
    """Of a send port or an orchestration."""
    names = ("host", "priority", "ordered", "two_way")
    found = [
        Difference(name, _text(old), _text(new))
        for name, old, new in zip(names, before, after, strict=False)
        if old != new
    ]
    if before[6] != after[6]:
        found.append(Difference("track", before[6], after[6]))
    if before[5] != after[5]:
        found.append(Difference("filter", str(read_groups(before[5])), str(read_groups(after[5]))))
    return [*found, *differences(before[4], after[4])]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Of definitions, as they are stored."""
    adapters = (before.get("adapter"), after.get("adapter"))
    found = []
    for key, old, new in _keys(before, after):
        if key == "address":
            found.append(Difference(key, printable_definition(before), printable_definition(after)))
        elif _may_be_shown(key, adapters) and _is_brief(old) and _is_brief(new):
            found.append(Difference(key, _text(old), _text(new)))
        else:
            found.append(Difference(key))
    return found


def address_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """How the printable address changes; None if it does not."""
    old, new = printable_definition(before), printable_definition(after)
    return None if old == new else f"{old or 'none'} -> {new or 'none'}"


def _keys(before: Mapping[str, Any], after: Mapping[str, Any], depth: int = 1) -> list[tuple[str, Any, Any]]:
    """The keys that differ, as `options.timeout`, with their values."""
    found: list[tuple[str, Any, Any]] = []
    for key in [*before, *(key for key in after if key not in before)]:
        old, new = before.get(key), after.get(key)
        if key in before and key in after and old == new:
            continue
        if depth < _KEY_DEPTH and isinstance(old, Mapping) and isinstance(new, Mapping):
            found += [(f"{key}.{each}", *values) for each, *values in _keys(old, new, depth + 1)]
        else:
            found.append((key, old, new))
    return found


def _may_be_shown(key: str, adapters: Sequence[str | None]) -> bool:
    first, _, option = key.partition(".")
    if first in _HIDDEN or names_a_secret(key):
        return False
    return first != "options" or all(_is_no_secret(adapter, option) for adapter in adapters)


def _is_no_secret(adapter: str | None, option: str) -> bool:
    """Only of our own transports it is known what their options hold."""
    transport = TRANSPORTS.get(adapter or "")
    models = () if transport is None else (transport.receive.options, transport.send.options)
    fields = [model.model_fields[option] for model in models if model is not None and option in model.model_fields]
    return bool(fields) and not any(Mark.CREDENTIAL in field.metadata for field in fields)


def _is_brief(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return all(each is None or isinstance(each, str | int | float) for each in value) and len(str(value)) < _LONGEST
    return not isinstance(value, str) or len(value) < _LONGEST


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def printable_definition(definition: Mapping[str, Any]) -> str | None:
    """The address in a definition without passwords; None if it has none."""
    adapter, address = definition.get("adapter"), definition.get("address")
    if not adapter or not address:
        return None
    try:
        return printable_address(adapter, address)
    except CrossdockError:
        return "an address that cannot be shown"
