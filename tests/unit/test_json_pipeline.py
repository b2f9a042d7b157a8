"""JSON files taken apart: shapes, exact bytes, exact numbers, and what is wrong with the bad ones."""

from __future__ import annotations

import json
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.errors import ApplicationError
from crossdock.message.property import PropertyType, Value
from crossdock.pipeline import nesting
from crossdock.pipeline.document import Document, Promoter, Promotion
from crossdock.pipeline.json import JsonDisassembler, Split, parse_path
from crossdock.pipeline.receive import ReceivePipeline


def orders(split: Split | None = None) -> JsonDisassembler:
    fields = {"Id": (PropertyType.TEXT, "$.id"), "Amount": (PropertyType.DECIMAL, "$.order.amount")}
    promotions = [Promotion(name, type_, path, parse_path(path)) for name, (type_, path) in fields.items()]
    return JsonDisassembler("Order", Promoter(promotions, 256), split)


def execute(content: bytes, *, split: Split | None = None, standard: bool = False) -> list[Document]:
    return list(ReceivePipeline(orders(split), standard=standard).execute(content))


def promoted(content: bytes) -> dict[str, Value]:
    [document] = execute(content)
    assert document.error is None
    return {name: value for name, value in document.promoted.items() if name != "BTS.MessageType"}


@pytest.mark.parametrize(
    ("content", "bodies"),
    [
        (b'{"id": "a"}', [b'{"id": "a"}']),
        (b'{"id": "a"}\n', [b'{"id": "a"}\n']),
        (b'{\n  "id": "a"\n}\n', [b'{\n  "id": "a"\n}\n']),
        (b'[{"id": "a"}, {"id": "b"}]', [b'{"id": "a"}', b'{"id": "b"}']),
        (b'\n [ {"id": 1} ]', [b'{"id": 1}']),
        (b'{"id": "a"}\n{"id": "b"}', [b'{"id": "a"}', b'{"id": "b"}']),
        (b'{"id": "a"}\r\n\r\n{"id": "b"}\r\n', [b'{"id": "a"}', b'{"id": "b"}']),
        (b'\xef\xbb\xbf{"id": "a"}', [b'\xef\xbb\xbf{"id": "a"}']),
    ],
)
def test_shape_of_the_file_decides_how_it_is_split(content: bytes, bodies: list[bytes]) -> None:
    documents = execute(content)

    assert [document.body for document in documents] == bodies
    assert [document.error for document in documents] == [None] * len(bodies)


def test_split_overrides_what_the_file_looks_like() -> None:
    assert len(execute(b'[{"id": "a"}, {"id": "b"}]', split="document")) == 1
    assert [document.error for document in execute(b"oops\n{}", split="lines")] == [
        "line 1 is not JSON: invalid character (byte 0)",
        None,
    ]


def test_numbers_are_exact_and_null_is_absent_and_empty_text_is_a_value() -> None:
    assert promoted(b'{"order": {"amount": 999.9999999999999991}}') == {"Amount": Decimal("999.9999999999999991")}
    assert promoted(b'{"order": {"amount": "12.50"}, "id": ""}') == {"Amount": Decimal("12.50"), "Id": ""}
    assert promoted(b'{"order": {"amount": null}, "id": 42}') == {"Id": "42"}
    assert promoted(b'{"order": [1], "id": "\\u00e9\\ud83d\\ude00"}') == {"Id": "é😀"}
    assert promoted(b'"just text"') == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n\t ", "the file holds no message"),
        (b"[]", "empty array"),
        (b'{"id": 1', "it ends too early"),
        (b'{"id": "\xfc"}', "the file is not UTF-8: byte 9 is 0xfc"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"id": {"a": 1}}', "in $.id it is an object or an array"),
        (
            b'{"order": {"amount": "lots"}}',
            "property 'Amount' is decimal, and in $.order.amount 'lots' is not a decimal",
        ),
        (b'{"id": "' + b"x" * 257 + b'"}', "257 characters, and 256 is the most"),
    ],
)
def test_what_is_wrong_keeps_its_bytes_and_says_why(content: bytes, reason: str) -> None:
    [document] = execute(content)

    assert reason in str(document.error)
    assert document.body == content


def test_nesting_is_limited_in_every_shape_of_file_and_brackets_in_text_do_not_count() -> None:
    fine, deep = (b'{"a": ' * depth + b'"[{[\\"{"' + b"}" * depth for depth in (500, 501))
    many = b'{"a": [' + b"[]," * 5000 + b"[]]}"

    assert [document.error for document in execute(fine)] == [None]
    assert [document.error for document in execute(deep)] == ["the file is nested too deeply"]
    assert [document.error for document in execute(b"{}\n" + deep)] == [None, "line 2 is nested too deeply"]
    assert [document.error for document in execute(b"[1, %s]" % deep)] == [None, "element 2 is nested too deeply"]
    assert [document.error for document in execute(many)] == [None]


def test_recoverable_interchange_keeps_the_good_lines_and_the_bytes_of_the_bad_one() -> None:
    documents = execute(b'{"id": "a"}\n{"id": oops}\n{"id": "b"}')

    assert [(document.body, document.error is None) for document in documents] == [
        (b'{"id": "a"}', True),
        (b'{"id": oops}', False),
        (b'{"id": "b"}', True),
    ]


def test_standard_interchange_is_all_or_nothing() -> None:
    content = b'{"id": "a"}\n{"id": oops}\n{"id": "b"}'

    [document] = execute(content, standard=True)

    assert document.body == content
    assert "line 2 is not JSON" in str(document.error)


@pytest.mark.parametrize("path", ["", "id", "$", "$.", "$..id", "$.a[*]", "$.a b", "$[?(@.x)]"])
def test_path_to_more_or_less_than_one_field_is_refused(path: str) -> None:
    with pytest.raises(ApplicationError, match="not a path to one field"):
        parse_path(path)


def test_path_may_quote_names_and_count_elements() -> None:
    assert parse_path("$.lines[0]['unit price'].a-b") == ("lines", 0, "unit price", "a-b")


def test_long_text_beside_many_brackets_takes_little_memory() -> None:
    content = b'{"id": "a", "fill": "' + b"x" * 4_000_000 + b'", "list": [' + b",".join([b"[]"] * 600) + b"]}"

    tracemalloc.start()
    [document] = execute(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert document.error is None
    assert peak < 40_000_000


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text('a"\\[]{},', max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\[]{},', max_size=3), inner, max_size=4),
)


@given(JSON_VALUES, st.integers(1, 9))
def test_nesting_and_elements_are_counted_whatever_is_in_strings_and_wherever_a_slice_ends(
    value: object, slice_bytes: int
) -> None:
    def deepest(each: object) -> int:
        below = each.values() if isinstance(each, dict) else each if isinstance(each, list) else None
        return 0 if below is None else 1 + max(map(deepest, below), default=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_SLICE_BYTES", slice_bytes)
        found = nesting.nesting(json.dumps(value).encode())

    elements = len(value) if isinstance(value, dict | list) else 0
    assert found == (deepest(value), max(0, elements - 1))


@pytest.mark.parametrize("content", [b'{"id": "a"}\n' * 400_000, b"[" + b'{"id": "a"},' * 400_000 + b"1]"])
def test_content_with_too_many_messages_is_taken_apart_no_further_than_the_most(content: bytes) -> None:
    tracemalloc.start()
    [kept] = ReceivePipeline(orders()).execute(content, most=100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept.code == "too-many-messages"
    assert peak < 12 * len(content)


def test_value_of_a_personal_property_is_not_quoted_where_it_does_not_fit() -> None:
    born = Promotion("Born", PropertyType.DATETIME, "$.born", parse_path("$.born"), personal=True)
    pipeline = ReceivePipeline(JsonDisassembler("Patient", Promoter([born], 256)))

    [document] = pipeline.execute(b'{"born": "17.5.1961"}')
    [line, _] = pipeline.execute(b'{"born": "17.5.1961"}\n{"born": null}')

    assert (
        document.error
        == line.error
        == (
            "property 'Born' is datetime, and in $.born there is no datetime, but a value that is personal and not shown"
        )
    )


@pytest.mark.parametrize("path", ["$.id", "$['odd \\' \" name']", "$.list[1].id", "$.more.id"])
def test_field_is_found_whatever_is_beside_it(path: str) -> None:
    body = {"id": "a", "odd ' \" name": "b", "list": [{}, {"id": "c"}], "more": {"id": "d"}}
    asked = [Promotion(name, PropertyType.TEXT, name, parse_path(name)) for name in (path, "$.none", "$.list[9]")]

    [document] = ReceivePipeline(JsonDisassembler("Order", Promoter(asked, 256))).execute(json.dumps(body).encode())

    assert document.promoted[path] in ("a", "b", "c", "d")
    assert document.promoted.keys() == {path, "BTS.MessageType"}


def test_field_beside_very_many_others_is_found_in_little_memory() -> None:
    content = b'{"id": {}, ' + b",".join(b'"%d":1' % number for number in range(500_000)) + b"}"
    tracemalloc.start()

    [document] = execute(content)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "it is an object or an array" in str(document.error)
    assert peak < 3 * len(content)


def test_array_of_very_many_elements_is_not_taken_apart_to_find_one() -> None:
    first = Promotion("First", PropertyType.INTEGER, "$.list[0]", parse_path("$.list[0]"))
    content = b'{"list": [' + b"1," * 3_000_000 + b"1]}"
    tracemalloc.start()

    [document] = ReceivePipeline(JsonDisassembler("Order", Promoter([first], 256))).execute(content)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "more than 2,000,000 elements" in str(document.error)
    assert peak < 5 * len(content)
