"""Assembling: what a send port makes of a body as JSON, XML or a line of a flat file, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.errors import DocumentError
from crossdock.pipeline.build_send import send_pipeline
from crossdock.pipeline.definition import RecordDefinition, SchemaDefinition, SendPipelineDefinition
from send_pipelines import PLACED, refusal, sent

# JSON and XML


def test_json_goes_out_as_it_is_written(folder: Path) -> None:
    body = b' {"amount": 999.9999999999999991, "big": 1e400}\n'

    assert sent(folder, body, assemble="json") == body
    assert sent(folder, b"\xef\xbb\xbf[1]", assemble="json") == b"[1]"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is not JSON: it ends too early"),
        (b"{]", "the body is not JSON: "),
        (b'{"a": 1} {"a": 2}', "the body is not JSON: "),
        (b'"\xff"', "the body is not UTF-8: byte 2 is 0xff"),
        (b"[" * 600 + b"]" * 600, "the body is nested too deeply"),
    ],
    ids=["empty", "broken", "two", "latin", "deep"],
)
def test_what_is_not_json_is_refused(body: bytes, reason: str, folder: Path) -> None:
    assert refusal(folder, body, assemble="json").startswith(reason)


def test_xml_goes_out_as_it_is_and_gets_a_declaration_where_it_has_none(folder: Path) -> None:
    plain, latin = b"<a  b='1'/>", '<?xml version="1.0" encoding="ISO-8859-1"?><a>å</a>'.encode("latin-1")
    stylesheet = b"<?xml-stylesheet href='a.css'?><a/>"

    assert sent(folder, plain, assemble="xml") == plain
    assert sent(folder, latin, assemble="xml", declaration=True) == latin
    head = b'<?xml version="1.0" encoding="UTF-8"?>\n'
    assert sent(folder, plain, assemble="xml", declaration=True) == head + plain
    assert sent(folder, b"\xef\xbb\xbf" + stylesheet, assemble="xml", declaration=True) == head + stylesheet
    assert sent(folder, "<a>å</a>".encode("utf-16"), assemble="xml", declaration=True) == head + "<a>å</a>".encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<a><b></a>", "the document is not XML: "),
        (b"", "the document is not XML: "),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "the document has a document type declaration"),
    ],
    ids=["broken", "empty", "entity"],
)
def test_what_is_not_xml_is_refused(body: bytes, reason: str, folder: Path) -> None:
    assert refusal(folder, body, assemble="xml").startswith(reason)


def test_xml_says_in_which_character_set_it_is_written(folder: Path) -> None:
    body = "<!--x--><a b='ł'>å€</a>".encode()

    assert sent(folder, body, assemble="xml", charset="latin-1") == (
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n<!--x--><a b="&#322;">å&#8364;</a>'.encode("latin-1")
    )
    assert sent(folder, b"<a/>", assemble="xml", charset="utf-16").startswith("\ufeff<?xml".encode("utf-16-le"))
    assert b'encoding="WINDOWS-1252"' in sent(folder, body, assemble="xml", charset="cp1252")


@pytest.mark.parametrize("body", ["<a><![CDATA[€]]></a>", "<€/>", "<ł/>", "<a><!--ł--></a>"])
def test_character_that_xml_cannot_write_in_a_character_set_is_refused(body: str, folder: Path) -> None:
    assert refusal(folder, body.encode(), assemble="xml", charset="latin-1")


# Flat files


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"id": "1", "region": "NO", "amount": 12.50}', b"1;NO;12.50"),
        (b'{"amount": 1e2, "id": true}', b"true;;1e2"),
        (b'{"id": "a;b", "region": "say \\"no\\"", "amount": null}', b'"a;b";"say ""no""";'),
        (b'\xef\xbb\xbf{"id": "\\u00e5"}', "å;;".encode()),
        (b"1;NO;12.50", b"1;NO;12.50"),
        (b'"a;b";;', b'"a;b";;'),
    ],
)
def test_object_becomes_a_delimited_line_and_a_line_stays_one(body: bytes, line: bytes, folder: Path) -> None:
    assert sent(folder, body, assemble="flat") == line


def test_object_becomes_a_positional_line(folder: Path) -> None:
    body = b'{"id": "17", "region": "NO", "amount": 12.5}'

    assert sent(folder, body, PLACED, assemble="flat") == b"17    NO12.5  "
    assert sent(folder, b"17    NO12.5", PLACED, assemble="flat") == b"17    NO12.5"
    assert refusal(folder, b'{"region": "NOR"}', PLACED, assemble="flat") == (
        "the column 'region' has 3 characters, and 2 is the most"
    )


def test_line_that_looks_like_json_is_told_by_its_type(folder: Path) -> None:
    schema = {"type": "Payload", "format": "flat", "columns": ["payload"], "delimiter": "|"}

    assert sent(folder, b'{"a": 1}', schema, assemble="flat", type_="Payload") == b'{"a": 1}'
    assert sent(folder, b"{a}", schema, assemble="flat", type_="Payload") == b"{a}"
    assert sent(folder, b'{"payload": 1}', schema, assemble="flat", type_="Payload") == b"1"
    assert refusal(folder, b'{"a": 1}', schema, assemble="flat") == "'a' is no column of Payload (payload)"
    assert refusal(folder, b"{a}", schema, assemble="flat").startswith("the body is not JSON: ")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"id": 1, "price": 2}', "'price' is no column of Line (id, region, amount)"),
        (b'{"id": [1]}', "the column 'id' is an object or an array, and has to be one value"),
        (b'{"id": "a\\nb"}', "the column 'id' holds a line end"),
        (b'{"id": "\\ud800"}', "the body is not JSON: it holds half of a surrogate pair"),
        (b"1;2", "it has 2 columns instead of 3"),
        (b"[1]", "it has 1 columns instead of 3"),
        (b"1;2;3\n", "it holds a line end"),
        (b"1;2;\xff", "byte 5 is 0xff, which is not UTF-8"),
    ],
)
def test_what_is_no_line_is_refused(body: bytes, reason: str, folder: Path) -> None:
    assert refusal(folder, body, assemble="flat") == reason


def test_object_without_any_column_makes_no_line(folder: Path) -> None:
    assert refusal(folder, b"{}", PLACED, assemble="flat") == "it has none of the columns id, region, amount"


def test_map_may_make_a_line(folder: Path) -> None:
    maps = [{"from": "Order", "to": "Line", "function": "steps:line"}]

    assert sent(folder, b'{"amount": 5}', maps=maps, assemble="flat") == b"1;NO;5"


_COLUMN = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=6)


@given(st.lists(_COLUMN, min_size=2, max_size=4), st.sampled_from([(",", '"'), (";", "'"), ("\t", '"')]))
def test_columns_that_are_joined_are_cut_again(columns: list[str], signs: tuple[str, str]) -> None:
    delimiter, quote = signs
    names = tuple(f"c{n}" for n in range(len(columns)))
    schema = SchemaDefinition(
        type="Line", format="flat", record=RecordDefinition(columns=names, delimiter=delimiter, quote=quote)
    )
    assembler = send_pipeline(SendPipelineDefinition(assemble="flat", flat=schema)).assembler
    record = assembler.record  # type: ignore[union-attr]

    try:
        line = record.join(columns)
    except DocumentError:
        assert not "".join(columns).strip()
    else:
        assert record.cut(line) == columns


def test_object_of_very_many_fields_becomes_no_line(folder: Path) -> None:
    body = b'{"id":"1",' + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}"

    assert refusal(folder, body, PLACED, assemble="flat") == "the body has more than 100,000 fields"
