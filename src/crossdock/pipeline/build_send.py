"""Builds the send pipeline that a definition asks for. Whatever is wrong with the definition is an ApplicationError."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import assert_never

from crossdock.component import load_function
from crossdock.errors import ApplicationError, DocumentError
from crossdock.pipeline.assemble import Assembler, FlatAssembler, XmlAssembler, assemble_json
from crossdock.pipeline.build import check_charset, document_map
from crossdock.pipeline.custom import Checks, CustomComponent
from crossdock.pipeline.definition import PipelineDefinition, SchemaDefinition, SendPipelineDefinition
from crossdock.pipeline.document import Document, Promoter
from crossdock.pipeline.encode import compress, from_utf8
from crossdock.pipeline.flat import Record
from crossdock.pipeline.receive import Maps
from crossdock.pipeline.send import Encoder, SendPipeline, Step
from crossdock.pipeline.xml import parse_document


def send_pipeline(definition: SendPipelineDefinition) -> SendPipeline:
    checks = Checks(definition.properties, definition.text_limit)
    return SendPipeline(
        _outbound_maps(definition),
        [
            CustomComponent(name, Step(name, load_function(name, definition.code)), checks)
            for name in definition.components
        ],
        _assembler(definition),
        _encoders(definition),
    )


def _outbound_maps(definition: SendPipelineDefinition) -> Maps:
    """Built as those of a receive pipeline are."""
    maps = PipelineDefinition(
        disassemble="passthrough",
        targets=definition.targets,
        maps=definition.maps,
        text_limit=definition.text_limit,
        code=definition.code,
    )
    return {each.source: document_map(maps, each) for each in definition.maps}


def _assembler(definition: SendPipelineDefinition) -> Assembler | None:
    if definition.declaration and definition.assemble != "xml":
        raise ApplicationError("`declaration` is for XML")
    match definition.assemble:
        case "json":
            return assemble_json
        case "xml":
            return _xml_assembler(definition.declaration, definition.charset)
        case "flat":
            assert definition.flat is not None
            return _flat_assembler(definition.flat)
        case "passthrough":
            return None
        case _:
            assert_never(definition.assemble)


def _xml_assembler(declaration: bool, charset: str | None) -> XmlAssembler:
    assembler = XmlAssembler(declaration, charset)
    if charset is not None:
        check_charset(charset)
        try:
            parse_document(assembler(Document(b"<nothing/>")))
        except DocumentError as error:
            raise ApplicationError(f"XML cannot be written in the character set {charset!r}") from error
    return assembler


def _flat_assembler(schema: SchemaDefinition) -> FlatAssembler:
    record = schema.record
    if record is None or not record.columns:
        raise ApplicationError(f"lines cannot be written by the schema {schema.type!r}, which has no `columns`")
    placed = sorted(zip(record.positions, record.columns, strict=False))
    for ((start, length), name), ((following, _), other) in pairwise(placed):
        if start + length > following:
            raise ApplicationError(f"lines cannot be written by {schema.type!r}: {name!r} and {other!r} overlap")
    promoter: Promoter[str] = Promoter((), 0)
    return FlatAssembler(
        schema.type, Record(record.columns, record.positions, record.delimiter, record.quote, promoter)
    )


def _encoders(definition: SendPipelineDefinition) -> list[Encoder]:
    """The character set first: what comes after it is no text any more. XML says itself how it is encoded."""
    encoders: list[Encoder] = []
    if definition.charset is not None:
        check_charset(definition.charset)
        if definition.assemble != "xml":
            encoders.append(partial(from_utf8, charset=definition.charset))
    encoders += [
        compress if name == "gzip" else Step(name, load_function(name, definition.code)) for name in definition.encode
    ]
    return encoders
