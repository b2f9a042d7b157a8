"""The send pipeline: maps, components, assembling and encoding, and what is refused when it is declared."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.application.model import ApplicationModel, MapModel, SendPipelineModel
from crossdock.application.pipelines import Pipelines
from crossdock.errors import ApplicationError, DocumentError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.pipeline import send
from crossdock.pipeline.build_send import send_pipeline
from crossdock.pipeline.definition import RecordDefinition, SchemaDefinition, SendPipelineDefinition

ID = MessageId(UUID(int=7))
XSLT = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output omit-xml-declaration="yes"/>
  <xsl:template match="/Order"><Invoice><total><xsl:value-of select="amount * 2"/></total></Invoice></xsl:template>
</xsl:stylesheet>"""
STEPS = """
import json
from crossdock.errors import DocumentError, TransientError

def bill(body):
    return json.dumps({"total": json.loads(body)["amount"]}).encode()

def line(body):
    return b"1;NO;" + str(json.loads(body)["amount"]).encode()

def shout(document):
    return document.changed(body=document.body.upper(), written={**document.written, "Loud": "yes"})

def refuse(document):
    raise DocumentError("not today")

def mark(document):
    return document.failed("it is marked")

def wait(document):
    raise TransientError("the key server is away")

def broken(document):
    raise ZeroDivisionError("oops")

def nothing(document):
    return None

def text(document):
    return document.changed(body="text")

def reverse(content):
    return content[::-1]

def length(content):
    return len(content)
"""
SCHEMAS: list[dict[str, Any]] = [
    {"type": "Order", "format": "json", "promote": {"Amount": "$.amount"}},
    {"type": "Bill", "format": "json", "promote": {"Total": "$.total"}},
    {"type": "Invoice", "format": "xml", "promote": {"Total": "/Invoice/total"}},
    {"type": "Line", "format": "flat", "delimiter": ";", "columns": ["id", "region", "amount"]},
]
PLACED: dict[str, Any] = {
    "type": "Placed", "format": "flat", "columns": {"id": [1, 4], "region": [7, 2], "amount": [9, 6]},
}  # fmt: skip


def pipelines_of(folder: Path, *schemas: dict[str, Any]) -> Pipelines:
    (folder / "steps.py").write_text(STEPS)
    (folder / "invoice.xsl").write_text(XSLT)
    application = ApplicationModel.model_validate({"application": "orders", "schemas": schemas or SCHEMAS})
    registry = PropertyRegistry({"Amount": PropertyType.DECIMAL, "Total": PropertyType.DECIMAL})
    return Pipelines(application, registry, folder, 256)


def definition_of(
    folder: Path, *schemas: dict[str, Any], maps: list[dict[str, Any]] | None = None, **pipeline: Any
) -> SendPipelineDefinition:
    """As it comes back from the MessageBox."""
    chosen = [MapModel.model_validate(each) for each in maps or []]
    definition = pipelines_of(folder, *schemas).sending("Out", SendPipelineModel.model_validate(pipeline), chosen)
    return SendPipelineDefinition.model_validate_json(definition.model_dump_json())


def a_message(body: bytes, type_: str | None = "Order") -> Message:
    promoted = {"Region": "NO"} if type_ is None else {"BTS.MessageType": type_, "Region": "NO"}
    context = Context(promoted, {"BTS.MessageID": str(ID)}, frozenset({"secret"}))
    return Message(ID, context, (Part("body", body), Part("picture", b"\x89")))


def sent(folder: Path, body: bytes, *schemas: dict[str, Any], type_: str | None = "Order", **pipeline: Any) -> bytes:
    return send_pipeline(definition_of(folder, *schemas, **pipeline)).execute(a_message(body, type_)).body


def refusal(folder: Path, body: bytes, *schemas: dict[str, Any], type_: str | None = "Order", **pipeline: Any) -> str:
    with pytest.raises(DocumentError) as refused:
        sent(folder, body, *schemas, type_=type_, **pipeline)
    return str(refused.value)


def unread() -> StreamedPart:
    def opened() -> BytesIO:
        raise AssertionError("it was read")

    return StreamedPart("body", opened)


# Nothing to do


def test_pipeline_without_stages_gives_the_message_itself_and_reads_nothing(folder: Path) -> None:
    pipeline = send_pipeline(pipelines_of(folder).sending("Out", None, []))
    message = Message(ID, Context({"BTS.MessageType": "Order"}), (unread(),))

    assert pipeline.does_nothing
    assert pipeline.execute(message) is message


def test_message_of_a_type_without_a_map_is_not_read(folder: Path) -> None:
    pipeline = send_pipeline(definition_of(folder, maps=[{"from": "Order", "to": "Bill", "function": "steps:bill"}]))
    message = Message(ID, Context({"BTS.MessageType": "Other"}), (unread(),))

    assert not pipeline.does_nothing
    assert pipeline.execute(message) is message


def test_large_body_goes_through_stages_only_up_to_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "LIMIT_BYTES", 1_000)
    pipeline = send_pipeline(definition_of(folder, encode=["gzip"]))
    parts = [(StreamedPart("body", lambda size=size: BytesIO(b"x" * size)),) for size in (1_000, 1_001)]  # type: ignore[misc]

    assert gzip.decompress(pipeline.execute(Message(ID, Context(), parts[0])).body) == b"x" * 1_000
    with pytest.raises(DocumentError, match="more than 1,000 bytes, and can only be passed through"):
        pipeline.execute(Message(ID, Context(), parts[1]))


# Maps and components


def test_map_replaces_the_body_and_the_type_and_nothing_else(folder: Path) -> None:
    message = a_message(b'{"amount": 5}')

    made = send_pipeline(
        definition_of(folder, maps=[{"from": "Order", "to": "Bill", "function": "steps:bill"}])
    ).execute(message)

    assert made.parts == (Part("body", b'{"total": 5}'), Part("picture", b"\x89"))
    assert made.id == ID
    assert made.context == message.context.promote("BTS.MessageType", "Bill")


def test_stylesheet_is_chosen_by_type_and_a_map_without_a_target_leaves_none(folder: Path) -> None:
    maps = [
        {"from": "Order", "to": "Bill", "function": "steps:bill"},
        {"from": "Purchase", "to": "Invoice", "xslt": "invoice.xsl"},
        {"from": "Sale", "function": "steps:bill"},
    ]
    pipeline = send_pipeline(definition_of(folder, maps=maps))

    invoice = pipeline.execute(a_message(b"<Order><amount>5</amount></Order>", "Purchase"))
    nameless = pipeline.execute(a_message(b'{"amount": 5}', "Sale"))

    assert invoice.body.strip() == b"<Invoice><total>10</total></Invoice>"
    assert invoice.context.get("BTS.MessageType") == "Invoice"
    assert nameless.context.get("BTS.MessageType") is None


def test_map_that_fails_or_makes_something_else_is_refused(folder: Path) -> None:
    maps = [{"from": "Order", "to": "Bill", "function": "steps:bill"}]

    assert refusal(folder, b"{}", maps=maps) == "the map steps:bill fails on it: KeyError: 'amount'"
    assert "what the map makes of it cannot be used: property 'Total'" in refusal(
        folder, b'{"amount": "much"}', maps=maps
    )
    assert refusal(folder, b"no XML", maps=[{"from": "Order", "to": "Invoice", "xslt": "invoice.xsl"}]).startswith(
        "the document is not XML: "
    )


def test_components_come_after_the_map_and_before_encoding(folder: Path) -> None:
    maps = [{"from": "Order", "to": "Bill", "function": "steps:bill"}]

    made = send_pipeline(
        definition_of(folder, maps=maps, components=["steps:shout"], encode=["steps:reverse", "gzip"])
    ).execute(a_message(b'{"amount": 5}'))

    assert gzip.decompress(made.body) == b'{"TOTAL": 5}'[::-1]
    assert made.context.get("Loud") == "yes"
    assert made.context.labels == {"secret"}


@pytest.mark.parametrize(
    ("stage", "name", "reason"),
    [
        ("components", "refuse", "not today"),
        ("components", "mark", "it is marked"),
        ("components", "broken", "steps:broken fails on it: ZeroDivisionError: oops"),
        ("components", "nothing", "steps:nothing gives NoneType instead of Document"),
        ("components", "text", "steps:text gives a body that is str instead of bytes"),
        ("encode", "length", "steps:length gives int instead of bytes"),
    ],
)
def test_function_that_fails_is_named(stage: str, name: str, reason: str, folder: Path) -> None:
    chosen: dict[str, Any] = {stage: [f"steps:{name}"]}

    assert refusal(folder, b"{}", **chosen) == reason


def test_component_may_ask_for_another_attempt(folder: Path) -> None:
    with pytest.raises(TransientError, match="the key server is away"):
        sent(folder, b"{}", components=["steps:wait"])


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


# Encoding


def test_same_message_gives_the_same_compressed_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sent(folder, b"content" * 9, encode=["gzip"])
    monkeypatch.setattr("time.time", lambda: 1.0)

    assert sent(folder, b"content" * 9, encode=["gzip"]) == first
    assert gzip.decompress(first) == b"content" * 9


def test_text_is_written_in_a_character_set_before_it_is_compressed(folder: Path) -> None:
    body = '{"name": "Blåbær"}'.encode()

    assert sent(folder, body, assemble="json", charset="latin-1") == body.decode().encode("latin-1")
    assert (
        gzip.decompress(sent(folder, body, charset="utf-16-le", encode=["gzip"])).decode("utf-16-le") == body.decode()
    )
    assert refusal(folder, "ab€".encode(), charset="latin-1") == (
        "character 3 of the body is '€', which latin-1 does not have"
    )
    assert refusal(folder, b"a\xff", charset="latin-1") == "the body is not UTF-8: byte 2 is 0xff"


# What is declared


def wrong() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"assemble": "csv"}, "'csv' is nothing to assemble as (there are: json, xml, flat, passthrough)"
    yield {"assemble": "json", "schema": "Order"}, "`schema` is for flat files"
    yield {"assemble": "json", "declaration": True}, "`declaration` is for XML"
    yield {"assemble": "flat", "schema": "Order"}, "the schema 'Order' is of format 'json', not 'flat'"
    yield {"assemble": "flat", "schema": "Other"}, "it names the schema 'Other', which is not declared"
    yield {"charset": "klingon"}, "there is no character set 'klingon'"
    yield {"assemble": "xml", "charset": "klingon"}, "there is no character set 'klingon'"
    yield (
        {"assemble": "xml", "charset": "unicode-escape"},
        "XML cannot be written in the character set 'unicode-escape'",
    )
    yield {"components": ["steps:missing"]}, "module 'steps' has no function 'missing'"
    yield {"encode": ["zip"]}, "'zip' does not name a function; write it as module:function"
    yield {"maps": [{"from": "Order", "to": "Other", "function": "steps:bill"}]}, "a map makes 'Other'"
    yield {"maps": [{"from": "Order", "to": "Bill", "xslt": "steps.py"}]}, "steps.py is not an XSLT that can be used"


@pytest.mark.parametrize(("pipeline", "reason"), list(wrong()))
def test_wrong_pipeline_is_refused_with_its_port(pipeline: dict[str, Any], reason: str, folder: Path) -> None:
    with pytest.raises(ApplicationError) as refused:
        definition_of(folder, **pipeline)

    assert str(refused.value).startswith(f"send port 'Out': {reason}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "Line", "format": "flat"}, "which has no `columns`"),
        ({**PLACED, "columns": {"id": [1, 4], "year": [3, 4]}}, "'id' and 'year' overlap"),
        (SCHEMAS[0], "there is no schema of format 'flat'; declare one under `schemas`"),
    ],
)
def test_schema_by_which_no_line_can_be_written_is_refused(schema: dict[str, Any], reason: str, folder: Path) -> None:
    with pytest.raises(ApplicationError, match=reason):
        definition_of(folder, schema, assemble="flat")
