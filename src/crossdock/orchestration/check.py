"""Mistakes in an orchestration that can be told before it runs, all of them at once, each with its place.

What is declared (ports, message types, correlations, filters) is looked at here; `check_code.py` reads the coroutine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from typing import Literal

from crossdock.errors import FilterError
from crossdock.message.property import PropertyRegistry
from crossdock.orchestration.bundle import Sources
from crossdock.orchestration.check_code import CodeCheck, Mistake
from crossdock.orchestration.declare import Correlation, Orchestration, Receive
from crossdock.orchestration.version import reachable
from crossdock.subscription.expression import Expression, compile_expression
from crossdock.subscription.lint import lint
from crossdock.subscription.predicate import Filter, Operator, Predicate
from crossdock.subscription.text import parse_filter

_TYPE = "BTS.MessageType"

Bound = Literal["port", "two-way port", "group", "orchestration", "direct", "dynamic"]


@dataclass(frozen=True, slots=True)
class Declared:
    """What the application declares: properties, message types with what their schemas promote, bindings, maps.

    `by_schemas_only`: no code of the application promotes anything, so that a message has a type that is declared, and
    what a schema does not promote is absent.
    """

    registry: PropertyRegistry
    types: Mapping[str, frozenset[str]]
    bind: Mapping[str, Bound]
    by_schemas_only: bool = True
    maps: frozenset[str] = frozenset()


def check(orchestration: Orchestration, function: str, sources: Sources, declared: Declared) -> list[Mistake]:
    """Everything that is certainly wrong, in the order of files and lines."""
    trees = reachable(function.partition(":")[0], sources)
    places = _Places(orchestration, function, trees)
    found = {
        *_function(orchestration, places),
        *_ports(orchestration, places, declared),
        *_receives(orchestration, places, declared, sources),
        *_correlations(orchestration, places, declared),
        *CodeCheck(orchestration, function, trees, frozenset(declared.types), declared.bind, declared.maps).mistakes(),
    }
    return sorted(found)


def receive_filter(registry: PropertyRegistry, receive: Receive) -> Filter | None:
    """What a message has to be besides of the type that is received. Raises FilterError."""
    if receive.filter is None:
        return None
    if isinstance(receive.filter, Expression):
        return compile_expression(registry, receive.filter)
    return parse_filter(registry, receive.filter)


def activation_filter(registry: PropertyRegistry, receive: Receive) -> Filter:
    """The groups by which an activating receive subscribes: each asks for its type too."""
    of_type = Predicate(_TYPE, Operator.EQUAL, receive.type)
    own = receive_filter(registry, receive)
    groups = ((),) if own is None else own.groups
    return Filter(tuple((of_type, *(each for each in group if each != of_type)) for group in groups))


def _function(orchestration: Orchestration, places: _Places) -> Iterator[Mistake]:
    try:
        signature(orchestration.function).bind("process", "message")
    except TypeError:
        yield places.function().mistake(
            f"it is called with the process and the message that begins it; write async def {orchestration.name}"
            "(process: Process, message: Message)"
        )
    if orchestration.late == "next" and not any(receive.is_convoy for receive in orchestration.receives):
        yield places.function().mistake(
            "late='next' is for convoys, and this is none: write a Receive whose type is among the `types` of the set "
            "that it initializes, or leave out `late`"
        )


def _ports(orchestration: Orchestration, places: _Places, declared: Declared) -> Iterator[Mistake]:
    names = [port.name for port in orchestration.ports]
    beside = places.ports()
    for name in dict.fromkeys(names):
        if name not in declared.bind:
            yield places.port(name).mistake(
                f"port {name!r} is bound to nothing; write bind: {{{name}: NAME}}, the name of a send port, a group or "
                "an orchestration, or `direct`"
            )
    for name in declared.bind:
        if name not in names and name not in beside:
            yield places.function().mistake(
                f"`bind` names the port {name!r}, and there is none of that name{_meant(name, [*names, *beside])}"
            )


def _receives(orchestration: Orchestration, places: _Places, declared: Declared, sources: Sources) -> Iterator[Mistake]:
    for number, receive in enumerate(orchestration.receives):
        place = places.receive(number)
        if receive.type not in declared.types and declared.by_schemas_only:
            yield place.mistake(_undeclared_type(receive.type, declared))
        yield from _filter(receive, place, declared, sources)
        for correlation in receive.initializes:
            yield from _promotes(receive.type, correlation, place, declared)


def _filter(receive: Receive, place: _Place, declared: Declared, sources: Sources) -> Iterator[Mistake]:
    try:
        filter_ = activation_filter(declared.registry, receive)
    except FilterError as error:
        pointed = error.pointed()
        yield place.mistake(
            f"the filter of Receive({receive.type!r}): {error.reason}" + (f"\n{pointed}" * bool(pointed))
        )
        return
    absent = _absent(receive.type, declared, sources)
    never = [_contradiction(Filter((group,))) or _lacks(group, receive.type, absent) for group in filter_.groups]
    if all(never):
        why = never[0] if never else "it has no groups"
        yield place.mistake(f"the filter of Receive({receive.type!r}) matches no message: {why}")


def _contradiction(filter_: Filter) -> str | None:
    found = (finding.message for finding in lint({"": filter_}, ()) if finding.kind == "contradiction")
    return next(found, None)


def _absent(type_: str, declared: Declared, sources: Sources) -> frozenset[str]:
    """Declared properties that no message of this type has: its schema promotes them not, and no code names them."""
    if not declared.by_schemas_only or type_ not in declared.types:
        return frozenset()
    lacking = declared.registry.declared.keys() - declared.types[type_]
    return frozenset(
        name for name in lacking if not any(f'"{name}"' in text or f"'{name}'" in text for text in _texts(sources))
    )


def _texts(sources: Sources) -> list[str]:
    return [source.decode("utf-8", "replace") for source in sources.values()]


def _lacks(group: tuple[Predicate, ...], type_: str, absent: frozenset[str]) -> str | None:
    for each in group:
        if each.property in absent and each.operator is not Operator.NOT_EXISTS:
            name = each.property
            return (
                f"a message of type {type_!r} has no {name!r}: its schema does not promote {name!r}; write promote: "
                f"{{{name}: ...}} in the schema"
            )
    return None


def _correlations(orchestration: Orchestration, places: _Places, declared: Declared) -> Iterator[Mistake]:
    for correlation in orchestration.correlations:
        place = places.correlation(correlation)
        for name in correlation.properties:
            full_name = declared.registry.resolve(name)
            if full_name is None:
                meant = declared.registry.suggest(name)
                hint = f"did you mean {meant!r}?" if meant else "declare it under `properties`"
                yield place.mistake(f"property {name!r} is not declared; {hint}")
            elif not declared.registry.routable(full_name):
                yield place.mistake(f"property {full_name!r} is only written, never promoted: nothing correlates by it")
        for type_ in correlation.types:
            if type_ not in declared.types and declared.by_schemas_only:
                yield place.mistake(_undeclared_type(type_, declared))
            yield from _promotes(type_, correlation, place, declared)


def _promotes(type_: str, correlation: Correlation, place: _Place, declared: Declared) -> Iterator[Mistake]:
    if not declared.by_schemas_only or type_ not in declared.types:
        return
    for name in correlation.properties:
        if name in declared.registry.declared and name not in declared.types[type_]:
            yield place.mistake(
                f"a message of type {type_!r} has no {name!r} to correlate by: its schema does not promote {name!r}; "
                f"write promote: {{{name}: ...}} in the schema, or leave {type_!r} out"
            )


def _undeclared_type(type_: str, declared: Declared) -> str:
    return f"no schema declares the message type {type_!r}{_meant(type_, declared.types)}"


def _meant(name: str, known: Mapping[str, object] | list[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(known) or 'none'})"


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    line: int

    def mistake(self, what: str) -> Mistake:
        return Mistake(self.file, self.line, what)


class _Places:
    """Where things are declared; where that cannot be told, the place of the function."""

    def __init__(self, orchestration: Orchestration, function: str, trees: Mapping[str, ast.Module]) -> None:
        self._trees = trees
        name = function.partition(":")[2]
        module = function.partition(":")[0].replace(".", "/")
        self._file = next(path for path in (f"{module}.py", f"{module}/__init__.py") if path in trees)
        defined = (node for node in trees[self._file].body if isinstance(node, ast.AsyncFunctionDef))
        self._function = next((node for node in defined if node.name == name), None)
        self._line = orchestration.function.__code__.co_firstlineno

    def function(self) -> _Place:
        return _Place(self._file, self._line if self._function is None else self._function.lineno)

    def receive(self, number: int) -> _Place:
        decorators = [] if self._function is None else self._function.decorator_list
        for decorator in decorators:
            plain = isinstance(decorator, ast.Call) and not any(
                isinstance(each, ast.Starred) for each in decorator.args
            )
            if isinstance(decorator, ast.Call) and plain and number < len(decorator.args):
                return _Place(self._file, decorator.args[number].lineno)
        return self.function()

    def ports(self) -> list[str]:
        """The names of all ports that are declared, whether or not the code is seen to use them."""
        return list(dict.fromkeys(name for name, _ in self._ports()))

    def port(self, name: str) -> _Place:
        return next((place for found, place in self._ports() if found == name), self.function())

    def _ports(self) -> Iterator[tuple[str, _Place]]:
        for path, tree in self._trees.items():
            for node in ast.walk(tree):
                match node:
                    case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _called(node) == "Port":
                        yield name, _Place(path, node.lineno)
                    case ast.Call(keywords=[ast.keyword(arg="name", value=ast.Constant(value=str(name)))]) if (
                        _called(node) == "Port"
                    ):
                        yield name, _Place(path, node.lineno)

    def correlation(self, correlation: Correlation) -> _Place:
        for path, tree in self._trees.items():
            for node in tree.body:
                targets = node.targets if isinstance(node, ast.Assign) else []
                targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
                names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
                if correlation.name in names:
                    return _Place(path, node.lineno)
        return self.function()


def _called(node: ast.Call) -> str | None:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
