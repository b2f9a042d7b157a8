"""The form of application files, made from the model: a JSON Schema for editors, and a page of the reference."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from crossdock import errors
from crossdock.adapter.registry import TRANSPORTS
from crossdock.adapter.transport import Options
from crossdock.administration.exit_codes import EXIT_CODES
from crossdock.application import model
from crossdock.application.meaning import KEYS, OPTIONS, PROPERTIES
from crossdock.application.model import ApplicationModel
from crossdock.errors import CrossdockError, TerminalError
from crossdock.message.property import SYSTEM_PROPERTIES
from crossdock.subscription.predicate import Operator

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OPERATORS: Mapping[Operator, str] = {
    Operator.EQUAL: "`Region = 'EU'`",
    Operator.NOT_EQUAL: "`Region != 'EU'`; the property has to be there",
    Operator.LESS: "`Amount < 5`",
    Operator.LESS_OR_EQUAL: "`Amount <= 5`",
    Operator.GREATER: "`Amount > 5`",
    Operator.GREATER_OR_EQUAL: "`Amount >= 5`",
    Operator.EXISTS: "`EXISTS(Region)`",
    Operator.NOT_EXISTS: "`NOT EXISTS(Region)`",
    Operator.IN: "`Region IN ('EU', 'US')`",
    Operator.PREFIX: "`Name LIKE 'New %'`",
    Operator.NOT_PREFIX: "`Name NOT LIKE 'New %'`",
    Operator.ANY_BIT: "`Flags & 4`: at least one of these bits",
    Operator.NO_BIT: "`NOT Flags & 4`: none of these bits",
}


def application_schema() -> dict[str, Any]:
    """The JSON Schema of the YAML form: every key with its meaning, the options of each adapter too."""
    made = ApplicationModel.model_json_schema(by_alias=True)
    made = {
        "$schema": _DIALECT,
        "title": "Crossdock application",
        **{key: each for key, each in made.items() if key != "title"},
    }
    definitions = made["$defs"]
    for name, described in {"ApplicationModel": made, **definitions}.items():
        if name in KEYS:
            described.pop("title", None)
            _describe(described, KEYS[name][1])
    _name_by_default(definitions)
    _shorten(definitions)
    _exact_filter(definitions)
    for name, side in (("LocationModel", "receive"), ("SendPortModel", "send")):
        definitions[name]["allOf"] = [_options_of(kind, side, definitions) for kind in TRANSPORTS]
    return made


def _describe(described: dict[str, Any], keys: Mapping[str, str]) -> None:
    for key, each in described.get("properties", {}).items():
        each.pop("title", None)
        each["description"] = keys[key]


def _name_by_default(definitions: dict[str, Any]) -> None:
    """What the model fills in before it looks."""
    for name in ("LocationModel", "OrchestrationModel"):
        definitions[name]["required"].remove("name")


def _shorten(definitions: dict[str, Any]) -> None:
    """An address alone will do, and so will a type."""
    for name, short in (("AllowModel", "address"), ("PropertyModel", "type")):
        long = definitions[name]
        alone = {key: each for key, each in long["properties"][short].items() if key != "description"}
        definitions[name] = {"anyOf": [alone, long]}


def _exact_filter(definitions: dict[str, Any]) -> None:
    predicate = {
        "type": "object",
        "properties": {
            "property": {"type": "string", "description": "a declared property, or one of the system"},
            "operator": {"enum": [each.value for each in Operator], "description": "what is asked of it"},
            "value": {"description": "what it is compared with; a list for `in`"},
        },
        "required": ["property", "operator"],
        "additionalProperties": False,
    }
    for name in ("SendPortModel", "SendPortGroupModel"):
        kept = definitions[name]["properties"]["filter"]
        groups = {"type": "array", "items": {"type": "array", "items": predicate}}
        kept["anyOf"] = [{"type": "string"}, groups, {"type": "null"}]


def _options_of(kind: str, side: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """If the adapter is this one, the options are its own."""
    options: type[Options] | None = getattr(TRANSPORTS[kind], side).options
    then = {} if options is None else options.model_json_schema(by_alias=True)
    definitions |= then.pop("$defs", {})
    then.pop("title", None)
    if options is not None:
        _describe(then, OPTIONS[options.__name__])
    named = {"properties": {"adapter": {"const": kind}}, "required": ["adapter"]}
    return {"if": named, "then": {"properties": {"options": then}}}


# The page


def reference_page() -> str:
    """Markdown, to be kept as `docs/reference/keys.md`."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from (
        "# Keys, operators and codes",
        "",
        "Made by `crossdock schema --reference`. `crossdock schema` prints the same as a JSON Schema, for editors:",
        "[application.schema.json](application.schema.json). What the keys do together:",
        "[the application file](application.md).",
    )
    for name, (what, keys) in KEYS.items():
        kind: type[BaseModel] = getattr(model, name)
        yield from ("", f"## Keys of: {what}", "", *_table("key", _key_rows(kind, keys)))
    for transport in TRANSPORTS.values():
        for verb, options in (("receive", transport.receive.options), ("send", transport.send.options)):
            if options is not None and OPTIONS[options.__name__]:
                yield from ("", f"## Options of adapter `{transport.name}` to {verb}", "")
                yield from _table("option", _key_rows(options, OPTIONS[options.__name__]))
    yield from ("", "## Operators", "", "The first column is for structured filters; see [filters](filters.md).", "")
    yield from ("| operator | as text |", "| --- | --- |")
    yield from (f"| `{each.value}` | {_OPERATORS[each]} |" for each in Operator)
    yield from ("", "## Context properties", "", "A *promoted* one can be routed by, a *written* one cannot.", "")
    yield from ("| property | type | | meaning |", "| --- | --- | --- | --- |")
    for name, (type_, promoted) in SYSTEM_PROPERTIES.items():
        meaning = PROPERTIES.get(name, "of BizTalk; Crossdock does not set it")
        yield f"| `{name}` | {type_} | {'promoted' if promoted else 'written'} | {meaning} |"
    yield from ("", "## Exit codes", "", "| code | meaning |", "| --- | --- |")
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    yield from ("", "## Suspension codes", "", "What to do about each: [error codes](errors.md).", "")
    yield from ("| code | meaning |", "| --- | --- |")
    yield from (f"| `{each.code}` | {_first_sentence(each)} |" for each in _suspending(TerminalError))


def _table(head: str, rows: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    yield from (f"| {head} | type | default | meaning |", "| --- | --- | --- | --- |")
    yield from (f"| `{key}` | {type_} | {default} | {meaning} |" for key, type_, default, meaning in rows)


def _key_rows(kind: type[BaseModel], keys: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """In the order of the list of meanings."""
    schema = kind.model_json_schema(by_alias=True)
    required = schema.get("required", [])
    rows = []
    for key, meaning in keys.items():
        described = schema["properties"][key]
        default = "required" if key in required else _default(described.get("default"))
        rows.append((key, _type(described), default, meaning))
    return rows


def _default(value: Any) -> str:
    return "none" if value is None else f"`{json.dumps(value)}`"


def _type(described: Mapping[str, Any]) -> str:
    """In a few words."""
    if "$ref" in described:
        return _referred(described["$ref"])
    if "anyOf" in described:
        return " or ".join(dict.fromkeys(_type(each) for each in described["anyOf"] if each.get("type") != "null"))
    if "enum" in described or "const" in described:
        return ", ".join(f"`{each}`" for each in described.get("enum", [described.get("const")]))
    match described.get("type"):
        case "array":
            return f"list of {_type(described['items'])}" if "items" in described else "list"
        case "object":
            values = described.get("additionalProperties")
            return f"mapping to {_type(values)}" if isinstance(values, dict) and values else "mapping"
        case "string":
            return {"duration": "duration", "time": "time"}.get(described.get("format", ""), "text")
        case "boolean":
            return "`true` or `false`"
        case found:
            return str(found or "anything")


def _referred(reference: str) -> str:
    name = reference.rpartition("/")[2]
    return KEYS[name][0] if name in KEYS else {"PropertyType": "property type"}.get(name, name)


def _suspending(kind: type[CrossdockError]) -> Iterator[type[CrossdockError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _suspending(child)


def _first_sentence(kind: type[CrossdockError]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").replace("\n", " ").partition(". ")[0].rstrip(".")
