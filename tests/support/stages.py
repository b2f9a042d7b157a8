"""What tests of the stages of a receive pipeline share: an application with the files that it names beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.message.publication import Publication
from crossdock.receive.item import IntakeItem
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


def received(location: ReceiveLocation, content: bytes) -> Publication:
    return location.publication(IntakeItem(1, 1, b"1:1:1:/in/a", len(content), 0), content)


def reason(publication: Publication) -> str:
    assert publication.messages == ()
    [failure] = publication.failures
    return failure.reason
