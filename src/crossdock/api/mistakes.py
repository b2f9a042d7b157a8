"""Wrong credentials, by the address of the client: ten at once, then one each second."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from threading import Lock

_PER_SECOND, _AT_ONCE = 1.0, 10.0
_MOST_CLIENTS = 10_000


class Mistakes:
    """Threads may share it. A client with only wrong credentials does not keep out the others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._left: dict[str, tuple[float, float]] = {}  # network: (attempts left, when that was)

    def wait(self, client: str) -> float:
        """The seconds until this client may try again; zero if it may now."""
        with self._lock:
            return max(0.0, (1 - self._attempts(network_of(client))) / _PER_SECOND)

    def add(self, client: str) -> None:
        network = network_of(client)
        with self._lock:
            left = self._attempts(network) - 1
            self._left.pop(network, None)
            self._left[network] = (left, self._clock())  # at the end: the first has made none for long
            if len(self._left) > _MOST_CLIENTS:
                del self._left[next(iter(self._left))]

    def _attempts(self, network: str) -> float:
        left, when = self._left.get(network, (_AT_ONCE, self._clock()))
        return min(_AT_ONCE, left + (self._clock() - when) * _PER_SECOND)


def network_of(client: str) -> str:
    """Of an IPv6 address its /64, all of which one client has; any other as it is."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return client
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
