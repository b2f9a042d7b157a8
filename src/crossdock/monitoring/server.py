"""Tells `/metrics` and `/health` to whoever asks, in threads of its own; nothing can be changed here."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socket import AF_INET6
from threading import BoundedSemaphore, Thread
from typing import Any, ClassVar
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from crossdock.errors import UnavailableError, UsageError
from crossdock.monitoring.collector import WatchCollector
from crossdock.monitoring.watch import Watch

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_AT_ONCE = 16
_PATIENCE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class MetricsServer:
    """Between `start` and `stop`, at `address`: `HOST:PORT`, or `[HOST]:PORT` for IPv6. Port 0 takes a free one."""

    def __init__(self, address: str, watch: Watch) -> None:
        self._watch = watch
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(WatchCollector(watch))
        ProcessCollector(registry=self._registry)
        host, port = parsed(address)
        listener = _Listener6 if ":" in host else _Listener
        try:
            self._server = listener((host, port), _handler(self))
        except OSError as error:
            raise UnavailableError(
                f"Metrics cannot be served at {address}: {error.strerror or error}. Give another --metrics HOST:PORT."
            ) from error
        self._thread = Thread(target=self._server.serve_forever, args=[0.2], name="metrics", daemon=True)

    @property
    def address(self) -> str:
        """Where it listens, as a URL without a path."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def start(self) -> None:
        self._watch.start()
        self._thread.start()
        logger.info("Metrics at %s/metrics, health at %s/health", self.address, self.address)
        if not _is_loopback(str(self._server.server_address[0])):
            logger.warning("Metrics at %s show names of ports to everybody who reaches it", self.address)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._watch.stop()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, type and body."""
        if path == "/metrics":
            return 200, _TEXT, generate_latest(self._registry)
        if path == "/health":
            health = self._watch.health()
            return 200 if health.healthy else 503, "application/json", json.dumps(asdict(health)).encode()
        return 404, "text/plain; charset=utf-8", b"There are /metrics and /health.\n"


def parsed(address: str) -> tuple[str, int]:
    """Host and port. Raises UsageError."""
    try:
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port is not None and parts.netloc == address and not parts.username:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise UsageError(f"--metrics takes HOST:PORT, such as 127.0.0.1:9464, and not {address!r}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Listener(ThreadingHTTPServer):
    """A few at once; who comes when there are too many is turned away."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *given: Any) -> None:
        self._room = BoundedSemaphore(_AT_ONCE)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        logger.debug("A request for metrics failed", exc_info=True)


class _Listener6(_Listener):
    address_family = AF_INET6


def _handler(server: MetricsServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float] = _PATIENCE_SECONDS
        server_version = "crossdock"
        sys_version = ""

        def do_GET(self) -> None:
            self._tell(with_body=True)

        def do_HEAD(self) -> None:
            self._tell(with_body=False)

        def _tell(self, *, with_body: bool) -> None:
            status, type_, body = server.answer(self.path.partition("?")[0])
            self.send_response(status)
            for name, value in (("Content-Type", type_), ("Content-Length", str(len(body))), *_HARMLESS):
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                with suppress(OSError):  # whoever asked has left
                    self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Who asks is not logged: a scrape every few seconds would be all there is."""

    return Handler


_HARMLESS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
