"""Documents that are validated and mapped: by XSD and JSON Schema, by XSLT and functions."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from stages import AMOUNT, ORDER, XML_ORDER, XSD, location_of, reason, received


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


def test_map_without_a_target_gives_a_message_without_a_type(folder: Path) -> None:
    location = location_of(folder, ORDER, port={"maps": [{"from": "Order", "function": "components:doubled"}]})

    [message] = received(location, b'{"amount": 1}').messages

    assert "BTS.MessageType" not in message.context.promoted


def test_document_that_cannot_be_validated_does_not_take_the_others_with_it(folder: Path) -> None:
    location = location_of(folder, {**ORDER, "validate": "order.json"})

    interchange = received(location, b'{"amount": 1}\n{"x": %s}\n{"amount": 2}' % (b"1" * 5_000))

    assert len(interchange.messages) == 2
    assert "it cannot be validated" in interchange.failures[0].reason
