"""The sources of a location that partners send to: there are none to be listed or read."""

from __future__ import annotations

from crossdock.adapter.contract import Listing


class NothingToRead:
    """What the ledger still has of such a location is from an adapter that it had before, and counts as gone."""

    def list(self) -> Listing:
        return Listing(())

    def read(self, identity: bytes) -> None:  # noqa: ARG002
        return None

    def acknowledge(self, identity: bytes) -> None:
        """There is nothing to remove."""

    def name(self, identity: bytes) -> str:
        return identity.decode("utf-8", "backslashreplace")
