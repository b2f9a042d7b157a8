"""The model of an application: what a YAML file says, and what the Python form builds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from crossdock.message.property import PropertyType
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


class SchemaModel(Model):
    """A kind of document; `promote` maps a property to the path of its field."""

    type: str = Field(min_length=1)
    format: Literal["json"]
    promote: dict[str, str] = {}


class LocationModel(Model):
    """Where a receive port finds its sources."""

    name: Name
    adapter: Literal["file"]
    address: str = Field(min_length=1)
    pipeline: Literal["json"]
    schema_: str | None = Field(default=None, alias="schema")
    split: Split | None = None
    interchange: Literal["recoverable", "standard"] = "recoverable"
    host: Name = DEFAULT_HOST
    labels: list[Name] = []


class ReceivePortModel(Model):
    """A port is named in every message it receives; its locations do the receiving."""

    name: Name
    locations: list[LocationModel] = Field(min_length=1)

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
    receive_ports: list[ReceivePortModel] = []
    send_ports: list[SendPortModel] = []
