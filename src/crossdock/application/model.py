"""The model of an application: what a YAML file says, and what the Python form builds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator
from pydantic_core import PydanticCustomError

from crossdock.message.property import PropertyType
from crossdock.pipeline.definition import Format
from crossdock.pipeline.json import Split

DEFAULT_HOST = "Default"
Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]


class Model(BaseModel):
    """Strict: an unknown key is an error, not a silent miss."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HostModel(Model):
    """A named set of queues. A message with labels is given only to a host that has them all."""

    name: Name
    labels: list[Name] = []


class RecordModel(Model):
    """How a line of a flat file is cut: `columns` are names, or names with their first position and length."""

    columns: list[str] | dict[str, tuple[PositiveInt, PositiveInt]] = Field(default=[])
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    quote: str = Field(default='"', min_length=1, max_length=1)
    promote: dict[str, str] = {}
    distinguished: dict[str, str] = {}


class TrailerModel(RecordModel):
    """`count` is the column that says how many lines came before."""

    count: str | None = None


class SchemaModel(RecordModel):
    """A kind of document; `promote` maps a property to the path of its field, `distinguished` a name that is written.

    Of an XML envelope `body` is the path of the element whose children are the messages. `validate` names an XSD or a
    JSON Schema. Flat files have `columns`, or name them in their first line.
    """

    type: str = Field(min_length=1)
    format: Format
    namespaces: dict[str, str] = {}
    body: str | None = None
    header: RecordModel | None = None
    trailer: TrailerModel | None = None
    validate_: str | None = Field(default=None, alias="validate")


class PipelineModel(Model):
    """A pipeline of one's own: stages in order, each a built-in name or a function `module:name`."""

    name: Name
    decode: list[str] = []
    charset: str | None = None
    disassemble: str
    components: list[str] = []


class LocationModel(Model):
    """Where a receive port finds its sources. `pipeline`: json, xml, flat, passthrough, or one that is declared."""

    name: Name
    adapter: str = Field(min_length=1)
    address: str = Field(min_length=1)
    options: dict[str, Any] = {}
    pipeline: str = Field(min_length=1)
    schema_: str | list[str] | None = Field(default=None, alias="schema")
    decode: list[str] = []
    charset: str | None = None
    split: Split | None = None
    interchange: Literal["recoverable", "standard"] = "recoverable"
    host: Name = DEFAULT_HOST
    labels: list[Name] = []


class MapModel(Model):
    """Turns documents of type `from` into type `to`, by an XSLT file or a function `module:name`."""

    from_: str = Field(alias="from", min_length=1)
    to: str | None = None
    xslt: str | None = None
    function: str | None = None

    @model_validator(mode="after")
    def _one_way(self) -> MapModel:
        if (self.xslt is None) == (self.function is None):
            raise PydanticCustomError("map", "A map has either `xslt` or `function`")
        return self


class ReceivePortModel(Model):
    """A port is named in every message it receives; its locations do the receiving.

    `failed_messages: route` publishes what fails with `ErrorReport.*` promoted, instead of suspending it.
    """

    name: Name
    locations: list[LocationModel] = Field(min_length=1)
    maps: list[MapModel] = []
    failed_messages: Literal["suspend", "route"] = "suspend"

    @model_validator(mode="before")
    @classmethod
    def _name_locations(cls, data: Any) -> Any:
        """A location without a name is called after its port and adapter."""
        if not isinstance(data, dict) or not isinstance(data.get("locations"), list):
            return data
        named = [
            {"name": f"{data.get('name')}.{location.get('adapter')}", **location}
            if isinstance(location, dict)
            else location
            for location in data["locations"]
        ]
        return {**data, "locations": named}


class SendPortModel(Model):
    """A filter, and where matching messages go. The filter is text, or a list of groups of predicates."""

    name: Name
    adapter: Literal["file"]
    address: str = Field(min_length=1)
    filter: str | list[list[dict[str, Any]]] | None = None
    host: Name = DEFAULT_HOST
    priority: int = Field(default=5, ge=1, le=10)
    ordered: bool = False

    @field_validator("filter", mode="before")
    @classmethod
    def _is_text_or_groups(cls, value: Any) -> Any:
        groups = isinstance(value, list) and all(
            isinstance(group, list) and all(isinstance(predicate, dict) for predicate in group) for group in value
        )
        if value is None or isinstance(value, str) or groups:
            return value
        raise PydanticCustomError(
            "filter", "A filter is text, or a list of groups, each a list of {{property, operator, value}}"
        )


class ApplicationModel(Model):
    """Everything that is deployed together."""

    application: Name
    hosts: list[HostModel] = []
    properties: dict[str, PropertyType] = {}
    schemas: list[SchemaModel] = []
    pipelines: list[PipelineModel] = []
    receive_ports: list[ReceivePortModel] = []
    send_ports: list[SendPortModel] = []
