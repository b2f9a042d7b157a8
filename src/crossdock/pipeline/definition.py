"""What a pipeline is built from, wherever it runs: kept in the MessageBox with the receive location or the send port.

Files that an application names (XSD, XSLT, JSON Schema) travel in it as text, since the machine that runs the pipeline
need not have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import not_
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from crossdock.message.property import PropertyType
from crossdock.pipeline.json import Split

Format = Literal["json", "xml", "flat"]
Assembly = Literal["json", "xml", "flat", "passthrough"]
FieldPath = str


class _Definition(BaseModel):
    model_config = ConfigDict(frozen=True)


class PromotedField(_Definition):
    """Where a property is taken from."""

    type: PropertyType
    field: FieldPath
    distinguished: bool = False
    personal: Annotated[bool, Field(exclude_if=not_)] = False


class RecordDefinition(_Definition):
    """How a line of a flat file is cut: by a delimiter, or at positions (first column and length, from 1)."""

    columns: tuple[str, ...] = ()
    positions: tuple[tuple[int, int], ...] = ()
    delimiter: str = ","
    quote: str = '"'
    promote: Mapping[str, PromotedField] = {}


class SchemaDefinition(_Definition):
    """A kind of document."""

    type: str
    format: Format
    promote: Mapping[str, PromotedField] = {}
    namespaces: Mapping[str, str] = {}
    body: str | None = None
    record: RecordDefinition | None = None
    header: RecordDefinition | None = None
    trailer: RecordDefinition | None = None
    count: str | None = None
    validate_with: Mapping[str, str] = {}


class MapDefinition(_Definition):
    """Turns documents of one type into another: an XSLT, or a function `module:name`."""

    source: str
    target: str | None = None
    xslt: Mapping[str, str] = {}
    function: str | None = None


class PipelineDefinition(_Definition):
    """`code` is the folder in which the modules of custom components are looked for first; `properties` are those that
    the application declares, by which what components promote is checked.
    """

    disassemble: Literal["json", "xml", "flat", "passthrough"] | str
    decode: tuple[str, ...] = ()
    charset: str | None = None
    components: tuple[str, ...] = ()
    schemas: tuple[SchemaDefinition, ...] = ()
    targets: tuple[SchemaDefinition, ...] = ()
    maps: tuple[MapDefinition, ...] = ()
    split: Split | None = None
    standard: bool = False
    text_limit: int = 256
    properties: Mapping[str, PropertyType] = {}
    code: str | None = None


class SendPipelineDefinition(_Definition):
    """`flat` is the schema by whose columns lines are written; `declaration` is for XML; the last as above."""

    assemble: Assembly = "passthrough"
    declaration: bool = False
    flat: SchemaDefinition | None = None
    components: tuple[str, ...] = ()
    encode: tuple[str, ...] = ()
    charset: str | None = None
    targets: tuple[SchemaDefinition, ...] = ()
    maps: tuple[MapDefinition, ...] = ()
    text_limit: int = 256
    properties: Mapping[str, PropertyType] = {}
    code: str | None = None
