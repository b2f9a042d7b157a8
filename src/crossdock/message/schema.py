"""A schema: the type of a kind of document, its format, and which of its fields are promoted to which properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Schema:
    """`promote` maps a property to the path of the field it is taken from."""

    type: str
    format: Literal["json"]
    promote: Mapping[str, str]
