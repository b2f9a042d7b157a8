"""Which connections a console has room for: those that ask something go before those that only stay open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from crossdock.api.mistakes import network_of
from crossdock.api.options import is_loopback

_SHARES = 2  # a client of the network has at most such a part of them


class Client(Protocol):
    """One connection."""

    @property
    def address(self) -> str: ...

    @property
    def is_answered(self) -> bool:
        """Whether a request of it is being answered."""

    def hang_up(self) -> None: ...


class Connections:
    """Of one server; only its event loop uses it. `proxies` are addresses that many people share."""

    def __init__(self, most: int, proxies: Collection[str] = ()) -> None:
        self._most = most
        self._proxies = proxies
        self._there: dict[Client, None] = {}  # in the order in which they came

    def take(self, client: Client) -> bool:
        """Whether there is room. Where there is none, the one that has been silent for longest makes some."""
        mine = self._others_of(client)
        crowded = self._there if len(self._there) >= self._most else mine if len(mine) >= self._most // _SHARES else ()
        if crowded:
            silent = next((each for each in crowded if not each.is_answered), None)
            if silent is None:
                return False
            self.let_go(silent)
            silent.hang_up()
        self._there[client] = None
        return True

    def let_go(self, client: Client) -> None:
        """It is closed."""
        self._there.pop(client, None)

    def _others_of(self, client: Client) -> Collection[Client]:
        """Those of the same client; none where many may have its address."""
        address = client.address
        if address in self._proxies or is_loopback(address) or len(self._there) < self._most // _SHARES:
            return ()
        network = network_of(address)
        return [each for each in self._there if network_of(each.address) == network]
