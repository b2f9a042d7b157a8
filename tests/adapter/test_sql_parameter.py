"""The fields of a body that are parameters of a statement: found without taking apart what is beside them."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.adapter.sql.parameter import Parameters
from crossdock.errors import TerminalError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part

NAMES = st.sampled_from(["a", "b", 'odd " name', "c\\d"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab\n", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
)


def found(body: bytes, path: str) -> Any:
    message = Message(MessageId(UUID(int=7)), Context({}), (Part("body", body),))
    return Parameters(["value"], {"value": path}, plain=False).of(message)["value"]


@given(VALUES, st.lists(NAMES | st.integers(0, 2), min_size=1, max_size=3))
def test_value_is_the_one_at_the_path(document: Any, path: list[str | int]) -> None:
    expected = document
    for step in path:
        fits = isinstance(expected, list) if isinstance(step, int) else isinstance(expected, dict)
        try:
            expected = expected[step] if fits else None
        except LookupError:
            expected = None

    steps = "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in path)
    value = found(json.dumps(document).encode(), f"${steps}")

    assert (json.loads(value) if isinstance(expected, dict | list) else value) == expected


@pytest.mark.parametrize("body", [b"", b"no", b'{"a": 1', b'{"a": "\xff"}', b"[" * 5_000 + b"]" * 5_000])
def test_what_is_not_json_has_no_values(body: bytes) -> None:
    assert found(body, "$.a") is None


@pytest.mark.parametrize(
    "beside", [b'"x":[' + b"{}," * 500_000 + b"{}]", b",".join(b'"%d":1' % n for n in range(300_000))]
)
def test_value_beside_very_many_others_is_found_in_little_memory(beside: bytes) -> None:
    body = b'{"a":"1",' + beside + b"}"
    tracemalloc.start()

    value = found(body, "$.a")

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value == "1"
    assert peak < 4 * len(body)


def test_element_of_a_very_large_array_is_refused() -> None:
    with pytest.raises(TerminalError, match="more than 2,000,000 commas"):
        found(b'{"a":[' + b"1," * 2_000_001 + b"1]}", "$.a[0]")
