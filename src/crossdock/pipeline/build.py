"""Builds the pipeline that a definition asks for. Whatever is wrong with the definition is an ApplicationError."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from crossdock.component import load_function
from crossdock.errors import ApplicationError
from crossdock.pipeline.custom import Checks, CustomComponent, CustomDecoder
from crossdock.pipeline.decode import LIMIT_BYTES, gunzip, to_utf8
from crossdock.pipeline.definition import (
    MapDefinition,
    PipelineDefinition,
    PromotedField,
    RecordDefinition,
    SchemaDefinition,
)
from crossdock.pipeline.document import Promoter, Promotion
from crossdock.pipeline.flat import FlatDisassembler, Record
from crossdock.pipeline.json import JsonDisassembler, parse_path
from crossdock.pipeline.lines import check_lines
from crossdock.pipeline.map import Transform, function_map, xslt_map
from crossdock.pipeline.receive import (
    CustomDisassembler,
    Decoder,
    Disassembler,
    PassThrough,
    ReceivePipeline,
    Validated,
)
from crossdock.pipeline.validate import Validator, json_validator, xsd, xsd_validator
from crossdock.pipeline.xml import XmlDisassembler, XmlShape, message_type, parse_xpath

Path = TypeVar("Path")
BUILT_IN = ("json", "xml", "flat", "passthrough")


def receive_pipeline(definition: PipelineDefinition, *, unpacked_limit: int = LIMIT_BYTES) -> ReceivePipeline:
    """`unpacked_limit`: so many bytes may come of a compressed source."""
    return ReceivePipeline(
        _disassembler(definition, definition.disassemble, definition.schemas),
        _decoders(definition, unpacked_limit),
        bool(definition.decode or definition.charset),
        {schema.type: _validator(schema) for schema in definition.schemas if schema.validate_with and not schema.body},
        [
            CustomComponent(name, load_function(name, definition.code), _checks(definition))
            for name in definition.components
        ],
        {each.source: document_map(definition, each) for each in definition.maps},
        definition.standard,
    )


def _checks(definition: PipelineDefinition) -> Checks:
    return Checks(definition.properties, definition.text_limit)


def _decoders(definition: PipelineDefinition, unpacked_limit: int) -> list[Decoder]:
    decoders: list[Decoder] = [
        partial(gunzip, limit=unpacked_limit)
        if name == "gzip"
        else CustomDecoder(name, load_function(name, definition.code))
        for name in definition.decode
    ]
    if definition.charset is not None:
        check_charset(definition.charset)
        if definition.disassemble == "xml":
            raise ApplicationError("`charset` is not for XML, which says itself how it is encoded")
    if definition.disassemble in ("json", "flat") or definition.charset is not None:
        decoders.append(partial(to_utf8, charset=definition.charset))
    if definition.disassemble == "flat":  # all of its lines are looked at before the first is a message
        [schema] = definition.schemas
        blanks = _flat(definition, schema).record.blanks.encode()
        decoders.append(partial(check_lines, blanks=blanks))
    return decoders


def check_charset(charset: str) -> None:
    """Raises ApplicationError if Python does not know it."""
    try:
        "a".encode(charset)
    except (LookupError, UnicodeError) as error:
        raise ApplicationError(f"there is no character set {charset!r}") from error


def _disassembler(definition: PipelineDefinition, kind: str, schemas: Sequence[SchemaDefinition]) -> Disassembler:
    match kind:
        case "json":
            [schema] = schemas
            promoter = _promoter(definition, schema.promote, parse_path)
            return JsonDisassembler(schema.type, promoter, definition.split)
        case "xml":
            return XmlDisassembler({schema.type: _shape(definition, schema) for schema in schemas})
        case "flat":
            [schema] = schemas
            return _flat(definition, schema)
        case "passthrough":
            return PassThrough()
        case _:
            return CustomDisassembler(kind, load_function(kind, definition.code), _checks(definition))


def _promoter(
    definition: PipelineDefinition, fields: Mapping[str, PromotedField], parse: Callable[[str], Path]
) -> Promoter[Path]:
    return Promoter(
        [
            Promotion(name, each.type, each.field, parse(each.field), each.distinguished, each.personal)
            for name, each in fields.items()
        ],
        definition.text_limit,
    )


def _shape(definition: PipelineDefinition, schema: SchemaDefinition) -> XmlShape:
    promoter = _promoter(definition, schema.promote, partial(parse_xpath, namespaces=schema.namespaces))
    if schema.body is None:
        return XmlShape(schema.type, promoter)
    path = parse_xpath(schema.body, schema.namespaces)
    if path.steps is None or path.attribute is not None:
        raise ApplicationError(f"the body {schema.body!r} must be a plain path of elements, such as /Batch/Orders")
    if message_type(path.steps[0]) != schema.type:
        raise ApplicationError(f"the body {schema.body!r} does not begin at the root of a {schema.type}")
    return XmlShape(schema.type, promoter, path.steps, xsd(schema.validate_with) if schema.validate_with else None)


def _flat(definition: PipelineDefinition, schema: SchemaDefinition) -> FlatDisassembler:
    assert schema.record is not None
    record = _record(definition, schema.record)
    header = None if schema.header is None else _record(definition, schema.header)
    trailer = None if schema.trailer is None else _record(definition, schema.trailer)
    names_first = not schema.record.columns
    return FlatDisassembler(schema.type, record, header, trailer, schema.count, names_first)


def _record(definition: PipelineDefinition, record: RecordDefinition) -> Record:
    promoter = _promoter(definition, record.promote, str)
    return Record(record.columns, record.positions, record.delimiter, record.quote, promoter)


def _validator(schema: SchemaDefinition) -> Validator:
    return xsd_validator(schema.validate_with) if schema.format == "xml" else json_validator(schema.validate_with)


def document_map(definition: PipelineDefinition, each: MapDefinition) -> tuple[Transform, Disassembler]:
    """How documents are turned, and what gives the result its type and its properties."""
    if each.function is not None:
        transform = function_map(each.function, load_function(each.function, definition.code))
    else:
        transform = xslt_map(each.xslt)
    target = next((schema for schema in definition.targets if schema.type == each.target), None)
    if target is None:
        return transform, PassThrough()
    if target.body is not None or (target.record is not None and not target.record.columns):
        raise ApplicationError(f"a map makes one message, and {target.type!r} is an envelope or has no `columns`")
    made = _disassembler(definition.model_copy(update={"split": "document"}), target.format, [target])
    return transform, Validated(made, _validator(target)) if target.validate_with else made
