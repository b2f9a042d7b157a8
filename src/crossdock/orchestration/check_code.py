"""Reads the syntax tree of a coroutine, and of the helpers that it calls, for what would go wrong when it is replayed.

A name is followed to what it stands for only where that is certain: by imports, and by functions that are defined once.
Functions given to `process.atomic` may do anything and are not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from crossdock.orchestration.check_order import TAKES_ANY_ORDER, order_mistakes
from crossdock.orchestration.check_process import ProcessCheck
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.forbidden import LOGGED, OF_THE_MACHINE, advice_for_call, advice_for_path, advice_for_value
from crossdock.orchestration.scopes import Function, Scope, bound, parameters

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


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake of an author, and what to write instead. A line of 0 means the whole file."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


class CodeCheck:
    """Of one orchestration. `types` are the declared message types, `bind` what kind of thing each port is bound to."""

    def __init__(
        self,
        orchestration: Orchestration,
        function: str,
        trees: Mapping[str, ast.Module],
        types: frozenset[str],
        bind: Mapping[str, str],
        maps: frozenset[str],
    ) -> None:
        self._globals = orchestration.function.__globals__
        self._asked = ProcessCheck(orchestration, trees.values(), types, bind, maps)
        self._trees = trees
        self._modules = {path: bound(Scope(path), tree.body) for path, tree in trees.items()}
        self._module, self._name = function.split(":")
        self._waiting: list[tuple[Function, Scope]] = []
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

    def _follow(self, function: Function, scope: Scope, *, is_orchestration: bool = False) -> None:
        """Look at this function too, which is defined in `scope`."""
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        inner = Scope(scope.path, scope)
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        inner.others |= parameters(function.args)
        inner.processes |= {each.arg for each in arguments if _names(each.annotation) == "Process"}
        if arguments and (is_orchestration or _is_decorated(function, "orchestration")):
            inner.processes.add(arguments[0].arg)
        self._waiting.append((function, bound(inner, function.body)))

    # The walk

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        for place, mistake in order_mistakes(node, scope):
            self._found(scope, place, mistake)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return  # a function is looked at when it is called
            case ast.Assign(value=ast.Lambda()) | ast.AnnAssign(value=ast.Lambda()) | ast.NamedExpr(value=ast.Lambda()):
                return  # it may be for process.atomic
            case ast.Lambda(args=args, body=body):
                self._visit(body, Scope(scope.path, scope, others=parameters(args)))
                return
            case ast.Call():
                self._check_call(node, scope)
                self._visit_call(node, scope)
                return
        self._check_node(node, scope)
        self._visit_children(node, scope)

    def _check_node(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Expr(value=ast.Call() as call):
                self._check_bare(call, scope)
            case ast.Await(value=ast.Call() as call):
                self._check_awaited(call, scope)
            case ast.Attribute(value=receiver, attr=verb) if scope.is_process(receiver):
                if (mistake := self._asked.unknown_verb(verb)) is not None:
                    self._found(scope, node, mistake)
            case ast.With(items=items):
                self._check_scopes(items, scope)
            case ast.Subscript(value=value) if scope.full_name(value) == "os.environ":
                self._found(scope, node, f"os.environ {OF_THE_MACHINE}")
            case ast.Name(ctx=ast.Load()):
                self._check_value(node, scope)

    def _check_scopes(self, items: list[ast.withitem], scope: Scope) -> None:
        for item in items:
            match item.context_expr:
                case ast.Call(func=ast.Attribute(value=receiver, attr="scope")) if scope.is_process(receiver):
                    self._found(scope, item.context_expr, "a scope may wait; write async with process.scope(...)")

    def _visit_children(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope)

    def _visit_call(self, call: ast.Call, scope: Scope) -> None:
        """Without the function that `process.atomic` is given."""
        is_atomic = isinstance(call.func, ast.Attribute) and call.func.attr == "atomic"
        takes_any_order = isinstance(call.func, ast.Name) and call.func.id in TAKES_ANY_ORDER and len(call.args) == 1
        self._visit(call.func, scope)
        for argument in call.args[1:] if is_atomic else call.args:
            if takes_any_order and (isinstance(argument, ast.ListComp | ast.GeneratorExp) or _is_list(argument)):
                self._visit_children(argument, scope)  # sorted([x for x in {...}]) is the same in any order
            else:
                self._visit(argument, scope)
        for keyword in call.keywords:
            self._visit(keyword.value, scope)

    # The rules

    def _check_call(self, call: ast.Call, scope: Scope) -> None:
        name = scope.full_name(call.func)
        if name is not None:
            advice = advice_for_call(name, has_arguments=bool(call.args or call.keywords))
            if advice is not None:
                self._found(scope, call, f"{_written(name)}() {advice}")
        self._check_path(call, scope)
        self._check_process(call, scope)
        self._check_logged(call, scope)
        self._follow_call(call.func, scope)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "compensate" and call.args:
            self._follow_call(call.args[0], scope)

    def _check_path(self, call: ast.Call, scope: Scope) -> None:
        if not isinstance(call.func, ast.Attribute) or (advice := advice_for_path(call.func.attr)) is None:
            return
        values, owner = scope.value(call.func.value)
        made = [(call.func.value, scope)] if not values else [(each, owner) for each in values]
        if all(isinstance(each, ast.Call) and where.full_name(each.func) == "pathlib.Path" for each, where in made):
            self._found(scope, call, f"Path.{call.func.attr}() {advice}")

    def _check_process(self, call: ast.Call, scope: Scope) -> None:
        if isinstance(call.func, ast.Attribute) and scope.is_process(call.func.value):
            value = self._global(call.args[0], scope) if call.args else None
            for mistake in self._asked.mistakes(call.func.attr, call, value):
                self._found(scope, call, mistake)

    def _check_logged(self, call: ast.Call, scope: Scope) -> None:
        """A logger that is a variable of a module. `logging.info` itself is among what is forbidden."""
        match call.func:
            case ast.Attribute(value=logger, attr=verb) if verb in LOGGED:
                [*values], owner = scope.value(logger)
                if any(
                    isinstance(each, ast.Call) and owner.full_name(each.func) == "logging.getLogger" for each in values
                ):
                    self._found(
                        scope, call, f"{ast.unparse(call.func)}() {advice_for_call('logging.info', has_arguments=True)}"
                    )

    def _check_value(self, node: ast.Name, scope: Scope) -> None:
        """A variable of a module that holds what the clock or chance gave when the module was loaded."""
        values, owner = scope.value(node)
        for each in values if owner.parent is None else []:
            name = owner.full_name(each.func) if isinstance(each, ast.Call) else None
            if name is not None and isinstance(each, ast.Call):
                advice = advice_for_value(name, has_arguments=bool(each.args or each.keywords))
                if advice is not None:
                    self._found(scope, node, f"{node.id} holds {_written(name)}(), which {advice}")

    def _check_bare(self, call: ast.Call, scope: Scope) -> None:
        """A coroutine that is called and not awaited."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in _AWAITED and scope.is_process(call.func.value):
            self._found(scope, call, f"without `await` it does nothing; write await process.{call.func.attr}(...)")
            return
        called = self._called(call.func, scope)
        if called is not None and isinstance(called[0], ast.AsyncFunctionDef) and not _is_decorated_by_other(called[0]):
            self._found(scope, call, f"without `await` it does nothing; write await {ast.unparse(call.func)}(...)")

    def _check_awaited(self, call: ast.Call, scope: Scope) -> None:
        """A coroutine of an installed package that is not given the process waits for an event loop."""
        name = scope.full_name(call.func)
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

    # Names

    def _follow_call(self, called: ast.expr, scope: Scope) -> None:
        found = self._called(called, scope)
        if found is not None:
            self._follow(*found)

    def _called(self, called: ast.expr, scope: Scope) -> tuple[Function, Scope] | None:
        """The function that this certainly is, and where it is defined."""
        owner = scope.owner(called.id) if isinstance(called, ast.Name) else None
        if isinstance(called, ast.Name) and owner is not None and called.id in owner.functions:
            certain = called.id not in owner.others | owner.imports.keys()
            return (owner.functions[called.id], owner) if certain else None
        name = scope.full_name(called)
        return None if name is None else self._function(name)

    def _function(self, name: str) -> tuple[Function, Scope] | None:
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

    def _global(self, node: ast.expr, scope: Scope) -> object:
        """The value of a global of the orchestration's module; None if this is no name of one."""
        owner = scope.owner(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(node, ast.Name) or owner is not self._modules.get(self._path(self._module) or ""):
            return None
        return self._globals.get(node.id)

    def _found(self, scope: Scope, node: ast.AST, what: str) -> None:
        self._mistakes.append(Mistake(scope.path, getattr(node, "lineno", 0), what))


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple")


def _names(annotation: ast.expr | None) -> str | None:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case _:
            return None


def _is_decorated(function: Function, name: str) -> bool:
    called = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return any(_names(each) == name for each in called)


def _is_decorated_by_other(function: Function) -> bool:
    return len(function.decorator_list) > _is_decorated(function, "orchestration")


def _written(name: str) -> str:
    return name.removeprefix("builtins.")
