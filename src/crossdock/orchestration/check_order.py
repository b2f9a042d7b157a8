"""Where a coroutine depends on the order of a set: that of text differs from process to process.

Sets of whole numbers, and what is the same in any order, as `sorted` and `sum`, raise no alarm.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crossdock.orchestration.scopes import Scope

TAKES_ANY_ORDER = frozenset({"sorted", "sum", "min", "max", "any", "all", "len", "set", "frozenset"})
_KEEPS_ORDER = frozenset({"list", "tuple", "enumerate", "iter", "dict.fromkeys"})
_SETS = frozenset({"builtins.set", "builtins.frozenset"})
_GIVE_SETS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_OF_SETS = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
ADVICE = "a set has another order in every process; write sorted(...) around it"
_POP = "pop() takes any element of a set, another in every process; take the first of sorted(...)"


def order_mistakes(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, str]]:
    """Where this expression or statement itself goes by the order of a set."""
    for iterated in _in_order(node, scope):
        if is_set(iterated, scope):
            yield iterated, ADVICE
    match node:
        case ast.Call(func=ast.Attribute(value=receiver, attr="pop"), args=[]) if is_set(receiver, scope):
            yield node, _POP


def _in_order(node: ast.AST, scope: Scope) -> Iterator[ast.expr]:
    """What is iterated over, so that the order counts."""
    match node:
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated):
            yield iterated
        case ast.ListComp(generators=generators) | ast.DictComp(generators=generators):
            yield from (each.iter for each in generators)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            yield from (each.value for each in elements if isinstance(each, ast.Starred))
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value):
            yield value
        case ast.Call():
            yield from _given_in_order(node, scope)


def _given_in_order(call: ast.Call, scope: Scope) -> Iterator[ast.expr]:
    name = (scope.full_name(call.func) or "").removeprefix("builtins.")
    joins = isinstance(call.func, ast.Attribute) and call.func.attr == "join" and len(call.args) == 1
    if call.args and (name in _KEEPS_ORDER or joins):
        first = call.args[0]
        yield from (each.iter for each in first.generators) if isinstance(first, ast.GeneratorExp) else (first,)
    if name not in TAKES_ANY_ORDER:
        yield from (each.value for each in call.args if isinstance(each, ast.Starred))


def is_set(node: ast.expr, scope: Scope, seen: frozenset[str] = frozenset()) -> bool:
    """Whether it is a set for certain, and one of more than whole numbers as far as can be told."""
    match node:
        case ast.Set(elts=elements):
            return not all(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in elements)
        case ast.SetComp():
            return True
        case ast.Call(func=ast.Attribute(value=receiver, attr=verb)) if verb in _GIVE_SETS:
            return is_set(receiver, scope, seen)
        case ast.Call(func=made):
            return scope.full_name(made) in _SETS
        case ast.BinOp(op=operator, left=left, right=right) if isinstance(operator, _OF_SETS):
            return is_set(left, scope, seen) or is_set(right, scope, seen)
        case ast.Name(id=name) if name not in seen:
            values, owner = scope.value(node)
            return bool(values) and all(_still_a_set(each, name, owner, seen) for each in values)
        case _:
            return False


def _still_a_set(value: ast.expr, name: str, scope: Scope, seen: frozenset[str]) -> bool:
    match value:
        case ast.BinOp(op=operator, left=ast.Name(id=left)) if left == name:  # as in `names |= more`
            return isinstance(operator, _OF_SETS)
        case _:
            return is_set(value, scope, seen | {name})
