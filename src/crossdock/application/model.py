"""The model of an application: what a YAML file says, and what the Python form builds."""

from __future__ import annotations

import re
from datetime import time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from crossdock.application.problems import Lines
from crossdock.message.property import PropertyType
from crossdock.pipeline.definition import Format
from crossdock.pipeline.json import Split

DEFAULT_HOST = "Default"
# An index row of PostgreSQL has 2,704 bytes: room for two names of four bytes a character, as of a port in a group.
NAME_LIMIT = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _name(text: str) -> str:
    if not 1 <= len(text) <= NAME_LIMIT or _CONTROL.search(text):
        raise PydanticCustomError(
            "name", "A name has 1 to {most} characters, and none of them is a control character", {"most": NAME_LIMIT}
        )
    return text


Name = Annotated[str, AfterValidator(_name)]


class Model(BaseModel):
    """Strict: an unknown key is an error, not a silent miss."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# What is tracked: nothing, what happens, or the bodies too.
Track = Literal["off", "events", "bodies"]


class PropertyModel(Model):
    """The type of a property. The values of a `personal` one are kept apart in the track."""

    type: PropertyType
    personal: bool = False

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_type_alone(cls, data: Any) -> Any:
        return {"type": data} if isinstance(data, str) else data


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


class SendPipelineModel(Model):
    """What a send port does with a body before it goes out: `assemble` is json, xml, flat or passthrough.

    `schema` names the schema by whose columns `flat` writes lines; `declaration` is for XML.
    """

    assemble: str = "passthrough"
    declaration: bool = False
    schema_: str | None = Field(default=None, alias="schema")
    components: list[str] = []
    encode: list[str] = []
    charset: str | None = None


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
    track: Track | None = None


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

    `failed_messages: route` publishes what fails with `ErrorReport.*` promoted, instead of suspending it. A `two_way`
    port gives an answer: `response` and `response_maps` are what is done with it before it goes out.
    """

    name: Name
    locations: list[LocationModel] = Field(min_length=1)
    maps: list[MapModel] = []
    failed_messages: Literal["suspend", "route"] = "suspend"
    two_way: bool = False
    response: SendPipelineModel | None = None
    response_maps: list[MapModel] = []

    @model_validator(mode="before")
    @classmethod
    def _name_locations(cls, data: Any) -> Any:
        """A location without a name is called after its port and adapter, which may be a class of one's own."""
        if not isinstance(data, dict) or not isinstance(data.get("locations"), list):
            return data
        named = [
            {"name": f"{data.get('name')}.{str(location.get('adapter')).rpartition(':')[2]}", **location}
            if isinstance(location, dict)
            else location
            for location in data["locations"]
        ]
        return {**data, "locations": named}


class RetryModel(Model):
    """How often a delivery is tried again, and how long is waited: in seconds, or as text such as `PT5M`."""

    count: int = Field(default=3, ge=0, le=10_000)
    interval: timedelta = Field(default=timedelta(minutes=5), ge=timedelta(0), le=timedelta(days=365))


class WindowModel(Model):
    """The hours in which a port sends, such as `from: "18:00"`, `to: "06:00"`, by the clock of `timezone`."""

    from_: time = Field(alias="from")
    to: time
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _is_a_window(self) -> WindowModel:
        if self.from_ == self.to:
            raise PydanticCustomError("window", "A service window that opens and closes at the same time is never open")
        if self.from_.tzinfo or self.to.tzinfo:
            raise PydanticCustomError("window", "Hours have no zone of their own; give `timezone`")
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise PydanticCustomError("window", "There is no such time zone") from error
        return self


class ResponseModel(Model):
    """What is done with the answer of a partner, as at a receive location."""

    pipeline: str = Field(default="passthrough", min_length=1)
    schema_: str | list[str] | None = Field(default=None, alias="schema")
    decode: list[str] = []
    charset: str | None = None
    split: Split | None = None
    maps: list[MapModel] = []


class FilteredModel(Model):
    """The filter is text, or a list of groups of predicates."""

    name: Name
    filter: str | list[list[dict[str, Any]]] | None = None

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


class AllowModel(Model):
    """A place that a message may name: the beginning of a URL, a folder, a database; and the options for it."""

    address: str = Field(pattern=r"^[^\x00-\x1f]+$")
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _may_be_an_address_alone(cls, data: Any) -> Any:
        return {"address": data} if isinstance(data, str) else data


class SendPortModel(FilteredModel):
    """A filter, and where matching messages go; a `dynamic` port takes adapter and address from the message.

    It sends to what `allow` names and nowhere else. With `response` it is two-way, and what the partner answers is
    published.
    """

    adapter: str | None = Field(default=None, min_length=1)
    address: str | None = Field(default=None, min_length=1)
    options: dict[str, Any] = {}
    dynamic: bool = False
    allow: list[AllowModel] = []
    host: Name = DEFAULT_HOST
    priority: int = Field(default=5, ge=1, le=10)
    ordered: bool = False
    stop_on_failure: bool = False
    retry: RetryModel = RetryModel()
    service_window: WindowModel | None = None
    in_flight: int | None = Field(default=None, ge=1, le=200)
    maps: list[MapModel] = []
    pipeline: SendPipelineModel | None = None
    response: ResponseModel | None = None
    failed_messages: Literal["suspend", "route"] = "suspend"
    track: Track | None = None

    @model_validator(mode="after")
    def _has_a_destination(self) -> SendPortModel:
        if self.dynamic and (self.adapter or self.address):
            raise PydanticCustomError("port", "A dynamic port takes `adapter` and `address` from the message")
        if not self.dynamic and (self.adapter is None or self.address is None):
            raise PydanticCustomError("port", "A send port needs `adapter` and `address`, or `dynamic: true`")
        if self.allow and not self.dynamic:
            raise PydanticCustomError("port", "`allow` is for dynamic ports")
        if self.stop_on_failure and not self.ordered:
            raise PydanticCustomError("port", "`stop_on_failure` is for ordered ports")
        return self


class SendPortGroupModel(FilteredModel):
    """Static one-way ports that are given messages together, as if each had the filter of the group too."""

    ports: list[Name] = Field(min_length=1)


class OrchestrationModel(Model):
    """A coroutine `module:name` beside the application; `bind` says what each of its ports stands for.

    That is a send port, a group, another orchestration, or `direct`: whoever subscribes. `maps` are those that the code
    names.
    """

    name: Name
    function: str = Field(min_length=1)
    bind: dict[Name, Name] = {}
    host: Name = DEFAULT_HOST
    maps: dict[Name, MapModel] = {}
    track: Track | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_named_after_its_function(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("function"), str):
            return data
        return {"name": data["function"].rpartition(":")[2], **data}


class ApplicationModel(Model):
    """Everything that is deployed together. `track` is for whatever has no `track` of its own."""

    application: Name
    track: Track = "events"
    hosts: list[HostModel] = []
    properties: dict[str, PropertyModel] = {}
    schemas: list[SchemaModel] = []
    pipelines: list[PipelineModel] = []
    receive_ports: list[ReceivePortModel] = []
    send_ports: list[SendPortModel] = []
    send_port_groups: list[SendPortGroupModel] = []
    orchestrations: list[OrchestrationModel] = []
    _lines: Lines = PrivateAttr(default_factory=dict)

    @property
    def lines(self) -> Lines:
        """Where in the file things are declared, as far as that is known."""
        return self._lines

    def at(self, lines: Lines) -> ApplicationModel:
        """The same, declared at these lines."""
        copy = self.model_copy()
        copy._lines = lines
        return copy

    @property
    def types(self) -> dict[str, PropertyType]:
        """The types of its properties."""
        return {name: declared.type for name, declared in self.properties.items()}

    @property
    def personal(self) -> list[str]:
        return [name for name, declared in self.properties.items() if declared.personal]
