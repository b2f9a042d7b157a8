"""Reads an application file, YAML or Python. What is wrong with it is one sentence that names the place."""

from __future__ import annotations

import reprlib
import runpy
import sys
import traceback
from collections.abc import Callable, Hashable, Iterable
from contextlib import redirect_stdout
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from crossdock.application.builder import Application
from crossdock.application.model import (
    ApplicationModel,
    LocationModel,
    ReceivePortModel,
    SchemaModel,
    SendPortGroupModel,
    SendPortModel,
)
from crossdock.component import builtins_beside
from crossdock.errors import ApplicationError, CrossdockError, ForeignError, UsageError
from crossdock.foreign import FOREIGN_CODE, described

_MAY_HOLD_A_PASSWORD = {"address", "options", "allow"}
_TRUE = ("true", "yes", "on")
_KEYS = sorted(
    {
        field.alias or name
        for model in (ApplicationModel, SchemaModel, ReceivePortModel, LocationModel, SendPortModel, SendPortGroupModel)
        for name, field in model.model_fields.items()
    }
)


def load_application(path: Path) -> ApplicationModel:
    """The application in this file. Raises ApplicationError, or UsageError if there is no such file."""
    if not path.is_file():
        raise UsageError(f"There is no application file {path}. Name a .yaml or .py file.")
    read: dict[str, Callable[[Path], ApplicationModel]] = {".py": _load_python, ".yaml": _load_yaml, ".yml": _load_yaml}
    if path.suffix not in read:
        raise UsageError(f"{path} is neither a .yaml nor a .py file.")
    try:
        return read[path.suffix](path)
    except ValidationError as error:
        raise ApplicationError(f"{path}: {_first_problem(error)}") from error


def _load_yaml(path: Path) -> ApplicationModel:
    try:
        content = yaml.load(path.read_bytes(), _StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ApplicationError(f"{path}: not readable as YAML: {_yaml_place(error)}") from error
    except RecursionError as error:
        raise ApplicationError(f"{path}: not readable as YAML: it is nested too deeply") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(content, dict):
        raise ApplicationError(f"{path}: an application is a mapping that starts with `application: <name>`")
    return ApplicationModel.model_validate(content)


def _load_python(path: Path) -> ApplicationModel:
    try:
        with redirect_stdout(sys.stderr), FOREIGN_CODE:  # standard output is for our own result
            names = runpy.run_path(str(path), {"__builtins__": builtins_beside(path.parent)})
        found = {id(value): value for value in names.values() if isinstance(value, Application)}
        if len(found) != 1:
            raise ApplicationError(f"{path}: a Python application file holds exactly one Application, not {len(found)}")
        return next(iter(found.values())).model()
    except (CrossdockError, ValidationError) as error:
        if isinstance(error, ApplicationError):
            raise ApplicationError(f"{_python_place(path, error)}: {_message(error)}") from error
        raise
    except Exception as error:
        raise ApplicationError(f"{_python_place(path, error)}: {described(error)}") from error


def _python_place(path: Path, error: BaseException) -> str:
    """The line of the user's own file where it went wrong."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}"
    raised = error.__cause__ if isinstance(error, ForeignError) and error.__cause__ is not None else error
    lines = [frame.lineno for frame in traceback.extract_tb(raised.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _message(error: BaseException) -> str:
    message = str(error)
    return message.split(": ", 1)[1] if message.startswith("/") and ": " in message else message


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = _place(problem["loc"])
    match problem["type"]:
        case "extra_forbidden":
            key = str(problem["loc"][-1])
            meant = get_close_matches(key, [known for known in _KEYS if known != key], n=1)
            return f"{place}: unknown key {key!r}" + (f"; did you mean {meant[0]!r}?" if meant else "")
        case "missing":
            return f"{place}: this key is missing"
        case _:
            hint = ""
            if problem["type"] == "string_type" and isinstance(problem["input"], bool):
                hint = "; YAML reads yes, no, on and off as true or false unless they are in quotes"
            return f"{place}: {problem['msg'].lower()}{_shown(problem)}{hint}"


def _shown(problem: ErrorDetails) -> str:
    """What was given instead, unless it may hold a password: in an address, in options, in or for what has parts."""
    given, has_parts = problem["input"], problem["type"] in ("model_type", "dict_type", "list_type")
    if has_parts or isinstance(given, dict | list) or not _MAY_HOLD_A_PASSWORD.isdisjoint(problem["loc"]):
        return ""
    return f", not {reprlib.repr(given)}"


def _place(steps: Iterable[int | str]) -> str:
    place = ""
    for step in steps:
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
    return place.removeprefix(".") or "the application"


def _yaml_place(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


class _StrictLoader(yaml.SafeLoader):
    """A key that is written twice is a mistake, not an update; a number keeps every digit; nothing is expanded."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not supported", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        unquoted = next((node.value[n][0] for n, key in enumerate(keys) if not isinstance(key, str)), None)
        if unquoted is not None:
            raise yaml.MarkedYAMLError(problem=_unquoted(unquoted), problem_mark=unquoted.start_mark)
        repeated = next((node.value[n][0] for n, key in enumerate(keys) if key in keys[:n]), None)
        if repeated is not None:
            raise yaml.MarkedYAMLError(
                problem=f"the key {repeated.value!r} is there twice", problem_mark=repeated.start_mark
            )
        return super().construct_mapping(node, deep)


def _unquoted(key: yaml.Node) -> str:
    if not isinstance(key, yaml.ScalarNode):
        return "a key is text"
    kind = key.tag.rpartition(":")[2]
    meant = f"the {kind} {str(key.value).lower() in _TRUE}".lower() if kind == "bool" else f"a value of type {kind}"
    return f'YAML reads the key {key.value} as {meant}, and a key is text; write "{key.value}" in quotes'


def _exact_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Decimal | float:
    """`999.9999999999999991` as it is written; .inf and .nan have no decimal."""
    try:
        return Decimal(str(loader.construct_scalar(node)))
    except InvalidOperation:
        return float(loader.construct_yaml_float(node))


_StrictLoader.add_constructor("tag:yaml.org,2002:float", _exact_number)
