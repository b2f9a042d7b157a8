"""Patterns of ours are matched against what partners send: none of them takes longer than the text is long."""

from __future__ import annotations

import pkgutil
import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import crossdock

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from re import _constants, _parser  # nothing else takes a pattern apart

_OPTIONAL_FOLDERS = ("crossdock.bench",)
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)


def test_no_pattern_can_match_the_same_text_in_many_ways() -> None:
    found = dict(_patterns())

    assert len(found) > 30
    assert [place for place, pattern in found.items() if _is_ambiguous(pattern)] == []


@pytest.mark.parametrize("pattern", [r"(a+)*", r"a+(?:[ \t]*a+)*", r"(?:a*)+b", r"x(?:\s*,?\w+)*$", rb"(?:(a+)?)*"])
def test_patterns_with_a_repeat_in_a_repeat_are_found(pattern: str | bytes) -> None:
    assert _is_ambiguous(re.compile(pattern))


@pytest.mark.parametrize(
    "pattern", [r"a+", r"(?:ab+)*", r"\w+(?:\.\w+)*", r'"(?:[^"\\]|\\.)*"', r"(?>(?:a+)*)", r"(?:a+){2}"]
)
def test_patterns_that_match_in_one_way_are_not(pattern: str) -> None:
    assert not _is_ambiguous(re.compile(pattern))


def _patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for module in pkgutil.walk_packages(crossdock.__path__, "crossdock."):
        if module.name.startswith(_OPTIONAL_FOLDERS) or module.name.endswith("__main__"):
            continue
        for name, value in vars(import_module(module.name)).items():
            if isinstance(value, re.Pattern):
                yield f"{module.name}.{name}", value


def _is_ambiguous(pattern: re.Pattern[Any]) -> bool:
    return _repeats_a_repeat(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))


def _repeats_a_repeat(parsed: Any) -> bool:
    """Whether something that is repeated without end is, but for what may be left out, a repeat without end itself."""
    for operator, argument in parsed:
        if operator in _REPEATS and argument[1] == _constants.MAXREPEAT and _is_a_repeat(argument[2]):
            return True
        if operator is not _constants.ATOMIC_GROUP and any(map(_repeats_a_repeat, _below(argument))):
            return True
    return False


def _is_a_repeat(body: Any) -> bool:
    needed = [each for each in body if _least(each) > 0]
    return any(
        len(needed) == (0 if _least(each) == 0 else 1)
        and (
            (each[0] in _REPEATS and each[1][1] == _constants.MAXREPEAT)
            or (each[0] is not _constants.ATOMIC_GROUP and any(map(_is_a_repeat, _below(each[1]))))
        )
        for each in body
    )


def _least(item: Any) -> int:
    made = _parser.SubPattern(_parser.State(), [item])
    made.state.groupwidths = [(1, 1)] * 100
    return int(made.getwidth()[0])


def _below(argument: Any) -> Iterator[Any]:
    """The patterns inside the argument of an operator."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _below(each)
