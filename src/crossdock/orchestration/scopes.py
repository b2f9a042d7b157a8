"""The names that a module or a function binds, as its syntax tree tells, and what is certain of them.

`check_code.py` asks here what a name stands for; `check_order.py` which variables hold sets.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Scope:
    """The names that a module or a function binds: by imports, as functions, or in any other way.

    `values` are the expressions of a variable that is given values by plain assignments and in no other way.
    """

    path: str
    parent: Scope | None = None
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    processes: set[str] = field(default_factory=set)

    def owner(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None and name not in scope.imports.keys() | scope.functions.keys() | scope.others:
            scope = scope.parent
        return scope

    def is_process(self, node: ast.expr) -> bool:
        owner = self.owner(node.id) if isinstance(node, ast.Name) else None
        return isinstance(node, ast.Name) and owner is not None and node.id in owner.processes

    def full_name(self, node: ast.expr) -> str | None:
        """What a name or a chain of attributes stands for, as `datetime.datetime.now`; None if it is not certain."""
        if isinstance(node, ast.Attribute):
            start = self.full_name(node.value)
            return None if start is None else f"{start}.{node.attr}"
        if not isinstance(node, ast.Name):
            return None
        owner = self.owner(node.id)
        if owner is None:
            return f"builtins.{node.id}" if hasattr(builtins, node.id) else None
        if node.id in owner.others or node.id in owner.functions:
            return None
        return owner.imports[node.id]

    def value(self, node: ast.expr) -> tuple[list[ast.expr], Scope]:
        """Everything that is assigned to this variable, and where; nothing if that is not certain."""
        owner = self.owner(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(node, ast.Name) or owner is None:
            return [], self
        return owner.values.get(node.id, []), owner


def bound(scope: Scope, body: list[ast.stmt]) -> Scope:
    """The scope with every name that these statements bind, without those inside functions and classes."""
    given = set(scope.others)
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
    scope.values = _values(body, given | scope.imports.keys() | scope.functions.keys())
    return scope


def _values(body: list[ast.stmt], excluding: set[str]) -> dict[str, list[ast.expr]]:
    values: dict[str, list[ast.expr]] = {}
    bindings: Counter[str] = Counter()
    for node in _own_nodes(body):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                values.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value, annotation=annotation) if (
                "set[int]" not in ast.unparse(annotation)  # whole numbers have the same order everywhere
            ):
                values.setdefault(name, []).append(value)
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                changed = ast.BinOp(ast.Name(name, ast.Load()), operator, value)
                values.setdefault(name, []).append(changed)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                bindings.update(names)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bindings[node.id] += 1
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bindings[node.name] += 1
    return {name: given for name, given in values.items() if name not in excluding and bindings[name] == len(given)}


def _own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def parameters(arguments: ast.arguments) -> set[str]:
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return {each.arg for each in [*plain, *starred]}
