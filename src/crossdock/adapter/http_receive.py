"""The http transport of receive locations, as a receive adapter: nothing is there to be listed, it is sent to us."""

from __future__ import annotations

from crossdock.adapter.contract import Listing
from crossdock.adapter.http_address import parse_address
from crossdock.adapter.http_guard import HttpOptions
from crossdock.errors import ApplicationError


class HttpReceiveAdapter:
    """Says where to listen, and for what."""

    def __init__(self, address: str, options: HttpOptions) -> None:
        self.address = parse_address(address)
        self.options = options
        if (self.address.scheme == "https") != (options.certificate is not None):
            raise ApplicationError("an https address needs the option 'certificate', and an http address has none")

    def list(self) -> Listing:
        return Listing(())

    def read(self, identity: bytes) -> None:  # noqa: ARG002
        return None

    def acknowledge(self, identity: bytes) -> None:
        """There is nothing to remove."""

    def name(self, identity: bytes) -> str:
        return identity.decode("utf-8", "replace")
