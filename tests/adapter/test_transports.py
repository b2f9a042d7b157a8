"""A transport is described once: nothing outside its package knows it by name, and to know all of them is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import crossdock
from crossdock.adapter.registry import TRANSPORTS, kind_of_place, kind_of_scheme, transport_of
from crossdock.errors import ApplicationError

SOURCE = Path(crossdock.__file__).parent
# The console is a web server: what it calls http is no transport of messages.
PACKAGES = (SOURCE / "api", *(SOURCE / "adapter" / name for name in TRANSPORTS))


def decisions(file: Path) -> Iterator[ast.expr]:
    """What a file compares with or looks up: operands, patterns, keys, elements of what `in` looks through."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Compare():
                for each in (node.left, *node.comparators):
                    yield from each.elts if isinstance(each, ast.Tuple | ast.List | ast.Set) else [each]
            case ast.MatchValue(value=value) | ast.Subscript(slice=value):
                yield value
            case ast.Call(func=ast.Attribute(attr="get" | "startswith"), args=[value, *_]):
                yield value


def test_nothing_outside_its_package_decides_by_the_name_of_a_transport() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{value.lineno}"
        for file in SOURCE.rglob("*.py")
        if not any(file.is_relative_to(package) for package in PACKAGES)
        for value in decisions(file)
        if isinstance(value, ast.Constant) and str(value.value).lower() in (*TRANSPORTS, "https", "file://")
    ]

    assert found == []


@pytest.mark.parametrize("name", TRANSPORTS)
def test_option_is_declared_once_and_no_adapter_names_it_again(name: str) -> None:
    models = [TRANSPORTS[name].receive.options, TRANSPORTS[name].send.options]
    declared = {option for model in models if model is not None for option in model.model_fields}
    parameters = [
        argument.arg
        for file in (SOURCE / "adapter" / name).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Adapter")
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for argument in (*function.args.args, *function.args.kwonlyargs)
    ]

    assert "address" in parameters
    assert declared.isdisjoint(parameters)


@pytest.mark.parametrize(
    "code", ["import crossdock.adapter.registry", "from crossdock.cli import main; sys.argv[1:] = ['--help']; main()"]
)
def test_to_know_all_transports_imports_none_of_their_libraries(code: str) -> None:
    libraries = {"sqlalchemy", "uvicorn", "h11", "httpx", "httpcore"}
    script = (
        f"import sys\ntry:\n  {code}\nexcept SystemExit: pass\nsys.exit(' '.join({libraries} & set(sys.modules)) or 0)"
    )

    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=120)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("out", "file"), ("/out", "file"), ("FILE:///out", "file"), ("http://h/", "http"), ("HTTPS://h/", "http"),
        ("postgresql://h/d", "sql"), ("sqlite:////a.db", "sql"), ("a:b", "file"),
    ],
)  # fmt: skip
def test_place_of_a_dynamic_port_tells_its_transport(place: str, kind: str) -> None:
    assert kind_of_place(place) == kind


def test_scheme_of_an_address_tells_its_transport_where_it_has_one_of_its_own() -> None:
    assert [kind_of_scheme(scheme) for scheme in ("file", "http", "https")] == ["file", "http", "http"]
    assert kind_of_scheme("postgresql") is None


def test_class_of_ones_own_has_a_description_that_no_message_may_choose() -> None:
    own = transport_of("notes:NoteAdapter", "/app")

    assert (own.type, own.send.answers, own.allowing) == ("NoteAdapter", True, None)
    with pytest.raises(ApplicationError, match="there is no adapter 'notes:NoteAdapter'"):
        transport_of("notes:NoteAdapter")
