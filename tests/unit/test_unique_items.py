"""`uniqueItems`: the same verdicts as the library's own, in time that grows with the document and not with its square."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.errors import DocumentError
from crossdock.pipeline.validate import json_validator

VALIDATE = json_validator({"list.schema.json": '{"uniqueItems": true}'})
THEIRS = jsonschema_rs.validator_for('{"uniqueItems": true}')

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -0.0, 2.5e3, 2500]) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


def unique(document: str) -> bool:
    try:
        VALIDATE(document.encode())
    except DocumentError:
        return False
    return True


@given(st.lists(VALUES, max_size=5))
def test_verdict_is_that_of_the_library(values: list[Any]) -> None:
    document = json.dumps(values)

    assert unique(document) == THEIRS.is_valid(json.loads(document, parse_float=Decimal))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("[1, 1.0]", False),
        ("[1, 10e-1]", False),
        ("[0, -0.0]", False),
        ("[1, true]", True),
        ('[1, "1"]', True),
        ('["a,b", ["a", "b"]]', True),
        ("[1e400, 10e399]", False),
        ("[1e400, 1e401]", True),
        ('[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]', False),
        ('[{"a": null}, {}]', True),
        ("[100000000000000000000000000001, 100000000000000000000000000002]", True),
    ],
)
def test_odd_values(document: str, expected: bool) -> None:
    assert unique(document) == expected


@pytest.mark.parametrize(
    "number",
    [lambda n: f"{n}.{n:018}123456789", lambda n: f"1e{400 + n}", lambda n: str(n * (2**61 - 1)), lambda n: str(10**30 + n)],
    ids=["long fractions", "large exponents", "equal hashes", "long integers"],
)  # fmt: skip
def test_many_long_numbers_take_no_time_to_speak_of(number: Any) -> None:
    document = f"[{','.join(map(number, range(1, 20_001)))}]"
    began = time.process_time()

    assert unique(document)

    assert time.process_time() - began < 10  # hours, where every two are compared
