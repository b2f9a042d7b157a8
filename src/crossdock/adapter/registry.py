"""Which adapters there are, and which options each takes. What is wrong with the options is one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crossdock.adapter.contract import ReceiveAdapter
from crossdock.adapter.file import FileReceiveAdapter
from crossdock.errors import ApplicationError


def receive_adapter(kind: str, address: str, options: Mapping[str, Any]) -> ReceiveAdapter:
    """The adapter of this kind at work. Raises ApplicationError if there is none or its options are wrong."""
    if kind not in _RECEIVE:
        raise ApplicationError(f"there is no adapter {kind!r}{_meant(kind, _RECEIVE)}")
    model, build = _RECEIVE[kind]
    try:
        given = model.model_validate(dict(options)).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise ApplicationError(_first_problem(kind, model, error)) from None  # the values may hold a password
    return build(address, given)


def printable_address(kind: str, address: str) -> str:
    """The address without a password, for people, logs and message contexts."""
    if kind != "sql":
        return address
    from crossdock.adapter import sql

    return sql.printable_address(address)


class _Options(BaseModel):
    """Options that are not given keep the default of the adapter."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _FileOptions(_Options):
    subfolders: bool = False
    minimum_age: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    minimum_size: Annotated[int, Field(ge=0)] = 0
    maximum_size: Annotated[int, Field(ge=0)] | None = None
    archive: Annotated[str, Field(min_length=1)] | None = None


class _SqlOptions(_Options):
    query: Annotated[str, Field(min_length=1)]
    key: Annotated[str, Field(min_length=1)]
    done: Annotated[str, Field(min_length=1)]
    version: Annotated[str, Field(min_length=1)] | None = None
    limit: Annotated[int, Field(ge=1)] = 1


def _file(address: str, options: Mapping[str, Any]) -> ReceiveAdapter:
    return FileReceiveAdapter(address, **options)


def _sql(address: str, options: Mapping[str, Any]) -> ReceiveAdapter:
    from crossdock.adapter.sql import SqlReceiveAdapter  # SQLAlchemy takes long to import, and most do without

    return SqlReceiveAdapter(address, **options)


_RECEIVE: Mapping[str, tuple[type[_Options], Callable[[str, Mapping[str, Any]], ReceiveAdapter]]] = {
    "file": (_FileOptions, _file),
    "sql": (_SqlOptions, _sql),
}


def _first_problem(kind: str, model: type[_Options], error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    option = str(problem["loc"][0])
    match problem["type"]:
        case "extra_forbidden":
            return f"adapter {kind!r} has no option {option!r}{_meant(option, model.model_fields)}"
        case "missing":
            return f"adapter {kind!r} needs the option {option!r}"
        case _:
            return f"option {option!r} of adapter {kind!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def _meant(given: str, known: Iterable[str]) -> str:
    close = get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(known))}"
