"""The JSON Schema of application files and the page of their keys: made of the model, and kept in the documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from crossdock.adapter.registry import TRANSPORTS
from crossdock.administration.schema import application_schema, reference_page
from crossdock.application import model
from crossdock.application.meaning import KEYS, OPTIONS, PROPERTIES
from crossdock.cli.app import app
from crossdock.errors import CrossdockError
from crossdock.message.property import SYSTEM_PROPERTIES

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def keys_of(kind: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in kind.model_fields.items()}


def models() -> Iterator[type[BaseModel]]:
    for each in vars(model).values():
        if isinstance(each, type) and issubclass(each, model.Model) and each not in (model.Model, model.FilteredModel):
            yield each


def test_files_of_the_reference_are_made_of_the_model_as_it_is_now() -> None:
    hint = "make them anew: crossdock schema > docs/reference/application.schema.json, crossdock schema --reference > …/keys.md"

    assert json.loads((REFERENCE / "application.schema.json").read_text()) == application_schema(), hint
    assert (REFERENCE / "keys.md").read_text() == reference_page(), hint


def test_every_key_and_every_option_has_a_meaning() -> None:
    assert {kind.__name__: keys_of(kind) for kind in models()} == {name: set(keys) for name, (_, keys) in KEYS.items()}
    options = [
        each for transport in TRANSPORTS.values() for each in (transport.receive.options, transport.send.options)
    ]
    assert {kind.__name__: keys_of(kind) for kind in options if kind is not None} == {
        name: set(keys) for name, keys in OPTIONS.items()
    }
    assert PROPERTIES.keys() <= SYSTEM_PROPERTIES.keys()


def test_every_key_of_the_schema_is_described() -> None:
    made = application_schema()

    def undescribed(described: Any, place: str) -> Iterator[str]:
        for key, each in described.get("properties", {}).items():
            if "description" not in each:
                yield f"{place}.{key}"

    named = {"": made, **{name: each for name, each in made["$defs"].items() if name in KEYS}}
    assert [key for name, each in named.items() for key in undescribed(each, name)] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.name))
def test_examples_are_valid(example: Path) -> None:
    jsonschema_rs.validate(application_schema(), yaml.safe_load(example.read_text()))


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("send_ports", [{"name": "A", "adapter": "file", "address": "out", "fliter": "Region = 'EU'"}]),
        ("send_ports", [{"name": "A", "adapter": "http", "address": "http://a", "options": {"timeuot": 5}}]),
        ("send_ports", [{"name": "A", "adapter": "file", "address": "out", "priority": 11}]),
        ("properties", {"Amount": "money"}),
        ("schemas", [{"type": "Order", "format": "yson"}]),
        ("receive_ports", [{"name": "In", "locations": []}]),
        ("send_port_groups", [{"name": "A", "ports": ["B"], "filter": [[{"property": "A", "operator": "like"}]]}]),
    ],
)
def test_what_the_model_refuses_the_schema_refuses_too(key: str, wrong: Any) -> None:
    schema = application_schema()
    jsonschema_rs.validate(schema, {"application": "a"})

    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {"application": "a", key: wrong})


def test_short_forms_are_valid() -> None:
    short = {
        "application": "a",
        "send_ports": [{"name": "A", "dynamic": True, "allow": ["https://a.example/"], "retry": {"interval": "PT5M"}}],
        "orchestrations": [{"function": "flows:flow"}],
    }

    jsonschema_rs.validate(application_schema(), short)
    model.ApplicationModel.model_validate(short)


def test_the_command_prints_the_schema() -> None:
    result = CliRunner().invoke(app, ["schema"])

    assert (result.exit_code, json.loads(result.stdout)) == (0, application_schema())


def test_the_page_has_every_exit_code() -> None:
    def below(kind: type[CrossdockError]) -> Iterator[type[CrossdockError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    page = reference_page()

    assert all(f"| {each.exit_code} |" in page for each in below(CrossdockError))
