"""Lines of JSON taken apart all at once are what they are when they are taken apart one by one."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossdock.message.property import PropertyType
from crossdock.pipeline import lines as lines_module
from crossdock.pipeline.document import DocumentColumns, Promoter, Promotion
from crossdock.pipeline.json import JsonDisassembler, parse_path

FIELDS = [
    ("Id", PropertyType.TEXT, "$.id"),
    ("Amount", PropertyType.DECIMAL, "$.amount"),
    ("Count", PropertyType.INTEGER, "$.order.count"),
    ("Note", PropertyType.TEXT, "$.order.note"),
]


def orders() -> JsonDisassembler:
    promotions = [Promotion(name, type_, path, parse_path(path), name == "Note") for name, type_, path in FIELDS]
    return JsonDisassembler("Order", Promoter(promotions, 16), "lines")


numbers = st.sampled_from(
    ["0", "-0.00", "12.50", "1e3", "999.9999999999999991", "-7", "0.1", "1" * 30, "12345678901234567890"]
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=18)
scalars = (
    numbers | texts.map(json.dumps) | st.sampled_from(["null", "true", '"12.50"', '" 7 "', "[]", "{}", '"\\ud800"'])
)
orders_ = st.builds(
    lambda id_, amount, count, note: f'{{"id": {id_}, "amount":{amount},"order":{{"count":{count},"note":{note}}}}}',
    scalars, scalars, scalars, scalars,
)  # fmt: skip
odd = st.sampled_from(
    ["", " ", "\r", "{}", '{"order": null}', '{"order": 3}', "{}{}", "{", "}", '{"a":[{}', "[]", "3", '{"id":1}{', "\ufeff{}",
     '{"id": "a", "id": "b"}', '{"a":' + "[" * 600 + "]" * 600 + "}", '{"x": NaN}', '{"x":"a\tb"}'],
)  # fmt: skip
lines = st.lists(orders_ | odd, min_size=1, max_size=6).map("\n".join).map(str.encode) | st.lists(
    st.sampled_from([b'{"id":"a","amount":1.5}', b'{"id":"b","amount":2}', b'{"id":"\xff"}', b"{}\r", b" {} "]),
    min_size=1,
).map(b"\n".join)


@given(lines)
@example(b'{}{"a":[{}\n{}]}')
@example(b'{"id":"a"}{"id":"b"}\n\n')
@example(b'{"id":"a"}\n{"id":"b"}{')
# As many values as lines, and one of them goes over from one line to the next.
@example(b'{"id":"a"}{"id":\n"b"}')
@example(b'{"id":"a"}{"order":\n{"count":1}}')
@example(b'{"id":"a","x":{}\n,"amount":1}{"id":"b"}')
def test_lines_taken_apart_together_are_what_each_is_by_itself(content: bytes) -> None:
    together = orders().together(content)

    if together is not None:
        assert list(together) == list(orders().disassemble(content))


@given(
    st.lists(
        st.tuples(numbers.filter(lambda text: len(text) < 20), texts.filter(lambda text: len(text) <= 16)), min_size=1
    )
)
def test_ordinary_lines_are_taken_apart_together(rows: list[tuple[str, str]]) -> None:
    content = "".join(f'{{"id":{json.dumps(text)},"amount":{number}}}\n' for number, text in rows).encode()

    together = orders().together(content)

    assert isinstance(together, DocumentColumns)
    assert list(together) == list(orders().disassemble(content))


@pytest.mark.parametrize(
    "bad", [b'{"id":"\xff"}', b'{"amount":"x"}', b'{"id":[]}', b"oops", b'{"id":"' + b"x" * 17 + b'"}', b'{"x":"a\tb"}']
)
def test_one_bad_line_leaves_all_to_be_taken_apart_one_by_one(bad: bytes) -> None:
    assert orders().together(b'{"id":"a"}\n' + bad + b'\n{"id":"b"}') is None


def test_mark_of_the_byte_order_counts_at_the_beginning_of_a_file_only() -> None:
    marked = b'\xef\xbb\xbf{"id":"a"}\n'

    assert [each.body for each in orders().together(marked, 0) or ()] == [b'{"id":"a"}']
    assert orders().together(marked, 100) is None


def test_file_of_too_many_lines_is_not_taken_apart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MESSAGES_LIMIT", 3)

    assert orders().together(b"{}\n{}\n") is not None
    assert orders().together(b"{}\n{}\n{}\n{}\n") is None
