"""Reads the syntax tree of a coroutine, and of the helpers that it calls, for what would go wrong when it is replayed.

A name is followed to what it stands for only where that is certain: by imports, and by functions that are defined once.
Functions given to `process.atomic` may do anything and are not looked at.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from crossdock.orchestration.declare import Orchestration, Port
from crossdock.orchestration.forbidden import advice_for_call, advice_for_path

Function = ast.FunctionDef | ast.AsyncFunctionDef

# What has to be awaited. Without `await` nothing happens, and nothing says so.
_AWAITED = frozenset(
    {
        "send",
        "receive",
        "request",
        "reply",
        "delay",
        "listen",
        "parallel",
        "start",
        "atomic",
        "suspend",
        "continue_with",
    }
)
_TAKES_ANY_ORDER = frozenset({"sorted", "sum", "min", "max", "any", "all", "len", "set", "frozenset"})
_KEEPS_ORDER = frozenset({"list", "tuple", "enumerate", "iter"})


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake of an author, and what to write instead. A line of 0 means the whole file."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


@dataclass(slots=True)
class _Scope:
    """The names that a module or a function binds: by imports, as functions, or in any other way."""

    path: str
    parent: _Scope | None = None
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)

    def owner(self, name: str) -> _Scope | None:
        scope: _Scope | None = self
        while scope is not None and name not in scope.imports.keys() | scope.functions.keys() | scope.others:
            scope = scope.parent
        return scope

    def is_process(self, node: ast.expr) -> bool:
        owner = self.owner(node.id) if isinstance(node, ast.Name) else None
        return isinstance(node, ast.Name) and owner is not None and node.id in owner.processes


class CodeCheck:
    """Of one orchestration. `types` are the declared message types, `bind` what kind of thing each port is bound to."""

    def __init__(
        self,
        orchestration: Orchestration,
        function: str,
        trees: Mapping[str, ast.Module],
        types: frozenset[str],
        bind: Mapping[str, str],
    ) -> None:
        self._globals = orchestration.function.__globals__
        self._types = types
        self._bind = bind
        self._trees = trees
        self._modules = {path: _scope(_Scope(path), tree.body) for path, tree in trees.items()}
        self._module, self._name = function.split(":")
        self._waiting: list[tuple[Function, _Scope]] = []
        self._seen: set[int] = set()
        self._mistakes: list[Mistake] = []

    def mistakes(self) -> list[Mistake]:
        scope = self._modules[self._path(self._module) or ""]
        coroutine = scope.functions.get(self._name)
        if coroutine is not None:
            self._follow(coroutine, scope, is_orchestration=True)
        while self._waiting:
            function, inner = self._waiting.pop()
            for statement in function.body:
                self._visit(statement, inner)
        return self._mistakes

    def _follow(self, function: Function, scope: _Scope, *, is_orchestration: bool = False) -> None:
        """Look at this function too, which is defined in `scope`."""
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        inner = _Scope(scope.path, scope)
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        inner.others |= _parameters(function.args)
        inner.processes |= {each.arg for each in arguments if _names(each.annotation) == "Process"}
        if arguments and (is_orchestration or _is_decorated(function, "orchestration")):
            inner.processes.add(arguments[0].arg)
        self._waiting.append((function, _scope(inner, function.body)))

    # The walk

    def _visit(self, node: ast.AST, scope: _Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return  # a function is looked at when it is called
            case ast.Assign(value=ast.Lambda()) | ast.AnnAssign(value=ast.Lambda()) | ast.NamedExpr(value=ast.Lambda()):
                return  # it may be for process.atomic
            case ast.Lambda(args=args, body=body):
                self._visit(body, _Scope(scope.path, scope, others=_parameters(args)))
                return
            case ast.Call():
                self._check_call(node, scope)
                self._visit_call(node, scope)
                return
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver, attr=verb))):
                if verb in _AWAITED and scope.is_process(receiver):
                    self._found(scope, node, f"without `await` it does nothing; write await process.{verb}(...)")
            case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated):
                self._check_order(iterated, scope)
            case ast.ListComp(generators=[first, *_]) | ast.DictComp(generators=[first, *_]):
                self._check_order(first.iter, scope)
            case ast.Await(value=ast.Call() as call):
                self._check_awaited(call, scope)
        self._visit_children(node, scope)

    def _visit_children(self, node: ast.AST, scope: _Scope) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope)

    def _visit_call(self, call: ast.Call, scope: _Scope) -> None:
        """Without the function that `process.atomic` is given."""
        is_atomic = isinstance(call.func, ast.Attribute) and call.func.attr == "atomic"
        takes_any_order = isinstance(call.func, ast.Name) and call.func.id in _TAKES_ANY_ORDER and len(call.args) == 1
        self._visit(call.func, scope)
        for argument in call.args[1:] if is_atomic else call.args:
            if takes_any_order and (isinstance(argument, ast.ListComp | ast.GeneratorExp) or _is_list(argument)):
                self._visit_children(argument, scope)  # sorted([x for x in {...}]) is the same in any order
            else:
                self._visit(argument, scope)
        for keyword in call.keywords:
            self._visit(keyword.value, scope)

    # The rules

    def _check_call(self, call: ast.Call, scope: _Scope) -> None:
        name = self._full_name(call.func, scope)
        if name is not None:
            advice = advice_for_call(name, has_arguments=bool(call.args or call.keywords))
            if advice is not None:
                self._found(scope, call, f"{_written(name)}() {advice}")
            elif name.removeprefix("builtins.") in _KEEPS_ORDER and name.startswith("builtins.") and call.args:
                self._check_order(call.args[0], scope)
        self._check_path(call, scope)
        self._check_process(call, scope)
        self._follow_call(call.func, scope)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "compensate" and call.args:
            self._follow_call(call.args[0], scope)

    def _check_path(self, call: ast.Call, scope: _Scope) -> None:
        match call.func:
            case ast.Attribute(value=ast.Call(func=made), attr=verb) if self._full_name(made, scope) == "pathlib.Path":
                if (advice := advice_for_path(verb)) is not None:
                    self._found(scope, call, f"Path.{verb}() {advice}")

    def _check_process(self, call: ast.Call, scope: _Scope) -> None:
        """What is asked of the process itself: message types, and ports that cannot do what is asked of them."""
        if not isinstance(call.func, ast.Attribute) or not scope.is_process(call.func.value) or not call.args:
            return
        verb, first = call.func.attr, call.args[0]
        if verb == "message" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            self._check_type(first.value, call, scope)
        bound = self._bind.get(self._port_name(first, scope) or "")
        if verb == "request" and bound in ("port", "group"):
            self._found(
                scope,
                call,
                f"nothing answers {ast.unparse(first)}; bind it to a send port with `response`, or use send",
            )
        if verb == "start" and bound in ("port", "two-way port", "group", "dynamic"):
            self._found(scope, call, f"{ast.unparse(first)} is not bound to an orchestration; use process.send")

    def _check_type(self, type_: str, call: ast.Call, scope: _Scope) -> None:
        if type_ in self._types:
            return
        meant = get_close_matches(type_, self._types, n=1)
        hint = f"did you mean {meant[0]!r}?" if meant else "declare it under `schemas`"
        self._found(scope, call, f"no schema declares the message type {type_!r}; {hint}")

    def _check_awaited(self, call: ast.Call, scope: _Scope) -> None:
        """A coroutine of an installed package that is not given the process waits for an event loop."""
        name = self._full_name(call.func, scope)
        if name is None or name.startswith(("builtins.", "crossdock.")) or self._function(name) is not None:
            return
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        mentioned = any(
            scope.is_process(each) for every in given for each in ast.walk(every) if isinstance(each, ast.expr)
        )
        if mentioned or advice_for_call(name, has_arguments=bool(given)) is not None or self._is_beside(name):
            return
        self._found(
            scope, call, f"await {_written(name)}() waits for an event loop, and there is none; await what process has"
        )

    def _check_order(self, iterated: ast.expr, scope: _Scope) -> None:
        match iterated:
            case ast.Set(elts=elements):
                is_set = not all(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in elements)
            case ast.SetComp():
                is_set = True
            case ast.Call(func=made, args=arguments):
                is_set = bool(arguments) and self._full_name(made, scope) in ("builtins.set", "builtins.frozenset")
            case _:
                is_set = False
        if is_set:
            self._found(scope, iterated, "a set has another order in every process; write sorted(...) around it")

    # Names

    def _full_name(self, node: ast.expr, scope: _Scope) -> str | None:
        """What a name or a chain of attributes stands for, as `datetime.datetime.now`; None if it is not certain."""
        if isinstance(node, ast.Attribute):
            start = self._full_name(node.value, scope)
            return None if start is None else f"{start}.{node.attr}"
        if not isinstance(node, ast.Name):
            return None
        owner = scope.owner(node.id)
        if owner is None:
            return f"builtins.{node.id}" if hasattr(builtins, node.id) else None
        if node.id in owner.others or node.id in owner.functions:
            return None
        return owner.imports[node.id]

    def _follow_call(self, called: ast.expr, scope: _Scope) -> None:
        owner = scope.owner(called.id) if isinstance(called, ast.Name) else None
        if isinstance(called, ast.Name) and owner is not None and called.id in owner.functions:
            if called.id not in owner.others | owner.imports.keys():
                self._follow(owner.functions[called.id], owner)
            return
        name = self._full_name(called, scope)
        found = None if name is None else self._function(name)
        if found is not None:
            self._follow(*found)

    def _function(self, name: str) -> tuple[Function, _Scope] | None:
        """A function of a module beside the application."""
        module, _, attribute = name.rpartition(".")
        path = self._path(module)
        if path is None or attribute not in self._modules[path].functions:
            return None
        return self._modules[path].functions[attribute], self._modules[path]

    def _is_beside(self, name: str) -> bool:
        parts = name.split(".")
        return any(self._path(".".join(parts[:count])) is not None for count in range(1, len(parts) + 1))

    def _path(self, module: str) -> str | None:
        place = module.replace(".", "/")
        return next((path for path in (f"{place}.py", f"{place}/__init__.py") if path in self._trees), None)

    def _port_name(self, node: ast.expr, scope: _Scope) -> str | None:
        """The name of the port that a global of the orchestration's module holds."""
        owner = scope.owner(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(node, ast.Name) or owner is not self._modules.get(self._path(self._module) or ""):
            return None
        value = self._globals.get(node.id)
        return value.name if isinstance(value, Port) else None

    def _found(self, scope: _Scope, node: ast.AST, what: str) -> None:
        self._mistakes.append(Mistake(scope.path, getattr(node, "lineno", 0), what))


def _scope(scope: _Scope, body: list[ast.stmt]) -> _Scope:
    """The scope with every name that these statements bind, without those inside functions and classes."""
    for node in _own_nodes(body):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    scope.imports[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            case ast.ImportFrom(names=names, module=module, level=0):
                scope.imports |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
            case ast.ImportFrom(names=names):  # relative: not followed
                scope.others |= {alias.asname or alias.name for alias in names}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name in scope.functions:
                    scope.others.add(name)
                scope.functions[name] = node
            case ast.ClassDef(name=name):
                scope.others.add(name)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                scope.others.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.others.add(name)
            case ast.MatchMapping(rest=str(name)):
                scope.others.add(name)
    return scope


def _own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple")


def _parameters(arguments: ast.arguments) -> set[str]:
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return {each.arg for each in [*plain, *starred]}


def _names(annotation: ast.expr | None) -> str | None:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case _:
            return None


def _is_decorated(function: Function, name: str) -> bool:
    called = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return any(_names(each) == name for each in called)


def _written(name: str) -> str:
    return name.removeprefix("builtins.")
