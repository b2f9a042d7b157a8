"""What a transport is. Each package beside this file describes its own once, in its `transport.py`.

Nothing outside the packages knows a transport by its name: it asks the description, which `registry.py` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, auto
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from crossdock.adapter.contract import PushedReceiveAdapter, ReceiveAdapter, SendAdapter
from crossdock.adapter.secret import is_secret
from crossdock.errors import ApplicationError
from crossdock.message.message import Message


class Options(BaseModel):
    """The options of an adapter with their types and defaults, declared once."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def imported(name: str) -> Callable[..., Any]:
    """Calls what `module:name` names. The first call imports it: some libraries take long, and most do without."""
    module, _, attribute = name.partition(":")

    def call(*given: Any, **named: Any) -> Any:
        return getattr(import_module(module), attribute)(*given, **named)

    return call


class Mark(Enum):
    """What an option is besides its type, as in `Annotated[str | None, Mark.FILE]`."""

    FILE = auto()  # relative to the application file; a link stays one: it may lead to another certificate next year
    FOLDER = auto()  # relative to the application file, and known by its one real name
    CREDENTIAL = auto()  # tells a partner who we are: it must not go to every place that a port allows


def _as_written(folder: Path, address: str) -> str:  # noqa: ARG001
    return address


def _as_brought(place: str, address: str) -> str:  # noqa: ARG001
    return address


def _unchecked(place: str, folder: Path) -> None:
    """Any place will do."""


def _no_templates(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    return iter(())


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that a location lists: those in a folder whose names fit a mask, in the folders below too or not."""

    folder: Path
    mask: str
    subfolders: bool


@dataclass(frozen=True, slots=True)
class Receiving:
    """How a transport receives. `adapter` is called with the address and the options as keywords.

    `address` gives an address as it is deployed, from the folder of the application and what is written there.
    `lists` says which files it takes from there, by the folder, the address and the options; None if it takes none.
    """

    adapter: Callable[..., ReceiveAdapter | PushedReceiveAdapter]
    options: type[Options] | None = None
    address: Callable[[Path, str], str] = _as_written
    lists: Callable[[Path, str, Mapping[str, Any]], Listing] | None = None


@dataclass(frozen=True, slots=True)
class Sending:
    """How a transport sends. `answers`: a partner may answer, so that a port can be two-way.

    `macros` are those that an address has besides `%MessageID%` and properties; None if an address has no macros at
    all. `templates` gives the texts among the options that have macros, each after what it is called. `writes` says
    which file it makes, by the folder and the address, macros included; None if it makes none. `largest_answer` gives
    the bytes of the largest answer that it takes with these options; None if there is no such limit.
    """

    adapter: Callable[..., SendAdapter]
    options: type[Options] | None = None
    address: Callable[[Path, str], str] = _as_written
    answers: bool = False
    macros: tuple[str, ...] | None = None
    templates: Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]] = _no_templates
    writes: Callable[[Path, str], Path] | None = None
    largest_answer: Callable[[Mapping[str, Any]], int] | None = None


@dataclass(frozen=True, slots=True)
class Allowing:
    """How a transport is held to the places that a dynamic port allows: a message may choose among them, and no more.

    `holds(place, address, message)`: whether the address that the message brings lies in the place. TerminalError:
    nobody may go to such an address. `target(place, address)` is where the message goes then. `within(place)` is what
    the send adapter is given as `within`, so that it goes nowhere else; None if the target is the place itself.
    """

    holds: Callable[[str, str, Message], bool]
    within: Callable[[str], object] | None = None
    schemes: tuple[str, ...] = ()  # of its addresses; without any, it has the URLs that no other transport has
    plain: Callable[[str], str] = str  # an address as the adapter takes it
    target: Callable[[str, str], str] = _as_brought
    check: Callable[[str, Path], object] = _unchecked  # raises ApplicationError if it is no place


@dataclass(frozen=True, slots=True)
class Transport:
    """One transport. `type` is what `BTS.InboundTransportType` says, `printable` an address without secrets.

    `properties` are those that it writes into messages. `allowing` is None where a message may not choose it.
    """

    name: str
    type: str
    receive: Receiving
    send: Sending
    printable: Callable[[str], str]
    properties: tuple[str, ...] = ()
    allowing: Allowing | None = None


def checked(name: str, model: type[Options] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, as they are given. What is wrong with one is an ApplicationError of one sentence."""
    if model is None:
        return dict(options)
    try:
        return model.model_validate(dict(options)).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise ApplicationError(_first_problem(name, model, error)) from None  # the values may hold a password


def resolved(model: type[Options] | None, folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the paths among them as they are deployed. Values of a wrong type stay, to be refused."""
    found = dict(options)
    for name in _marked(model, Mark.FILE):
        if isinstance(path := found.get(name), str) and path:
            found[name] = str(folder / path)
    for name in _marked(model, Mark.FOLDER):
        if isinstance(path := found.get(name), str):
            found[name] = str((folder / path).resolve())
    return found


def credential(model: type[Options] | None, options: Mapping[str, Any]) -> str | None:
    """The name of an option that tells who we are, or of one of its entries, such as a header; None without any."""
    named = [name for name in _marked(model, Mark.CREDENTIAL) if name in options]
    entries = [entry for each in options.values() if isinstance(each, Mapping) for entry in each.items()]
    return next(iter([*named, *(name for name, value in entries if is_secret(str(value)))]), None)


def suggestion(given: str, known: Iterable[str]) -> str:
    """The end of a sentence that says that `given` is not known."""
    close = get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(known))}"


def _marked(model: type[Options] | None, mark: Mark) -> list[str]:
    fields = {} if model is None else model.model_fields
    return [name for name, field in fields.items() if mark in field.metadata]


def _first_problem(name: str, model: type[Options], error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    option = str(problem["loc"][0])
    match problem["type"]:
        case "extra_forbidden":
            return f"adapter {name!r} has no option {option!r}{suggestion(option, model.model_fields)}"
        case "missing":
            return f"adapter {name!r} needs the option {option!r}"
        case _:
            return f"option {option!r} of adapter {name!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
