"""What tests of send pipelines share: pipelines as a send port has them, and messages that go through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from crossdock.application.model import ApplicationModel, MapModel, SendPipelineModel
from crossdock.application.pipelines import Pipelines
from crossdock.errors import DocumentError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.pipeline.build_send import send_pipeline
from crossdock.pipeline.definition import SendPipelineDefinition

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
