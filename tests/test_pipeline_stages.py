"""The stages around the disassembler: decode, validate, custom components, map; and failed messages that are routed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import ApplicationError, DocumentError
from crossdock.pipeline import decode
from crossdock.pipeline.decode import gunzip
from crossdock.receive.interchange import IntakeItem, Interchange
from crossdock.receive.location import ReceiveLocation

XSD = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="urn:orders" targetNamespace="urn:orders"
  elementFormDefault="qualified"><xs:include schemaLocation="types/../types/amount.xsd"/>
  <xs:element name="Order"><xs:complexType><xs:sequence><xs:element name="amount" type="Amount"/></xs:sequence>
  </xs:complexType></xs:element></xs:schema>"""
AMOUNT = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:orders">
  <xs:simpleType name="Amount"><xs:restriction base="xs:decimal"><xs:maxInclusive value="100"/></xs:restriction>
  </xs:simpleType></xs:schema>"""
XSLT = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:o="urn:orders"
  exclude-result-prefixes="o"><xsl:import href="lib/total.xsl"/><xsl:output omit-xml-declaration="yes"/>
  <xsl:template match="/o:Order"><Invoice><xsl:call-template name="total"/></Invoice></xsl:template></xsl:stylesheet>"""
TOTAL = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:o="urn:orders"
  exclude-result-prefixes="o"><xsl:template name="total"><total><xsl:value-of select="o:amount * 2"/></total></xsl:template>
  </xsl:stylesheet>"""
STEALING = XSLT.replace("<Invoice>", "<Invoice><xsl:copy-of select=\"document('/etc/hostname')\"/>")
COMPONENTS = """
import time
from crossdock.errors import DocumentError

def unmask(content):
    return bytes(byte ^ 1 for byte in content)

def halves(content):
    return [content[: len(content) // 2], content[len(content) // 2 :]]

def tag(document):
    if document.promoted.get("Region") == "forbidden":
        raise DocumentError("it comes from a forbidden region")
    return document.changed(promoted={**document.promoted, "Region": document.promoted["Region"].lower()})

def nothing(content):
    return []

def texts(content):
    return ["text"]

def refused(document):
    return document.failed("not today")

def broken(document):
    if b"region" in document.body:
        return document
    raise ZeroDivisionError("oops")

def ends(document):
    if isinstance(document, bytes) or document.body == b"{}":
        raise SystemExit(3)
    return document

def endless(document):
    while document.body == b"{}":
        try:
            time.sleep(0.01)
        except Exception:
            pass
    return document

def too_large(document):
    return document.changed(written={"Count": 2**70})

def listed(document):
    return document.changed(promoted={"Region": ["NO"]})

def doubled(body):
    import json
    order = json.loads(body)
    return json.dumps({"total": order["amount"] * 2}).encode()
"""
FILES = {
    "order.xsd": XSD, "types/amount.xsd": AMOUNT, "invoice.xsl": XSLT, "lib/total.xsl": TOTAL, "stealing.xsl": STEALING,
    "types/escaping.xsd": XSD.replace("types/../types/amount.xsd", "../order.xsd"),
    "order.json": json.dumps({"properties": {"amount": {"maximum": 10}, "lines": {"items": {"$ref": "line.json"}}}}),
    "line.json": json.dumps({"type": "integer"}),
    "components.py": COMPONENTS,
}  # fmt: skip
PROPERTIES = {"Region": "text", "Amount": "decimal", "Total": "decimal"}
ORDER: Mapping[str, Any] = {"type": "Order", "format": "json", "promote": {"Region": "$.region", "Amount": "$.amount"}}
XML_ORDER: Mapping[str, Any] = {
    "type": "urn:orders#Order", "format": "xml", "namespaces": {"o": "urn:orders"}, "promote": {"Amount": "/o:Order/o:amount"},
}  # fmt: skip


def location_of(
    folder: Path,
    *schemas: Mapping[str, Any],
    location: Mapping[str, Any] | None = None,
    port: Mapping[str, Any] | None = None,
    pipelines: list[Mapping[str, Any]] | None = None,
) -> ReceiveLocation:
    """The location of an application in a file of its own, with the files it names beside it."""
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    application = {
        "application": "orders", "properties": PROPERTIES, "schemas": schemas, "pipelines": pipelines or [],
        "receive_ports": [
            {"name": "In", "locations": [{"adapter": "file", "address": "in/*", "pipeline": "json", **(location or {})}], **(port or {})}
        ],
    }  # fmt: skip
    file = folder / "orders.yaml"
    file.write_text(json.dumps(application))
    deployment = deployment_of(load_application(file), file, text_limit=256)
    return ReceiveLocation.from_definition(1, 1, deployment.locations[0].definition)


def received(location: ReceiveLocation, content: bytes) -> Interchange:
    return location.interchange(IntakeItem(1, 1, b"1:1:1:/in/a", len(content)), 0, content)


def reason(interchange: Interchange) -> str:
    assert interchange.messages == ()
    [failure] = interchange.failures
    return failure.reason


def test_compressed_file_is_unpacked_and_a_piece_that_fails_is_not_unpacked_again(folder: Path) -> None:
    location = location_of(folder, ORDER, location={"decode": ["gzip"]})
    plain = b'{"region": "NO", "amount": 1}\n{"amount": "much"}\n'

    interchange = received(location, gzip.compress(plain[:31]) + gzip.compress(plain[31:]))

    [message] = interchange.messages
    [failure] = interchange.failures
    assert (message.context.get("Region"), message.body) == ("NO", b'{"region": "NO", "amount": 1}')
    assert failure.message.body == b'{"amount": "much"}'
    assert failure.message.context.written["BTS.MessageType"] == "Order"  # known, and not to be routed by
    again = location.again(1, failure.message, (1, 1), lambda: failure.message.id)
    assert "'much' is not a decimal" in reason(again)
    assert reason(received(location, plain)) == "the file is not compressed with gzip"
    whole = received(location, plain).failures[0].message
    assert reason(location.again(1, whole, (1, 1), lambda: whole.id)) == "the file is not compressed with gzip"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(b"x" * 2_000_000), "more than 1,000,000 bytes when it is unpacked"),
        (gzip.compress(b"x" * 400_000) * 3, "more than 1,000,000 bytes when it is unpacked"),
        (gzip.compress(b"x" * 100)[:-4], "ends too early"),
        (gzip.compress(b"x" * 100) + b"more", "not gzip all through"),
        (b"\x1f\x8b" + b"nonsense" * 10, "not gzip all through"),
    ],
    ids=["bomb", "bomb in parts", "cut", "more", "nonsense"],
)
def test_what_cannot_be_unpacked_is_said(content: bytes, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        gunzip(content, limit=1_000_000)
    assert decode.LIMIT_BYTES == 256 * 1024 * 1024


def test_xml_is_validated_by_an_xsd_in_several_files(folder: Path) -> None:
    location = location_of(folder, {**XML_ORDER, "validate": "order.xsd"}, location={"pipeline": "xml"})
    document = b'<Order xmlns="urn:orders"><amount>%s</amount></Order>'
    for name in ("order.xsd", "types/amount.xsd"):
        (folder / name).unlink()  # they travel with the definition

    assert len(received(location, document % b"100").messages) == 1
    assert "it does not fit its schema: Element '{urn:orders}amount'" in reason(received(location, document % b"101"))


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "utf-8-sig"])
def test_files_of_a_schema_may_be_written_as_biztalk_writes_them(folder: Path, encoding: str) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>\n<!-- é <xs:include schemaLocation="gone.xsd"/> -->'
    (folder / "parts").mkdir()
    (folder / "written.xsd").write_bytes(
        (declared + XSD.replace("types/../types/amount.xsd", r".\parts\amount.xsd")).encode(encoding)
    )
    (folder / "parts" / "amount.xsd").write_bytes((declared + AMOUNT).encode(encoding))
    location = location_of(folder, {**XML_ORDER, "validate": "written.xsd"}, location={"pipeline": "xml"})
    document = b'<Order xmlns="urn:orders"><amount>%s</amount></Order>'

    assert len(received(location, document % b"100").messages) == 1
    assert "it does not fit its schema" in reason(received(location, document % b"101"))


def test_json_is_validated_by_a_json_schema_in_several_files(folder: Path) -> None:
    location = location_of(folder, {**ORDER, "validate": "order.json"})
    (folder / "line.json").unlink()

    assert len(received(location, b'{"amount": 9.99, "lines": [1]}').messages) == 1
    exact = reason(received(location, b'{"amount": 10.000000000000000001}'))
    assert exact == "it does not fit its schema: $.amount: 10.000000000000000001 is greater than the maximum of 10"
    nested = reason(received(location, b'{"lines": [1, "x"]}'))
    assert nested == 'it does not fit its schema: $.lines[1]: "x" is not of type "integer"'


def test_map_turns_a_document_into_another_type_and_promotes_from_that(folder: Path) -> None:
    invoice = {"type": "Invoice", "format": "xml", "promote": {"Total": "/Invoice/total"}}
    maps = [{"from": "urn:orders#Order", "to": "Invoice", "xslt": "invoice.xsl"}]
    location = location_of(folder, XML_ORDER, invoice, location={"pipeline": "xml"}, port={"maps": maps})

    [message] = received(location, b'<Order xmlns="urn:orders"><amount>21</amount></Order>').messages

    assert message.body == b"<Invoice><total>42</total></Invoice>\n"
    assert message.context.promoted["BTS.MessageType"] == "Invoice"
    assert (message.context.get("Total"), message.context.get("Amount")) == (Decimal(42), Decimal(21))


@pytest.mark.parametrize(("amount", "problem"), [(4, None), (6, "$.total: 12 is greater than the maximum of 10")])
def test_what_a_map_makes_has_to_fit_the_schema_of_its_type(folder: Path, amount: int, problem: str | None) -> None:
    (folder / "bill.json").write_text(json.dumps({"properties": {"total": {"maximum": 10}}}))
    invoice = {"type": "Invoice", "format": "json", "validate": "bill.json"}
    maps = [{"from": "Order", "to": "Invoice", "function": "components:doubled"}]
    location = location_of(folder, ORDER, invoice, location={"schema": "Order"}, port={"maps": maps})

    interchange = received(location, b'{"amount": %d}' % amount)

    if problem is None:
        assert [message.body for message in interchange.messages] == [b'{"total": 8}']
    else:
        assert reason(interchange) == f"what the map makes of it cannot be used: it does not fit its schema: {problem}"
        assert interchange.failures[0].message.body == b'{"amount": 6}'


def test_map_that_makes_nothing_is_told_from_a_file_that_holds_nothing(folder: Path) -> None:
    (folder / "mute.py").write_text("def say(body): return b''")
    maps = [{"from": "Order", "to": "Order", "function": "mute:say"}]

    failed = reason(received(location_of(folder, ORDER, port={"maps": maps}), b"{}"))

    assert failed == "what the map makes of it cannot be used: it is empty"


def test_map_may_be_a_function(folder: Path) -> None:
    invoice = {"type": "Invoice", "format": "json", "promote": {"Total": "$.total"}}
    maps = [{"from": "Order", "to": "Invoice", "function": "components:doubled"}]
    location = location_of(folder, ORDER, invoice, location={"schema": "Order"}, port={"maps": maps})

    interchange = received(location, b'{"amount": 4}\n{"amount": null}\n')

    [message] = interchange.messages
    assert (message.body, message.context.get("Total")) == (b'{"total": 8}', Decimal(8))
    assert "the map components:doubled fails on it: TypeError" in interchange.failures[0].reason


def test_stylesheet_reads_no_files(folder: Path) -> None:
    maps = [{"from": "urn:orders#Order", "xslt": "stealing.xsl"}]
    location = location_of(folder, XML_ORDER, location={"pipeline": "xml"}, port={"maps": maps})

    failed = reason(received(location, b'<Order xmlns="urn:orders"><amount>21</amount></Order>'))

    assert "the map stealing.xsl fails on it" in failed
    assert "denied" in failed or "refused" in failed


def test_components_of_ones_own_run_in_their_stages(folder: Path) -> None:
    own = {"name": "own", "decode": ["components:unmask"], "disassemble": "json", "components": ["components:tag"]}
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own])
    masked = bytes(byte ^ 1 for byte in b'{"region": "NO"}\n{"region": "forbidden"}')

    interchange = received(location, masked)

    [message] = interchange.messages
    assert message.context.get("Region") == "no"
    assert interchange.failures[0].reason == "it comes from a forbidden region"


def test_disassembler_of_ones_own_gives_messages_without_a_type(folder: Path) -> None:
    own = {"name": "halves", "disassemble": "components:halves"}
    location = location_of(folder, location={"pipeline": "halves"}, pipelines=[own])

    messages = received(location, b"abcd").messages

    assert [message.body for message in messages] == [b"ab", b"cd"]
    assert "BTS.MessageType" not in messages[0].context.promoted


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("too_large", "components:too_large gives what cannot be kept: property 'Count' is integer, and"),
        ("listed", "components:listed gives what cannot be kept: property 'Region' cannot be list"),
    ],
)
def test_component_that_writes_what_no_property_can_be_has_the_document_suspended(
    folder: Path, function: str, said: str
) -> None:
    own = {"name": "own", "disassemble": "json", "components": [f"components:{function}"]}
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own])

    assert reason(received(location, b"{}")).startswith(said)


@pytest.mark.parametrize("function", ["nothing", "texts"])
def test_disassembler_that_finds_nothing_or_no_bytes_does_not_make_a_file_vanish(folder: Path, function: str) -> None:
    own = {"name": "own", "disassemble": f"components:{function}"}
    location = location_of(folder, location={"pipeline": "own"}, pipelines=[own])

    failure = received(location, b"abc").failures[0]

    assert failure.message.body == b"abc"
    assert failure.reason in ("the file holds no message", "components:texts gives str instead of bytes")


def test_component_that_says_a_document_failed_is_heard_also_where_a_map_follows(folder: Path) -> None:
    own = {"name": "own", "disassemble": "json", "components": ["components:refused"]}
    maps = [{"from": "Order", "function": "components:doubled"}]
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own], port={"maps": maps})

    assert reason(received(location, b'{"amount": 1}')) == "not today"


def test_map_without_a_target_gives_a_message_without_a_type(folder: Path) -> None:
    location = location_of(folder, ORDER, port={"maps": [{"from": "Order", "function": "components:doubled"}]})

    [message] = received(location, b'{"amount": 1}').messages

    assert "BTS.MessageType" not in message.context.promoted


def test_document_that_cannot_be_validated_does_not_take_the_others_with_it(folder: Path) -> None:
    location = location_of(folder, {**ORDER, "validate": "order.json"})

    interchange = received(location, b'{"amount": 1}\n{"x": %s}\n{"amount": 2}' % (b"1" * 5_000))

    assert len(interchange.messages) == 2
    assert "it cannot be validated" in interchange.failures[0].reason


def test_compressed_file_of_very_many_members_is_unpacked_in_no_time() -> None:
    assert gunzip(gzip.compress(b"x", mtime=0) * 100_000) == b"x" * 100_000


def test_pass_through_takes_anything(folder: Path) -> None:
    location = location_of(folder, location={"pipeline": "passthrough"})

    [message] = received(location, b"\x00\xff").messages

    assert message.body == b"\x00\xff"


def test_distinguished_field_is_written_and_not_routable(folder: Path) -> None:
    location = location_of(folder, {**ORDER, "distinguished": {"Note": "$.note"}})

    [message] = received(location, b'{"note": "fragile"}').messages

    assert message.context.written["Note"] == "fragile"
    assert "Note" not in message.context.promoted


def test_failed_message_is_routed_where_the_port_says_so(folder: Path) -> None:
    location = location_of(folder, ORDER, port={"failed_messages": "route"})

    interchange = received(location, b'{"region": "NO", "amount": "much"}')

    assert interchange.failures == ()
    [message] = interchange.messages
    context = message.context
    assert set(context.promoted) == {
        "ErrorReport.ErrorType", "ErrorReport.FailureCode", "ErrorReport.FailureCategory", "ErrorReport.MessageType",
        "ErrorReport.ReceivePortName", "ErrorReport.InboundTransportLocation",
    }  # fmt: skip
    assert (context.promoted["ErrorReport.ErrorType"], context.promoted["ErrorReport.MessageType"]) == (
        "FailedMessage",
        "Order",
    )
    assert "'much' is not a decimal" in str(context.written["ErrorReport.Description"])
    assert context.written["BTS.ReceivePortName"] == "In"


@pytest.mark.parametrize(
    ("schemas", "location", "port", "problem"),
    [
        ([ORDER], {"decode": ["zip"]}, {}, "'zip' does not name a function"),
        ([ORDER], {"charset": "klingon"}, {}, "there is no character set 'klingon'"),
        ([ORDER], {"charset": "hex"}, {}, "there is no character set 'hex'"),
        ([XML_ORDER], {"pipeline": "xml", "charset": "latin-1"}, {}, "`charset` is not for XML"),
        ([{**XML_ORDER, "body": "/o:Other"}], {"pipeline": "xml"}, {}, "does not begin at the root of a urn:orders#Order"),
        ([{**XML_ORDER, "validate": "types/escaping.xsd"}], {"pipeline": "xml"}, {}, "which is not in its folder or below"),
        ([{"type": "L", "format": "flat", "columns": ["a"], "quote": ","}], {}, {}, "must differ, and be no line ends"),
        ([ORDER], {"decode": ["nowhere:f"]}, {}, "module 'nowhere' cannot be imported"),
        ([ORDER], {"decode": ["components:missing"]}, {}, "has no function 'missing'"),
        ([{**ORDER, "validate": "missing.json"}], {}, {}, "missing.json cannot be read: No such file"),
        ([{**ORDER, "validate": "order.xsd"}], {}, {}, "order.xsd is not a JSON Schema that can be used"),
        ([{**XML_ORDER, "validate": "order.json"}], {"pipeline": "xml"}, {}, "order.json is not an XSD that can be used"),
        ([ORDER], {}, {"maps": [{"from": "Order", "to": "Bill", "function": "components:doubled"}]}, "makes 'Bill', which is not declared"),
        ([ORDER], {}, {"maps": [{"from": "Order"}]}, "a map has either `xslt` or `function`"),
        ([XML_ORDER], {}, {}, "there is no schema of format 'json'"),
        ([XML_ORDER], {"schema": "urn:orders#Order"}, {}, "is of format 'xml', not 'json'"),
        ([XML_ORDER], {"pipeline": "xml", "split": "lines"}, {}, "`split` is for JSON"),
        ([{**XML_ORDER, "body": "//x"}], {"pipeline": "xml"}, {}, "must be a plain path of elements"),
        ([{**ORDER, "columns": ["a"]}], {}, {}, "`columns`, `header` and `trailer` are for flat files"),
        ([{"type": "L", "format": "flat", "columns": ["a", "a"]}], {}, {}, "the column 'a' is there twice"),
        ([{"type": "L", "format": "flat", "columns": ["a"], "promote": {"Region": "b"}}], {}, {}, "there is no column 'b' (there are: a)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_pipeline_is_said_before_anything_starts(
    folder: Path, schemas: list[Mapping[str, Any]], location: Mapping[str, Any], port: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(ApplicationError) as caught:
        location_of(folder, *schemas, location=location, port=port)

    assert problem in str(caught.value)
