"""Filters as text: `MessageType = 'Order' AND Amount >= 1000 OR Urgent = TRUE`.

A small grammar of our own rather than SQL's, so that a property may be called `When` or `From`, and every error points
at its place in the text (docs/decisions/0003-own-filter-grammar.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from crossdock.errors import FilterError
from crossdock.message.property import PropertyRegistry
from crossdock.subscription.expression import All, Any, Comparison, Expression, Not, compile_expression
from crossdock.subscription.predicate import Filter, Operator

_NESTING_LIMIT = 50
_TOKEN = re.compile(
    r"""(?P<blank>\s+)
      | (?P<text>'(?:[^']|'')*')
      | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?(?![\w.]))
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<symbol><=|>=|<>|!=|==|[=<>&(),])""",
    re.VERBOSE | re.ASCII,
)
_COMPARISONS = {
    "=": Operator.EQUAL,
    "==": Operator.EQUAL,
    "!=": Operator.NOT_EQUAL,
    "<>": Operator.NOT_EQUAL,
    "<": Operator.LESS,
    "<=": Operator.LESS_OR_EQUAL,
    ">": Operator.GREATER,
    ">=": Operator.GREATER_OR_EQUAL,
    "&": Operator.ANY_BIT,
}
_BOOLEANS = {"TRUE": True, "FALSE": False}


def parse_filter(registry: PropertyRegistry, text: str) -> Filter:
    """The filter that `text` spells. Errors carry the place in the text."""
    if not text.strip():
        raise FilterError("the filter is empty; leave it out if nothing should be routed here", text=text, position=0)
    return compile_expression(registry, _Parser(text, lambda name: registry.resolve(name) is not None).parse())


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    def is_word(self, word: str) -> bool:
        return self.kind == "name" and self.text.upper() == word


class _Parser:
    """Recursive descent: disjunction, conjunction, negation, primary. One token of look-ahead, two after a name."""

    def __init__(self, text: str, known: Callable[[str], bool]) -> None:
        self.text = text
        self.known = known
        self.tokens = _tokens(text)
        self.index = 0
        self.nesting = 0

    def parse(self) -> Expression:
        expression = self.disjunction()
        if self.token.kind != "end":
            raise self.error(f"expected AND, OR or the end of the filter, not {self.token.text!r}")
        return expression

    def disjunction(self) -> Expression:
        return self.chain("OR", self.conjunction, Any)

    def conjunction(self) -> Expression:
        return self.chain("AND", self.negation, All)

    def chain(self, word: str, operand: Callable[[], Expression], join: type[All] | type[Any]) -> Expression:
        operands = [operand()]
        while self.token.is_word(word):
            self.advance()
            operands.append(operand())
        return operands[0] if len(operands) == 1 else join(tuple(operands))

    def negation(self) -> Expression:
        if not self.token.is_word("NOT") or self.names_a_property():
            return self.primary()
        self.advance()
        return self.nested(lambda: Not(self.negation()))

    def primary(self) -> Expression:
        if self.token.text == "(" and self.token.kind == "symbol":
            return self.nested(self.parenthesised)
        if self.token.is_word("EXISTS") and self.following.text == "(":
            return self.exists()
        if self.token.kind != "name":
            raise self.error(
                f"expected a property, not {self.token.text!r}" if self.token.text else "the filter ends here"
            )
        return self.comparison()

    def nested(self, rule: Callable[[], Expression]) -> Expression:
        self.nesting += 1
        if self.nesting > _NESTING_LIMIT:
            raise self.error(f"the filter is nested more than {_NESTING_LIMIT} deep")
        expression = rule()
        self.nesting -= 1
        return expression

    def parenthesised(self) -> Expression:
        self.expect("(")
        expression = self.disjunction()
        self.expect(")")
        return expression

    def exists(self) -> Expression:
        self.advance()
        self.expect("(")
        name = self.name()
        self.expect(")")
        return self.compare(name, Operator.EXISTS)

    def comparison(self) -> Expression:
        name, operator = self.name(), self.token
        if operator.is_word("IS"):
            return self.null_test(name)
        if operator.is_word("NOT"):
            self.advance()
            return Not(self.word_comparison(name))
        if operator.kind == "symbol" and operator.text in _COMPARISONS:
            self.advance()
            return self.compare_constant(name, _COMPARISONS[operator.text])
        return self.word_comparison(name)

    def word_comparison(self, name: _Token) -> Expression:
        operator = self.token
        if operator.is_word("IN"):
            self.advance()
            places, values = self.constants()
            return self.compare(name, Operator.IN, values, places)
        if operator.is_word("LIKE"):
            self.advance()
            return self.compare(name, Operator.PREFIX, self.prefix())
        if operator.is_word("BETWEEN"):
            return self.between(name)
        raise self.error(f"expected a comparison after {name.text!r}, such as = or IN")

    def null_test(self, name: _Token) -> Expression:
        self.advance()
        exists = self.token.is_word("NOT")
        if exists:
            self.advance()
        if not self.token.is_word("NULL"):
            raise self.error("expected NULL or NOT NULL after IS")
        self.advance()
        return self.compare(name, Operator.EXISTS if exists else Operator.NOT_EXISTS)

    def between(self, name: _Token) -> Expression:
        self.advance()
        low = self.compare_constant(name, Operator.GREATER_OR_EQUAL)
        if not self.token.is_word("AND"):
            raise self.error("expected AND between the two ends of BETWEEN")
        self.advance()
        return All((low, self.compare_constant(name, Operator.LESS_OR_EQUAL)))

    def compare_constant(self, name: _Token, operator: Operator) -> Comparison:
        place = self.token.position
        return self.compare(name, operator, self.constant(), (place,))

    def constants(self) -> tuple[tuple[int, ...], tuple[object, ...]]:
        """The places and the values of a list in parentheses."""
        self.expect("(")
        found = [(self.token.position, self.constant())]
        while self.token.text == "," and self.token.kind == "symbol":
            self.advance()
            found.append((self.token.position, self.constant()))
        self.expect(")")
        return tuple(place for place, _ in found), tuple(value for _, value in found)

    def constant(self) -> object:
        token = self.token
        if token.kind == "text":
            value: object = token.text[1:-1].replace("''", "'")
        elif token.kind == "number":
            value = int(token.text) if re.fullmatch(r"[+-]?\d{1,40}", token.text) else Decimal(token.text)
        elif token.kind == "name" and token.text.upper() in _BOOLEANS:
            value = _BOOLEANS[token.text.upper()]
        else:
            raise self.error(self.no_constant(token))
        self.advance()
        return value

    def prefix(self) -> str:
        """`LIKE 'New %'`: literal text that ends in one %; `\\%`, `\\_` and `\\\\` stand for themselves."""
        token = self.token
        pattern = self.constant()
        literal = re.fullmatch(r"((?:[^%_\\]|\\[%_\\])*)%", pattern, re.DOTALL) if isinstance(pattern, str) else None
        if literal is None:
            raise self.error(
                "LIKE takes a prefix: text that ends in % and has no other % or _ (write \\% or \\_ for these)",
                token,
            )
        return re.sub(r"\\(.)", r"\1", literal[1], flags=re.DOTALL)

    def no_constant(self, token: _Token) -> str:
        if token.kind == "name" and token.text.upper() == "NULL":
            return "nothing equals NULL; write EXISTS(Property) or NOT EXISTS(Property)"
        if token.kind == "name":
            return f"expected a constant, not the name {token.text!r}; text goes in single quotes: '{token.text}'"
        return f"expected a constant, not {token.text!r}" if token.text else "a constant is missing at the end"

    def name(self) -> _Token:
        token = self.token
        if token.kind != "name":
            raise self.error("expected a property name")
        self.advance()
        return token

    def names_a_property(self) -> bool:
        """Whether a word such as NOT is used as a property name here: `NOT = 5`, `Not IN (5)`."""
        following, after = self.following, self.tokens[min(self.index + 2, len(self.tokens) - 1)]
        if following.kind == "symbol":
            return following.text in _COMPARISONS
        return (
            (following.is_word("IN") and after.text == "(")
            or (following.is_word("IS") and (after.is_word("NULL") or after.is_word("NOT")))
            or (following.is_word("NOT") and self.known(self.token.text))
            or ((following.is_word("LIKE") or following.is_word("BETWEEN")) and after.kind in ("text", "number"))
        )

    def compare(
        self, name: _Token, operator: Operator, constant: object = None, places: tuple[int, ...] = ()
    ) -> Comparison:
        return Comparison(name.text, operator, constant, self.text, name.position, places)

    def expect(self, symbol: str) -> None:
        if self.token.kind != "symbol" or self.token.text != symbol:
            found = repr(self.token.text) if self.token.text else "the end of the filter"
            raise self.error(f"expected {symbol!r}, not {found}")
        self.advance()

    @property
    def token(self) -> _Token:
        return self.tokens[self.index]

    @property
    def following(self) -> _Token:
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def advance(self) -> None:
        self.index += 1

    def error(self, reason: str, token: _Token | None = None) -> FilterError:
        return FilterError(reason, text=self.text, position=(token or self.token).position)


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise FilterError(_unreadable(text, position), text=text, position=position)
        if found.lastgroup != "blank":
            tokens.append(_Token(str(found.lastgroup), found[0], position))
        position = found.end()
    return [*tokens, _Token("end", "", len(text))]


def _unreadable(text: str, position: int) -> str:
    character = text[position]
    if character == '"':
        return "text goes in single quotes: 'EU', not \"EU\""
    if character == "'":
        return "this text has no closing quote"
    return f"{character!r} has no meaning here"
