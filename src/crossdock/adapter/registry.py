"""Which adapters there are, and which options each takes. What is wrong with the options is one sentence.

An application may also name a class of its own (`own.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crossdock.adapter.contract import ReceiveAdapter, RememberingSendAdapter, SendAdapter
from crossdock.adapter.file import FileReceiveAdapter, FileSendAdapter
from crossdock.adapter.http_guard import HttpOptions
from crossdock.adapter.own import RECEIVING, SENDING, own_adapter, without_user
from crossdock.errors import ApplicationError

Adapter = TypeVar("Adapter")


def is_own(kind: str) -> bool:
    """Whether it names a class of the application's own."""
    return ":" in kind


def receive_adapter(kind: str, address: str, options: Mapping[str, Any], *, code: str | None = None) -> ReceiveAdapter:
    """The adapter of this kind at work. Raises ApplicationError if there is none or its options are wrong.

    `code` is the folder of an application that may name a class of its own; without it, `kind` may be anybody's word.
    """
    if is_own(kind) and code is not None:
        return cast(ReceiveAdapter, own_adapter(kind, code, address, options, RECEIVING))
    return _built(_RECEIVE, kind, address, options)


def send_adapter(
    kind: str, address: str, options: Mapping[str, Any], *, port: str = "", code: str | None = None
) -> SendAdapter:
    """The same for sending, on behalf of a port."""
    if is_own(kind) and code is not None:
        adapter = cast(SendAdapter, own_adapter(kind, code, address, options, SENDING))
    else:
        adapter = _built(_SEND, kind, address, options)
    if isinstance(adapter, RememberingSendAdapter):
        adapter.remember_for(port)
    return adapter


def _built(
    known: Mapping[str, tuple[type[BaseModel], Callable[[str, Mapping[str, Any]], Adapter]]],
    kind: str,
    address: str,
    options: Mapping[str, Any],
) -> Adapter:
    if kind not in known:
        own = "" if get_close_matches(kind, list(known), n=1) else ", or a class of your own as module:Class"
        raise ApplicationError(f"there is no adapter {kind!r}{_meant(kind, known)}{own}")
    model, build = known[kind]
    return build(address, _checked(model, kind, options))


def _checked(model: type[BaseModel], kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return model.model_validate(dict(options)).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise ApplicationError(_first_problem(kind, model, error)) from None  # the values may hold a password


def dynamic_options(kind: str, options: Any) -> None:
    """Check the options that a dynamic port has for one kind of adapter. Raises ApplicationError."""
    if kind not in _SEND:
        raise ApplicationError(f"there is no adapter {kind!r}{_meant(kind, _SEND)}")
    if not isinstance(options, dict):
        raise ApplicationError(f"the options of adapter {kind!r} are a mapping")
    _checked(_SEND[kind][0], kind, options)


def printable_address(kind: str, address: str) -> str:
    """The address without a password, for people, logs and message contexts."""
    match kind:
        case "sql":
            from crossdock.adapter.sql_database import printable_address as of_database

            return of_database(address)
        case "http":
            from crossdock.adapter.http_request import printable_address as of_server

            return of_server(address)
        case _:
            return without_user(address) if is_own(kind) else address


def transport_name(kind: str) -> str:
    """What `BTS.InboundTransportType` says: FILE, SQL, HTTP, or the name of the class."""
    return kind.rpartition(":")[2] if is_own(kind) else kind.upper()


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


def _http_receive(address: str, options: Mapping[str, Any]) -> ReceiveAdapter:
    from crossdock.adapter.http_receive import HttpReceiveAdapter

    return HttpReceiveAdapter(address, HttpOptions(**options))


_RECEIVE: Mapping[str, tuple[type[BaseModel], Callable[[str, Mapping[str, Any]], ReceiveAdapter]]] = {
    "file": (_FileOptions, _file),
    "sql": (_SqlOptions, _sql),
    "http": (HttpOptions, _http_receive),
}


class _FileSendOptions(_Options):
    pass


class _HttpSendOptions(_Options):
    method: str = ""
    headers: dict[str, str] = {}
    content_type: Annotated[str, Field(min_length=1)] = ""
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0
    verify: bool = True
    ca: Annotated[str, Field(min_length=1)] | None = None
    certificate: Annotated[str, Field(min_length=1)] | None = None
    certificate_key: Annotated[str, Field(min_length=1)] | None = None
    user: Annotated[str, Field(min_length=1)] | None = None
    password: str | None = None
    token: Annotated[str, Field(min_length=1)] | None = None
    maximum_response: Annotated[int, Field(ge=0)] = 0


class _SqlSendOptions(_Options):
    statement: Annotated[str, Field(min_length=1)]
    parameters: dict[str, Annotated[str, Field(min_length=1)]] = {}


def _file_send(address: str, options: Mapping[str, Any]) -> SendAdapter:
    return FileSendAdapter(address, **options)


def _http_send(address: str, options: Mapping[str, Any]) -> SendAdapter:
    from crossdock.adapter.http import HttpSendAdapter

    return HttpSendAdapter(address, **options)


def _sql_send(address: str, options: Mapping[str, Any]) -> SendAdapter:
    from crossdock.adapter.sql_send import SqlSendAdapter

    return SqlSendAdapter(address, **options)


_SEND: Mapping[str, tuple[type[BaseModel], Callable[[str, Mapping[str, Any]], SendAdapter]]] = {
    "file": (_FileSendOptions, _file_send),
    "http": (_HttpSendOptions, _http_send),
    "sql": (_SqlSendOptions, _sql_send),
}


def _first_problem(kind: str, model: type[BaseModel], error: ValidationError) -> str:
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
