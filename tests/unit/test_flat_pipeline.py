"""Flat files: delimited and positional, headers, trailers, and what is wrong with the bad ones."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from typing import Any

import pytest

from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.definition import PipelineDefinition, RecordDefinition, SchemaDefinition
from crossdock.pipeline.document import Document
from pipelines import execute, fields

PROMOTE = {"Id": ("text", "id"), "Amount": ("decimal", "amount")}


def flat(content: bytes, *, columns: tuple[str, ...] = ("id", "region", "amount"), **options: Any) -> list[Document]:
    layout = {name: options.pop(name) for name in ("positions", "delimiter", "quote") if name in options}
    record = RecordDefinition(columns=columns, promote=fields(PROMOTE), **layout)
    parts = {name: options.pop(name, None) for name in ("header", "trailer", "count")}
    schema = SchemaDefinition(type="Order", format="flat", record=record, **parts)
    return execute(content, schema, disassemble="flat", **options)


def test_each_line_is_a_message_with_its_own_bytes() -> None:
    documents = flat(b"a,NO,12.50\r\n\nb,,7\n")

    assert [(each.body, each.promoted["Id"], each.promoted["Amount"]) for each in documents] == [
        (b"a,NO,12.50", "a", Decimal("12.50")),
        (b"b,,7", "b", Decimal(7)),
    ]
    assert {each.promoted["BTS.MessageType"] for each in documents} == {"Order"}


def test_empty_column_is_absent() -> None:
    [document] = flat(b",NO,\n")

    assert document.promoted == {"BTS.MessageType": "Order"}


def test_quotes_hold_delimiters_and_quotes() -> None:
    [document] = flat(b'"a;""b""";NO;"1"\n', delimiter=";")

    assert (document.promoted["Id"], document.promoted["Amount"]) == ('a;"b"', Decimal(1))


def test_positions_cut_the_line() -> None:
    [first, second] = flat(b"A1  NO  12.50\nB2  SE\n", positions=((1, 4), (5, 4), (9, 6)))

    assert (first.promoted["Id"], first.promoted["Amount"]) == ("A1", Decimal("12.50"))
    assert (second.promoted["Id"], "Amount" in second.promoted) == ("B2", False)


def test_positional_line_may_end_early_but_not_go_on_after_its_last_column() -> None:
    positions = ((1, 4), (5, 4), (9, 6))

    short, cut, padded, long = flat(b"A1\nA1  NO  1\nA1  NO  12.50    \t\nA1  NO  12.50 more\n", positions=positions)

    assert short.promoted == {"BTS.MessageType": "Order", "Id": "A1"}
    assert (cut.promoted["Amount"], padded.promoted["Amount"]) == (Decimal(1), Decimal("12.50"))
    assert long.error == "line 4: it has 18 characters, and its columns end at 14"


@pytest.mark.parametrize("by_lines", [False, True])
def test_line_of_empty_columns_is_no_blank_line_whatever_the_delimiter(by_lines: bool) -> None:
    for delimiter in ("\t", ";"):
        content = f"a{delimiter}NO{delimiter}1\n \r\n\n{delimiter}{delimiter}\n".encode()
        record = RecordDefinition(columns=("id", "region", "amount"), promote=fields(PROMOTE), delimiter=delimiter)
        schema = SchemaDefinition(type="Order", format="flat", record=record)
        pipeline = receive_pipeline(PipelineDefinition(disassemble="flat", schemas=(schema,)))
        read = pipeline.by_lines(content)
        assert read is not None

        documents = list(read(content, 0)) if by_lines else pipeline.execute(content)

        assert [(document.promoted.get("Id"), document.error) for document in documents] == [("a", None), (None, None)]


def test_quoted_column_may_be_as_long_as_one_without_quotes() -> None:
    long = b"x" * 200_000

    [quoted, plain, bad] = flat(b'"%b",NO,1\n%b,NO,2\n"%b,NO,3\n' % (long, long, long), text_limit=300_000)

    assert (quoted.promoted["Id"], quoted.promoted["Amount"]) == (long.decode(), Decimal(1))
    assert plain.promoted["Id"] == long.decode()
    assert bad.error == "line 3: unexpected end of data"


def test_long_lines_are_split_as_others_are() -> None:
    long = b"x" * 300_000
    lines = (b'"a ""b"",%b",NO,1', b'"a"b%b,NO,1', b'a"b%b,NO,1')

    [quoted, after, inside] = flat(b"\n".join(lines) % (long, long, long), text_limit=400_000)

    assert quoted.promoted["Id"] == 'a "b",' + long.decode()
    assert after.error == "line 2: ',' expected after '\"'"
    assert inside.promoted["Id"] == 'a"b' + long.decode()


def test_first_line_names_the_columns_where_the_schema_does_not() -> None:
    [document] = flat(b"amount,more,id\n3,x,a\n", columns=())

    assert (document.promoted["Id"], document.promoted["Amount"]) == ("a", Decimal(3))
    [failed] = flat(b"amount,more\n3,x\n", columns=())
    assert failed.error == "the first line names no column 'id'"


def test_header_goes_to_every_message_and_the_trailer_counts_them() -> None:
    header = RecordDefinition(columns=("tag", "sender"), promote=fields({"Sender": ("text", "sender")}))
    trailer = RecordDefinition(columns=("tag", "rows"))

    documents = flat(b"H,ACME\na,NO,1\nb,SE,2\nT,2\n", header=header, trailer=trailer, count="rows")

    assert [(each.promoted["Id"], each.promoted["Sender"]) for each in documents] == [("a", "ACME"), ("b", "ACME")]
    [failed] = flat(b"H,ACME\na,NO,1\nT,2\n", header=header, trailer=trailer, count="rows")
    assert failed.error == "the trailer counts '2' lines, and there are 1"
    [failed] = flat(b"H\na,NO,1\nT,1\n", header=header, trailer=trailer)
    assert failed.error == "the header in line 1 cannot be used: it has 1 columns instead of 2"
    [failed] = flat(b"H,ACME\nT,0\n", header=header, trailer=trailer)
    assert failed.error == "the file holds no message between its header and its trailer"
    [failed] = flat(b"H,ACME\n", header=header, trailer=trailer)
    assert failed.error == "the file has no trailer"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"a,NO", "line 2: it has 2 columns instead of 3"),
        (b"a,NO,much", "line 2: property 'Amount' is decimal, and in amount 'much' is not a decimal"),
        (b"a,\xff,1", "line 2: byte 3 is 0xff, which is not UTF-8"),
        (b'"a,NO,1', "line 2: unexpected end of data"),
    ],
)
def test_bad_line_is_kept_with_its_bytes_and_the_others_go_on(line: bytes, problem: str) -> None:
    [good, bad, last] = flat(b"a,NO,1\n" + line + b"\nb,NO,1\n")

    assert (good.error, last.error) == (None, None)
    assert (bad.body, bad.error) == (line, problem)
    [whole] = flat(b"a,NO,1\n" + line + b"\n", standard=True)
    assert whole.body == b"a,NO,1\n" + line + b"\n"


def test_other_character_sets_become_utf_8() -> None:
    [latin] = flat("é,NO,1\n".encode("latin-1"), charset="latin-1")
    [sixteen] = flat("é,NO,1\n".encode("utf-16"))

    assert latin.promoted["Id"] == sixteen.promoted["Id"] == "é"
    assert latin.body == "é,NO,1".encode()
    [failed] = flat(b"\x81", charset="cp1252")
    assert (failed.body, "the file is not cp1252" in str(failed.error)) == (b"\x81", True)


@pytest.mark.parametrize("line", [b"\t\n", b"  \n"], ids=["empty columns", "blank"])
def test_memory_does_not_grow_with_lines_that_are_not_taken(line: bytes) -> None:
    content = line * 2_000_000
    tracemalloc.start()

    [document] = flat(content, delimiter="\t")

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "the file holds" in str(document.error)
    assert peak < 100_000_000


@pytest.mark.parametrize(
    ("start", "problem"),
    [("a", "it has 1200001 columns instead of 3"), ('"a"', "it has 1,200,000 delimiters, and 1,000,000 is the most")],
)
def test_memory_does_not_grow_with_columns_that_a_line_should_not_have(start: str, problem: str) -> None:
    content = (start + ",ж" * 1_200_000).encode()
    tracemalloc.start()

    [document] = flat(content)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert problem in str(document.error)
    assert peak < 6 * len(content)


def test_first_line_that_names_very_many_columns_is_refused() -> None:
    [document] = flat(b"id,amount" + b",a" * 1_000_000, columns=())

    assert "it has 1,000,001 delimiters, and 1,000,000 is the most" in str(document.error)
