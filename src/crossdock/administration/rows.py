"""Rows for people, made of the rows that the MessageBox gives."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

Made = TypeVar("Made")


def row_of(made: type[Made], source: object, **others: Any) -> Made:
    """A value of this dataclass with the fields of the same names, and with these others."""
    names = [each.name for each in fields(made) if each.name not in others]  # type: ignore[arg-type]
    return made(**{name: getattr(source, name) for name in names}, **others)
