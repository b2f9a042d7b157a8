"""What a coroutine asks of its process, and what cannot be: a wrong verb, type, port, map or correlation."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from crossdock.orchestration.declare import Correlation, Orchestration, Port
from crossdock.orchestration.process import Process

_VERBS = frozenset(name for name in dir(Process) if not name.startswith("_"))
_MEANT = {"sleep": "delay", "wait": "receive", "gather": "parallel", "time": "now", "uuid4": "uuid", "race": "listen"}


class ProcessCheck:
    """Of one orchestration. `types` are the declared message types, `bind` what kind of thing each port is bound to."""

    def __init__(
        self,
        orchestration: Orchestration,
        trees: Iterable[ast.Module],
        types: frozenset[str],
        bind: Mapping[str, str],
        maps: frozenset[str],
    ) -> None:
        self._types = types
        self._bind = bind
        self._maps = maps
        self._receives = orchestration.receives
        self._initialized = _initialized(trees)

    def unknown_verb(self, verb: str) -> str | None:
        if verb in _VERBS or verb.startswith("_"):
            return None
        meant = [_MEANT[verb]] if verb in _MEANT else get_close_matches(verb, _VERBS, n=1)
        hint = f"did you mean process.{meant[0]}?" if meant else f"it has {', '.join(sorted(_VERBS))}"
        return f"process has no {verb!r}; {hint}"

    def mistakes(self, verb: str, call: ast.Call, value: object) -> Iterator[str]:
        """`value` is the global that the first argument names, if it names one."""
        if not call.args:
            return
        first = call.args[0]
        if verb == "message" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield from self._type(first.value)
        if verb == "map" and isinstance(first, ast.Constant) and first.value not in self._maps:
            known = ", ".join(sorted(self._maps)) or "none"
            yield f"the orchestration has no map {first.value!r} (there are: {known}); name it under `maps`"
        if isinstance(value, Port):
            yield from self._port(verb, first, self._bind.get(value.name, ""))
        if isinstance(value, Correlation) and verb == "receive":
            yield from self._received(value, call)

    def _type(self, type_: str) -> Iterator[str]:
        if type_ not in self._types:
            meant = get_close_matches(type_, self._types, n=1)
            hint = f"did you mean {meant[0]!r}?" if meant else "declare it under `schemas`"
            yield f"no schema declares the message type {type_!r}; {hint}"

    def _port(self, verb: str, port: ast.expr, bound: str) -> Iterator[str]:
        if verb == "request" and bound in ("port", "group"):
            yield f"nothing answers {ast.unparse(port)}; bind it to a send port with `response`, or use send"
        if verb == "start" and bound in ("port", "two-way port", "group", "dynamic"):
            yield f"{ast.unparse(port)} is not bound to an orchestration; use process.send"

    def _received(self, correlation: Correlation, call: ast.Call) -> Iterator[str]:
        for keyword in call.keywords:
            wanted = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg == "type" and isinstance(wanted, str) and wanted not in correlation.types:
                meant = get_close_matches(wanted, correlation.types, n=1)
                hint = f"did you mean {meant[0]!r}?" if meant else "add it to `types`"
                yield f"the set {correlation.name!r} has no type {wanted!r}; {hint}"
        begun = any(correlation in receive.initializes for receive in self._receives)
        if not begun and self._initialized is not None and correlation.global_name() not in self._initialized:
            yield (
                f"nothing initializes the set {correlation.name!r}, so no message can follow it; write "
                f"initializes={correlation.name} in a Receive or in process.send"
            )


def _initialized(trees: Iterable[ast.Module]) -> frozenset[str] | None:
    """The names of everything that is written after `initializes=`; None if something else than names may be."""
    names = set[str]()
    for call in (each for tree in trees for each in ast.walk(tree) if isinstance(each, ast.Call)):
        for keyword in call.keywords:
            if keyword.arg == "initializes":
                parts = keyword.value.elts if isinstance(keyword.value, ast.List | ast.Tuple) else [keyword.value]
                if not all(isinstance(part, ast.Name | ast.Attribute) for part in parts):
                    return None
                names |= {ast.unparse(part).rpartition(".")[2] for part in parts}
            elif keyword.arg is None and ast.unparse(call.func).rpartition(".")[2] in ("send", "start", "Receive"):
                return None
    return frozenset(names)
