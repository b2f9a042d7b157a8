"""Reads an application file, YAML or Python. What is wrong with its form is said at once, each with its place."""

from __future__ import annotations

import reprlib
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
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
    OrchestrationModel,
    ReceivePortModel,
    SchemaModel,
    SendPortGroupModel,
    SendPortModel,
)
from crossdock.application.problems import Lines, Place, Problems, place_text
from crossdock.application.yaml_form import StrictLoader, lines_of, yaml_place
from crossdock.component import builtins_beside
from crossdock.errors import ApplicationError, CrossdockError, ForeignError, UsageError
from crossdock.foreign import FOREIGN_CODE, described
from crossdock.whole_file import DECLARED_LIMIT_BYTES, check_whole, read_whole

_TAGS = ("str", "int", "bool", "float")
_MAY_HOLD_A_PASSWORD = {"address", "options", "allow"}
_KEYS = sorted(
    {
        field.alias or name
        for model in (
            ApplicationModel,
            SchemaModel,
            ReceivePortModel,
            LocationModel,
            SendPortModel,
            SendPortGroupModel,
            OrchestrationModel,
        )
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
    return read[path.suffix](path)


def _load_yaml(path: Path) -> ApplicationModel:
    return read_yaml(read_whole(path, DECLARED_LIMIT_BYTES), path)


def read_yaml(content: bytes, path: Path) -> ApplicationModel:
    """The application that is written here; `path` is where problems are said to be. Raises ApplicationError."""
    try:
        loader = StrictLoader(content)
        node = loader.get_single_node()
        document = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ApplicationError(f"{path}: not readable as YAML: {yaml_place(error)}") from error
    except RecursionError as error:
        raise ApplicationError(f"{path}: not readable as YAML: it is nested too deeply") from error
    if not isinstance(document, dict):
        raise ApplicationError(f"{path}: an application is a mapping that starts with `application: <name>`")
    lines = lines_of(node)
    return _validated(document, lines, Problems(path, lines))


def _validated(content: Mapping[str, Any], lines: Lines, problems: Problems) -> ApplicationModel:
    """Raises ApplicationError that names every place where the form is wrong."""
    try:
        model = ApplicationModel.model_validate(content)
    except ValidationError as error:
        told = {_untagged(problem["loc"]): problem for problem in reversed(error.errors())}  # the first of each place
        for place, problem in reversed(told.items()):
            problems.add(place, _told(problem))
        problems.raise_any()
        raise
    problems.raise_any()
    return model.at(lines)


def _untagged(place: Place) -> Place:
    """Where a value may be of several types, each of them says what is wrong, and its name ends the place."""
    kept = len(place)
    while kept and isinstance(step := place[kept - 1], str) and (step in _TAGS or "[" in step):
        kept -= 1
    return place[:kept]


def _load_python(path: Path) -> ApplicationModel:
    check_whole(path, DECLARED_LIMIT_BYTES)
    try:
        with redirect_stdout(sys.stderr), FOREIGN_CODE:  # standard output is for our own result
            names = runpy.run_path(str(path), {"__builtins__": builtins_beside(path.parent)})
        found = {id(value): value for value in names.values() if isinstance(value, Application)}
        if len(found) != 1:
            raise ApplicationError(f"{path}: a Python application file holds exactly one Application, not {len(found)}")
        application = next(iter(found.values()))
        lines = application.lines_in(str(path))
        problems = Problems(path, lines)
        return _validated(application.declared(problems), lines, problems)
    except CrossdockError as error:
        if isinstance(error, ApplicationError):
            text = str(error)
            if text.startswith((f"{path}:", f"{path},")):
                raise
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


def _told(problem: ErrorDetails) -> str:
    place = place_text(problem["loc"])
    match problem["type"]:
        case "extra_forbidden":
            key = str(problem["loc"][-1])
            meant = get_close_matches(key, [known for known in _KEYS if known != key], n=1)
            return f"{place}: unknown key {key!r}" + (f"; did you mean {meant[0]!r}?" if meant else "")
        case "missing":
            return f"{place}: this key is missing"
        case "model_type" | "dict_type":
            return f"{place}: this takes keys with values, as in {{key: value}}"
        case "list_type":
            return f"{place}: this takes a list, as in [one, another]"
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
