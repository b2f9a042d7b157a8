"""How YAML is read: strictly, exactly, and with the line of every key and entry."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml

from crossdock.application.problems import Lines, Place

_TRUE = ("true", "yes", "on")


def lines_of(node: yaml.Node | None) -> Lines:
    """The line of every key and of every entry of a list, counted from 1."""
    return {} if node is None else dict(_lines(node, ()))


def _lines(node: yaml.Node, place: Place) -> Iterator[tuple[Place, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*place, key.value), key.start_mark.line + 1
            yield from _lines(value, (*place, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield (*place, number), value.start_mark.line + 1
            yield from _lines(value, (*place, number))


def yaml_place(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


class StrictLoader(yaml.SafeLoader):
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


StrictLoader.add_constructor("tag:yaml.org,2002:float", _exact_number)
