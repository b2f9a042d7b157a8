"""The places that a dynamic port allows. A message is not to be trusted with more than to choose among them.

Of a web server a place is the beginning of a URL, of files a folder, of databases a whole address: a message that names
such a database is sent to the address that is written here, with the user and the options that are written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from crossdock.adapter.contract import SendAdapter
from crossdock.adapter.registry import allowed_adapter, allowing
from crossdock.message.message import Message


class Allowed(BaseModel):
    """One such place: the adapter that reaches it, its address, and all options of the adapter there."""

    model_config = ConfigDict(frozen=True)
    kind: str
    address: str
    options: Mapping[str, Any] = {}

    def holds(self, kind: str, address: str, message: Message) -> bool:
        """Whether a message may go to the address that it brings. TerminalError: nobody may go to such an address."""
        return kind == self.kind and allowing(kind).holds(self.address, address, message)

    def target(self, address: str) -> str:
        """Where a message goes that brings this address, which the place holds."""
        return allowing(self.kind).target(self.address, address)

    def adapter(self, target: str, port: str) -> SendAdapter:
        """Raises ApplicationError if it cannot be made."""
        return allowed_adapter(self.kind, self.address, target, self.options, port)
