"""What a module of orchestrations declares: ports, correlation sets, and which messages start a function.

An application binds the ports. Nothing here runs anything.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import iscoroutinefunction
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal

from crossdock.errors import ApplicationError
from crossdock.orchestration.line import is_authors
from crossdock.subscription.expression import Expression

Late = Literal["discard", "next"]
Function = Callable[..., Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Port:
    """A logical port. The application binds it to a send port, a group, an orchestration, `direct` or `dynamic`."""

    name: str

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise ApplicationError(f"A port of an orchestration is named by a text, not by {self.name!r}")


class Correlation:
    """A correlation set: messages of these types with the same values of these properties join a running instance."""

    def __init__(self, *properties: str, types: Sequence[str]) -> None:
        if not properties or not all(map(_is_name, properties)):
            raise ApplicationError(
                'A Correlation needs the names of properties, as in Correlation("OrderId", types=[…])'
            )
        if isinstance(types, str) or not types or not all(map(_is_name, types)):
            raise ApplicationError(
                f"Correlation({', '.join(map(repr, properties))}) needs a list of the message types that may follow it"
            )
        self.properties = tuple(properties)
        self.types = tuple(types)
        self.name = ""
        self._module = sys._getframe(1).f_globals

    def global_name(self) -> str | None:
        """The name of the global variable that it is, in the module that made it."""
        return next((name for name, value in self._module.items() if value is self), None)

    def __repr__(self) -> str:
        return f"Correlation({', '.join(map(repr, self.properties))}, types={list(self.types)!r})"


class Receive:
    """An activating receive: a message of this type that the filter matches starts an instance."""

    def __init__(
        self,
        type: str,  # noqa: A002 - the word of the declaration
        filter: Expression | str | None = None,  # noqa: A002
        *,
        initializes: Correlation | Sequence[Correlation] = (),
    ) -> None:
        sets = (initializes,) if isinstance(initializes, Correlation) else tuple(initializes)
        if not _is_name(type):
            raise ApplicationError(f"A Receive names the type of its message, and {type!r} is no type")
        if not all(isinstance(each, Correlation) for each in sets):
            raise ApplicationError(f"Receive({type!r}) initializes {initializes!r}, which is not a Correlation")
        self.type = type
        self.filter = filter
        self.initializes = sets

    @property
    def is_convoy(self) -> bool:
        """Whether its own type follows a set that it initializes: equal values then never start two instances."""
        return any(self.type in each.types for each in self.initializes)

    def __repr__(self) -> str:
        return f"Receive({self.type!r})"


class Orchestration:
    """A declared function. To call it is to await it in another one: it then runs in the instance of its caller."""

    def __init__(
        self, function: Function, receives: Sequence[Receive], late: Late = "discard", named: Sequence[Correlation] = ()
    ) -> None:
        self.name = function.__name__
        self.function = function
        self.receives = tuple(receives)
        self.late: Late = late
        self._named = tuple(named)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any) -> Coroutine[Any, Any, Any]:
        return self.function(*arguments)

    def __repr__(self) -> str:
        return f"<orchestration {self.function.__module__}:{self.name}>"

    @cached_property
    def correlations(self) -> tuple[Correlation, ...]:
        """Every set that the declaration or the code names, with names. Look at it once the module is loaded."""
        declared = [each for receive in self.receives for each in receive.initializes]
        used = [each for each in _used_by(self.function) if isinstance(each, Correlation)]
        found = tuple(dict.fromkeys([*declared, *self._named, *used]))
        _give_names(found)
        return found

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """Every port that the code names. Look at it once the module is loaded."""
        return tuple(dict.fromkeys(each for each in _used_by(self.function) if isinstance(each, Port)))


def orchestration(
    *receives: Receive, late: Late = "discard", correlations: Sequence[Correlation] = ()
) -> Callable[[Function], Orchestration]:
    """Declare an `async def` with the receives that start it.

    `late` says what happens to messages that come for a convoy when its instance has ended: they are discarded, or open
    the `next` instance. `correlations` are sets that the code uses and that cannot be found as globals of its module.
    """
    if not all(isinstance(each, Receive) for each in receives):
        raise ApplicationError('Declare an orchestration with its receives: @orchestration(Receive("Order"))')
    if late not in ("discard", "next"):
        raise ApplicationError(f"late={late!r} is neither 'discard' nor 'next'")

    def declare(function: Function) -> Orchestration:
        if not iscoroutinefunction(function):
            raise ApplicationError(f"Orchestration {getattr(function, '__name__', function)!r} is not an `async def`")
        return Orchestration(function, receives, late, correlations)

    return declare


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _give_names(correlations: Iterable[Correlation]) -> None:
    taken: set[str] = set()
    for number, each in enumerate(correlations, start=1):
        name = each.name or each.global_name() or f"correlation_{number}"
        each.name = f"{name}_{number}" if name in taken else name
        taken.add(each.name)


def _used_by(function: Function) -> Iterator[object]:
    """The globals and the variables of closures that a function names, and those of the functions that it names."""
    seen: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case Orchestration():
                waiting.append(value.function)
            case FunctionType() if is_authors(value.__code__) or _package(value) == _package(function):
                waiting += _named(value)
            case list() | tuple() | set() | frozenset():
                waiting += value
            case dict():
                waiting += value.values()
            case Port() | Correlation():
                yield value
            case _:
                pass


def _package(function: Function) -> str:
    return function.__module__.partition(".")[0]


def _named(function: FunctionType) -> Iterator[object]:
    for name in _global_names(function.__code__):
        found = function.__globals__.get(name)
        yield found
        if isinstance(found, ModuleType):
            yield from (getattr(found, attribute, None) for attribute in _attribute_names(function.__code__))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _attribute_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attribute_names(constant)


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
        elif isinstance(instruction.argval, CodeType):
            yield from _global_names(instruction.argval)
