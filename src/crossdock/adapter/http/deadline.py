"""Connections to web servers, each request with a deadline of its own: a partner that sends one byte now and then
keeps every single read short, and would hold the thread for ever.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

_WRITTEN_AT_ONCE = 64 * 1024
_KEPT_SECONDS = 5.0


class Deadline(threading.local):
    """Until when the request of this thread has to be done, by the monotonic clock."""

    until = float("inf")

    def extend(self, seconds: float) -> None:
        """It ends so many seconds from now."""
        self.until = time.monotonic() + seconds

    def at_most(self, timeout: float | None) -> float:
        """The time that one step may take; raises httpcore.ReadTimeout once it is over."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the answer took too long")
        return left if timeout is None else min(left, timeout)


class DeadlineTransport(httpx.HTTPTransport):
    """Within the deadline, and with as many connections as there are threads."""

    def __init__(self, context: ssl.SSLContext, deadline: Deadline) -> None:
        super().__init__(verify=context)
        # httpx has no way to pass a network backend; all else of its transport is as we want it.
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=None,
            keepalive_expiry=_KEPT_SECONDS,
            network_backend=_Backend(deadline),
        )


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadline: Deadline) -> None:
        self._sockets = httpcore.SyncBackend()
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        limit = self._deadline.at_most(timeout)
        return _Stream(self._sockets.connect_tcp(host, port, limit, local_address, socket_options), self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.at_most(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITTEN_AT_ONCE):
            self._stream.write(buffer[start : start + _WRITTEN_AT_ONCE], self._deadline.at_most(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        limit = self._deadline.at_most(timeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, limit), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
