"""Lists by page: what a page holds, and the opaque text that asks for the next one."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

from crossdock.api.problems import ProblemError

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")]


class Page(BaseModel, Generic[Item]):
    """Some of a list. `next` asks for those that follow; null at the end."""

    items: Sequence[Item]
    next: str | None = Field(default=None, description="The cursor of the next page.")


def written(list_: str, place: int | str | None) -> str | None:
    """A cursor of this list."""
    if place is None:
        return None
    return base64.urlsafe_b64encode(json.dumps([list_, place]).encode()).decode().rstrip("=")


def read_text(list_: str, cursor: str | None) -> str | None:
    """The place in this list. ProblemError 400 for what is no cursor of it."""
    place = _read(list_, cursor)
    if place is None or isinstance(place, str):
        return place
    raise wrong_cursor()


def read_number(list_: str, cursor: str | None) -> int | None:
    """The same in a list whose places are numbers."""
    place = _read(list_, cursor)
    if place is None or (type(place) is int and 0 <= place < 2**63):
        return place
    raise wrong_cursor()


def _read(list_: str, cursor: str | None) -> object:
    if cursor is None:
        return None
    try:
        name, place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, TypeError, RecursionError) as error:
        raise wrong_cursor() from error
    if name != list_ or place is None:
        raise wrong_cursor()
    return place


def wrong_cursor() -> ProblemError:
    """For what is no cursor of the list that it was given to."""
    return ProblemError(400, "cursor-wrong", "The cursor is not one of this list. Take `next` of a page of it.")
