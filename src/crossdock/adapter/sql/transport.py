"""The sql transport: rows of a database, and a statement for each message. Read `database.py` next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from crossdock.adapter.transport import Allowing, Options, Receiving, Sending, Transport, imported
from crossdock.message.message import Message

_Text = Annotated[str, Field(min_length=1)]
_Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class SqlReceiveOptions(Options):
    """`query` gives rows, `key` tells them apart, `done` marks one, `version` changes whenever a row does.

    A statement may take `timeout` seconds. A row of more than `maximum_size` bytes is left out.
    """

    query: _Text
    key: _Text
    done: _Text
    version: _Text | None = None
    limit: Annotated[int, Field(ge=1)] = 10_000
    timeout: _Seconds = 60
    maximum_size: Annotated[int, Field(ge=1_000, le=1_000_000_000)] = 8 * 1024 * 1024


class SqlSendOptions(Options):
    """`parameters` gives a parameter of the statement another source than its name. `timeout` as for receiving."""

    statement: _Text
    parameters: Mapping[str, _Text] = {}
    timeout: _Seconds = 60


def _holds(place: str, address: str, message: Message) -> bool:  # noqa: ARG001
    held: bool = imported("crossdock.adapter.sql.database:same_place")(address, place)
    return held


def _the_place(place: str, address: str) -> str:  # noqa: ARG001
    """What the message brings has chosen it, and is not used."""
    return place


SQL = Transport(
    name="sql",
    type="SQL",
    receive=Receiving(imported("crossdock.adapter.sql.receive:SqlReceiveAdapter"), SqlReceiveOptions),
    send=Sending(imported("crossdock.adapter.sql.send:SqlSendAdapter"), SqlSendOptions),
    allowing=Allowing(_holds, target=_the_place),
    printable=imported("crossdock.adapter.sql.database:printable_address"),
)
