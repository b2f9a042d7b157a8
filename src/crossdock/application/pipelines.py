"""The pipelines of an application: what each receive location does with the bytes it finds, and each send port sends.

A pipeline is built once here, so that whatever is wrong with it is said before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast, get_args

from crossdock.application.files import files_of
from crossdock.application.model import (
    ApplicationModel,
    LocationModel,
    MapModel,
    PipelineModel,
    ReceivePortModel,
    RecordModel,
    ResponseModel,
    SchemaModel,
    SendPipelineModel,
    SendPortModel,
)
from crossdock.application.problems import Problems
from crossdock.errors import ApplicationError
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.pipeline.build import BUILT_IN, receive_pipeline
from crossdock.pipeline.build_send import send_pipeline
from crossdock.pipeline.definition import (
    Assembly,
    MapDefinition,
    PipelineDefinition,
    PromotedField,
    RecordDefinition,
    SchemaDefinition,
    SendPipelineDefinition,
)
from crossdock.pipeline.json import parse_path
from crossdock.pipeline.xml import parse_xpath


class Pipelines:
    """Of one application, whose files are found relative to `folder`."""

    def __init__(
        self,
        application: ApplicationModel,
        registry: PropertyRegistry,
        folder: Path,
        text_limit: int,
        problems: Problems | None = None,
    ) -> None:
        """What is wrong with a schema is one of the problems, and the schema is taken for one that promotes nothing."""
        collected = problems or Problems(folder, {})
        self._registry = registry
        self._personal = frozenset(application.personal)
        self._folder = folder
        self._text_limit = text_limit
        self._declared = {pipeline.name: pipeline for pipeline in application.pipelines}
        self._schemas = {
            schema.type: collected.tried(("schemas", number), partial(self._schema, schema)) or _bare(schema)
            for number, schema in enumerate(application.schemas)
        }
        for number, name in enumerate(self._declared):
            if name in BUILT_IN:
                taken = f"pipeline {name!r} has the name of a built-in one; choose another"
                collected.add(("pipelines", number), taken)
        if problems is None:
            collected.raise_any()

    def of(self, port: ReceivePortModel, location: LocationModel) -> PipelineDefinition:
        """The pipeline of a receive location. Raises ApplicationError."""
        definition = self._receiving(location, port.maps, standard=location.interchange == "standard")
        receive_pipeline(definition)
        return definition

    def _receiving(
        self, place: LocationModel | ResponseModel, maps: Sequence[MapModel], *, standard: bool
    ) -> PipelineDefinition:
        pipeline = self._pipeline(place.pipeline)
        if place.split is not None and pipeline.disassemble != "json":
            raise ApplicationError("`split` is for JSON; other formats are split by what they are")
        return PipelineDefinition(
            disassemble=pipeline.disassemble,
            decode=(*pipeline.decode, *place.decode),
            charset=place.charset or pipeline.charset,
            components=tuple(pipeline.components),
            schemas=self._chosen(place.schema_, pipeline.disassemble),
            targets=tuple(self._target(each) for each in maps if each.to is not None),
            maps=tuple(self._map(each) for each in maps),
            split=place.split,
            standard=standard,
            text_limit=self._text_limit,
            properties=self._checked_by(pipeline.components or pipeline.disassemble not in BUILT_IN),
            code=str(self._folder),
        )

    def sending(
        self, name: str, pipeline: SendPipelineModel | None, maps: Sequence[MapModel]
    ) -> SendPipelineDefinition:
        """The pipeline of the send port `name`. Raises ApplicationError, with the port in it."""
        try:
            definition = self._outbound(pipeline or SendPipelineModel(), maps)
            send_pipeline(definition)
        except ApplicationError as error:
            raise ApplicationError(f"send port {name!r}: {error}") from error
        return definition

    def answering(self, port: ReceivePortModel) -> SendPipelineDefinition:
        """What a two-way receive port does with a response before it goes out."""
        if not port.two_way and (port.response is not None or port.response_maps):
            raise ApplicationError(
                f"receive port {port.name!r}: `response` and `response_maps` are for a port that is `two_way`"
            )
        try:
            definition = self._outbound(port.response or SendPipelineModel(), port.response_maps)
            send_pipeline(definition)
        except ApplicationError as error:
            raise ApplicationError(f"receive port {port.name!r}: {error}") from error
        return definition

    def responding(self, port: SendPortModel) -> PipelineDefinition | None:
        """What a two-way send port does with the answer of its partner."""
        if port.response is None:
            return None
        try:
            definition = self._receiving(port.response, port.response.maps, standard=True)
            receive_pipeline(definition)
        except ApplicationError as error:
            raise ApplicationError(f"send port {port.name!r}, response: {error}") from error
        return definition

    def making(self) -> dict[str, PipelineDefinition]:
        """How an orchestration makes a message of each type: its body is read as one document of that type."""
        return {
            type_: PipelineDefinition(
                disassemble=schema.format,
                schemas=(schema,),
                split="document" if schema.format == "json" else None,
                standard=True,
                text_limit=self._text_limit,
            )
            for type_, schema in self._schemas.items()
        }

    def mapping(self, each: MapModel) -> PipelineDefinition:
        """A map that an orchestration names. Raises ApplicationError."""
        definition = PipelineDefinition(
            disassemble="passthrough",
            targets=() if each.to is None else (self._target(each),),
            maps=(self._map(each),),
            text_limit=self._text_limit,
            code=str(self._folder),
        )
        receive_pipeline(definition)
        return definition

    def _outbound(self, pipeline: SendPipelineModel, maps: Sequence[MapModel]) -> SendPipelineDefinition:
        if pipeline.assemble not in get_args(Assembly):
            known = ", ".join(get_args(Assembly))
            raise ApplicationError(f"{pipeline.assemble!r} is nothing to assemble as (there are: {known})")
        if pipeline.schema_ is not None and pipeline.assemble != "flat":
            raise ApplicationError("`schema` is for flat files")
        flat = None
        if pipeline.assemble == "flat":
            [flat] = self._chosen(pipeline.schema_, "flat")
        return SendPipelineDefinition(
            assemble=cast(Assembly, pipeline.assemble),
            declaration=pipeline.declaration,
            flat=flat,
            components=tuple(pipeline.components),
            encode=tuple(pipeline.encode),
            charset=pipeline.charset,
            targets=tuple(self._target(each) for each in maps if each.to is not None),
            maps=tuple(self._map(each) for each in maps),
            text_limit=self._text_limit,
            properties=self._checked_by(pipeline.components),
            code=str(self._folder),
        )

    def _checked_by(self, components: object) -> Mapping[str, PropertyType]:
        """What code of the application's own promotes is checked by the declared properties."""
        return self._registry.declared if components else {}

    def _pipeline(self, name: str) -> PipelineModel:
        if name in BUILT_IN:
            return PipelineModel(name=name, disassemble=name)
        if name not in self._declared:
            known = ", ".join([*BUILT_IN, *self._declared])
            raise ApplicationError(f"there is no pipeline {name!r} (there are: {known})")
        return self._declared[name]

    def _chosen(self, names: str | list[str] | None, format_: str) -> tuple[SchemaDefinition, ...]:
        """The schemas that are named, or those of its format; where the document does not tell, just one."""
        if format_ not in ("json", "xml", "flat"):
            return ()
        named = [names] if isinstance(names, str) else names
        if named is None:
            found = [schema for schema in self._schemas.values() if schema.format == format_]
        else:
            found = [self._named(name, format_) for name in named]
        if not found or (len(found) > 1 and format_ != "xml"):
            problem = "no schema" if not found else "more than one schema"
            raise ApplicationError(
                f"there is {problem} of format {format_!r}; "
                + ("declare one under `schemas`" if not found else "name one with `schema:`")
            )
        return tuple(found)

    def _named(self, name: str, format_: str) -> SchemaDefinition:
        if name not in self._schemas:
            known = ", ".join(self._schemas) or "none"
            raise ApplicationError(f"it names the schema {name!r}, which is not declared (declared: {known})")
        if self._schemas[name].format != format_:
            raise ApplicationError(f"the schema {name!r} is of format {self._schemas[name].format!r}, not {format_!r}")
        return self._schemas[name]

    # Schemas

    def _schema(self, schema: SchemaModel) -> SchemaDefinition:
        try:
            self._check(schema)
            return SchemaDefinition(
                type=schema.type,
                format=schema.format,
                promote=self._fields(schema),
                namespaces=schema.namespaces,
                body=schema.body,
                record=self._record(schema) if schema.format == "flat" else None,
                header=None if schema.header is None else self._record(schema.header),
                trailer=None if schema.trailer is None else self._record(schema.trailer),
                count=None if schema.trailer is None else schema.trailer.count,
                validate_with=self._files(schema.validate_, schema.format),
            )
        except ApplicationError as error:
            raise ApplicationError(f"schema {schema.type!r}: {error}") from error

    def _check(self, schema: SchemaModel) -> None:
        if schema.format != "flat" and (schema.columns or schema.header or schema.trailer):
            raise ApplicationError("`columns`, `header` and `trailer` are for flat files")
        if schema.format != "xml" and (schema.body is not None or schema.namespaces):
            raise ApplicationError("`body` and `namespaces` are for XML")
        if schema.format == "flat" and schema.validate_ is not None:
            raise ApplicationError("flat files have no schema to be validated with")
        if schema.format == "flat" and not schema.columns and (schema.header or schema.trailer):
            raise ApplicationError("with a header or a trailer, name the columns with `columns`")
        records = [("", schema), ("header ", schema.header), ("trailer ", schema.trailer)]
        for what, record in records if schema.format == "flat" else []:
            if record is not None and record.columns:
                _check_columns(what, record)
        for name, path in {**schema.promote, **schema.distinguished}.items():
            _check_path(schema, name, path)
        trailer = schema.trailer
        if trailer is not None and trailer.count is not None and trailer.count not in trailer.columns:
            raise ApplicationError(f"the trailer has no column {trailer.count!r} to count by")

    def _record(self, record: RecordModel) -> RecordDefinition:
        positions = tuple(record.columns.values()) if isinstance(record.columns, dict) else ()
        return RecordDefinition(
            columns=tuple(record.columns),
            positions=positions,
            delimiter=record.delimiter,
            quote=record.quote,
            promote=self._fields(record),
        )

    def _fields(self, record: RecordModel) -> dict[str, PromotedField]:
        promoted = {}
        for name, path in record.promote.items():
            if name not in self._registry.declared:
                meant = self._registry.suggest(name)
                hint = f"did you mean {meant!r}?" if meant else "declare it under `properties`"
                raise ApplicationError(f"it promotes {name!r}, which is not declared; {hint}")
            promoted[name] = PromotedField(
                type=self._registry.type_of(name), field=path, personal=name in self._personal
            )
        written = {
            name: PromotedField(type=self._type(name), field=path, distinguished=True, personal=name in self._personal)
            for name, path in record.distinguished.items()
        }
        both = sorted(promoted.keys() & written.keys())
        if both:
            raise ApplicationError(f"{both[0]!r} is promoted and distinguished; it can be one of them")
        return promoted | written

    def _type(self, name: str) -> PropertyType:
        return self._registry.type_of(name) if name in self._registry.declared else PropertyType.TEXT

    # Maps, and files that travel with a pipeline

    def _map(self, each: MapModel) -> MapDefinition:
        xslt = self._files(each.xslt, "xml")
        return MapDefinition(source=each.from_, target=each.to, xslt=xslt, function=each.function)

    def _files(self, name: str | None, format_: str) -> dict[str, str]:
        return {} if name is None else files_of(self._folder, name, format_)

    def _target(self, each: MapModel) -> SchemaDefinition:
        if each.to not in self._schemas:
            known = ", ".join(self._schemas) or "none"
            raise ApplicationError(f"a map makes {each.to!r}, which is not declared as a schema (declared: {known})")
        return self._schemas[each.to]


def _bare(schema: SchemaModel) -> SchemaDefinition:
    """In place of one that is wrong, so that what names it is not refused for that."""
    record = RecordDefinition(columns=tuple(schema.columns)) if schema.format == "flat" else None
    return SchemaDefinition(type=schema.type, format=schema.format, record=record)


def _check_path(schema: SchemaModel, name: str, path: str) -> None:
    try:
        if schema.format == "json":
            parse_path(path)
        elif schema.format == "xml":
            parse_xpath(path, schema.namespaces)
    except ApplicationError as error:
        raise ApplicationError(f"property {name!r}: {error}") from error


def _check_columns(what: str, record: RecordModel) -> None:
    if record.delimiter == record.quote or {record.delimiter, record.quote} & {"\n", "\r"}:
        raise ApplicationError(f"the {what}delimiter and the quote must differ, and be no line ends")
    names: Sequence[str] = list(record.columns)
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ApplicationError(f"the {what}column {repeated[0]!r} is there twice")
    for path in [*record.promote.values(), *record.distinguished.values()]:
        if path not in names:
            raise ApplicationError(f"there is no {what}column {path!r} (there are: {', '.join(names)})")
