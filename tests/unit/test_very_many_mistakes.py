"""Documents that are wrong in very many places: the first is told, and the others cost neither time nor memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from crossdock.errors import DocumentError
from crossdock.pipeline.validate import json_validator, xsd_validator
from pipelines import BATCH, WHOLE, only, xml_schema

XSD = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" elementFormDefault="qualified" TARGET>
  <xs:element name="NAME"><xs:complexType><xs:sequence>
    <xs:element name="line" maxOccurs="unbounded">
      <xs:complexType><xs:attribute name="n" type="xs:int"/></xs:complexType>
    </xs:element>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>
"""
ORDER_XSD = XSD.replace("NAME", "Order").replace("TARGET", "")
BATCH_XSD = XSD.replace("NAME", "Batch").replace("TARGET", 'targetNamespace="urn:orders"')
WRONG_LINES = b'<line n="x"/>' * 80_000


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def test_document_that_does_not_fit_its_xsd_in_very_many_places_is_refused_at_once() -> None:
    validate = xsd_validator({"order.xsd": ORDER_XSD})

    def refused() -> None:
        with pytest.raises(DocumentError, match=r"does not fit its schema: Element 'line', attribute 'n': 'x'"):
            validate(b"<Order>" + WRONG_LINES + b"</Order>")

    assert seconds(refused) < 4  # it took three times that, and four times longer for twice as many


def test_envelope_that_does_not_fit_its_xsd_in_very_many_places_is_refused_at_once() -> None:
    schema = BATCH.model_copy(update={"validate_with": {"batch.xsd": BATCH_XSD}})
    content = b'<Batch xmlns="urn:orders">' + WRONG_LINES + b"</Batch>"

    def refused() -> None:
        assert "does not fit its schema" in str(only(content, schema, large_bytes=WHOLE).error)

    assert seconds(refused) < 4


def test_document_that_is_no_xml_is_not_said_to_miss_its_schema() -> None:
    validate = xsd_validator({"order.xsd": ORDER_XSD})

    with pytest.raises(DocumentError, match="the document is not XML"):
        validate(b'<Order><line n="x"/><line')


def test_document_type_declaration_is_refused_before_the_schema_is_looked_at() -> None:
    validate = xsd_validator({"order.xsd": ORDER_XSD})

    with pytest.raises(DocumentError, match="document type declaration"):
        validate(b'<!DOCTYPE Order [<!ENTITY e "x">]><Order><line n="x">&e;</line></Order>')


def test_json_that_does_not_fit_its_schema_in_very_many_places_takes_no_memory_for_them() -> None:
    validate = json_validator({"lines.json": '{"type": "array", "items": {"type": "integer"}}'})
    content = b"[" + b'"x",' * 50_000 + b'"x"]'

    tracemalloc.start()
    with pytest.raises(DocumentError, match=r'\$\[0\]: "x" is not of type "integer"'):
        validate(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 20 * len(content)


def test_field_that_is_there_very_often_with_elements_in_it_takes_no_memory_for_each() -> None:
    schema = xml_schema("Order", Id=("text", "/Order/id"), Name=("text", "/Order/@name"))
    content = b'<Order name="a">' + b"<id><x/></id>" * 20_000 + b"</Order>"

    tracemalloc.start()
    document = only(content, schema, large_bytes=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert "there are 20000 of it, and a property has one value" in str(document.error)
    assert peak < 20 * len(content)


def test_document_with_a_very_long_namespace_is_kept_back_where_each_element_would_repeat_it() -> None:
    schema = xml_schema("Order", Id=("text", "/Order/id"))
    content = b'<Order><a:b xmlns:a="%b"/></Order>' % (b"u" * 3_000)

    kept_back, whole = only(content, schema, large_bytes=0), only(content, schema, large_bytes=WHOLE)

    assert "a namespace of 3,000 characters, and 2,000 is the most" in str(kept_back.error)
    assert whole.error is None
