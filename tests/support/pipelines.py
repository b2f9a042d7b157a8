"""What tests of pipelines share: pipelines built from definitions, as a receive location builds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from crossdock.message.property import PropertyType
from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.definition import PipelineDefinition, PromotedField, SchemaDefinition
from crossdock.pipeline.document import Document
from crossdock.pipeline.xml import XmlDisassembler

# Passed as `large_bytes`: every document is streamed, or none is.
STREAMED, WHOLE = 0, 100_000_000
ORDERS = "urn:orders"
NAMESPACES = {"o": ORDERS}


def fields(types: Mapping[str, tuple[str, str]]) -> dict[str, PromotedField]:
    """{property: (type, path)} as a schema has it."""
    return {name: PromotedField(type=PropertyType(type_), field=path) for name, (type_, path) in types.items()}


def xml_schema(type_: str, *, body: str | None = None, **promote: tuple[str, str]) -> SchemaDefinition:
    return SchemaDefinition(type=type_, format="xml", namespaces=NAMESPACES, body=body, promote=fields(promote))


ORDER = xml_schema(
    f"{ORDERS}#Order",
    Id=("text", "/o:Order/@id"),
    Amount=("decimal", "/o:Order/o:amount"),
    Region=("text", "/o:Order/o:region"),
)
BATCH = xml_schema(f"{ORDERS}#Batch", body="/o:Batch/o:orders", Sender=("text", "/o:Batch/o:sender"))


def execute(
    content: bytes,
    *schemas: SchemaDefinition,
    disassemble: str = "xml",
    large_bytes: int | None = None,
    **options: Any,
) -> list[Document]:
    """`large_bytes`: from which size on XML is streamed, if not from the size that it is in earnest."""
    pipeline = receive_pipeline(PipelineDefinition(disassemble=disassemble, schemas=schemas, **options))
    if large_bytes is not None:
        assert isinstance(pipeline.disassembler, XmlDisassembler)
        pipeline = replace(pipeline, disassembler=replace(pipeline.disassembler, large_bytes=large_bytes))
    return list(pipeline.execute(content))


def only(content: bytes, *schemas: SchemaDefinition, **options: Any) -> Document:
    [document] = execute(content, *schemas, **options)
    return document
