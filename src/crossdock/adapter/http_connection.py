"""One connection: uvicorn's, with deadlines for what a client can hold back, no more than its share of the event loop,
and refusals that say why.
"""

from __future__ import annotations

import asyncio
import logging
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass

import h11
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from crossdock.adapter.http_guard import failure

logger = logging.getLogger(__name__)

_EVENTS_IN_A_TURN = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """What all clients of one server may hold. Seconds are those from the first byte of a head, of silence between
    two requests, and in which an answer has to be taken."""

    connections: int = 5000
    head_seconds: float = 10
    idle_seconds: float = 5
    flush_seconds: float = 60
    linger_seconds: float = 2


class Connection(H11Protocol):
    """Has at most one deadline of its own at a time; the one between two requests is uvicorn's."""

    flow: _PacedFlow

    def __init__(self, config: Config, state: ServerState, limits: Limits) -> None:
        super().__init__(config, state, {"client": self}, asyncio.get_running_loop())
        assert config.h11_max_incomplete_event_size is not None
        self.conn: _PacedEvents = _PacedEvents(config.h11_max_incomplete_event_size, self._rest)
        self.logger = logging.getLogger(f"{__name__}.uvicorn")
        self.access_log = False
        self.timeout_keep_alive = limits.idle_seconds  # type: ignore[assignment]
        self.flush_seconds = limits.flush_seconds
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._is_refused = False
        self._is_gone = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is awaited from now on."""
        super().connection_made(transport)
        self.flow = _PacedFlow(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # so that writing is paused until all is written
        self._abort_in(self._limits.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Whatever is not the body of a request that is being answered has a deadline from its first byte."""
        if not self._is_refused:
            if not self.flow.is_resting:
                self.conn.left = _EVENTS_IN_A_TURN
            super().data_received(data)
            self._await_more()

    def _rest(self) -> None:
        """There is more in what was read: others have their turn before it, and nothing is read meanwhile."""
        if not self.flow.is_resting:
            self.flow.pause_reading()
            self.flow.is_resting = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self.conn.left = _EVENTS_IN_A_TURN
        self.flow.is_resting = False
        self.flow.resume_reading()
        if not self._is_refused and not self.is_there():
            self.hang_up()  # there may be minutes of work in what has been sent
        elif not self._is_refused:
            self.handle_events()
            self._await_more()

    def _await_more(self) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        if self._is_answering():
            self._forget_deadline()
        else:
            self._abort_in(self._limits.head_seconds)

    def is_there(self) -> bool:
        """Whether the client has not hung up, as far as the kernel knows: the event loop hears of it later."""
        if self._is_gone or self.transport.is_closing():
            return False
        asked = select.poll()
        asked.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return not asked.poll(0)

    async def drained(self) -> bool:
        """Whether the client was there until all that was written had gone out, which is waited for.

        Gone out is what the kernel has taken, and with TLS the last 64 KB, which asyncio keeps for itself.
        """
        await self.flow.drain()
        return not (self._is_gone or self.transport.is_closing())

    def hang_up(self) -> None:
        """At once: what was not written is lost."""
        self._is_gone = True
        if self._is_answering():
            self.cycle.disconnected = True  # the application may return without having answered
        self.transport.abort()

    def shutdown(self) -> None:
        """Close now if no request is in progress, else after its answer."""
        if self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def eof_received(self) -> None:
        """Who says nothing more is not answered either."""
        self._is_gone = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._is_gone = True
        self._forget_deadline()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP. Called where h11's error is being handled, which knows the status."""
        error = sys.exc_info()[1]
        logger.debug("A request of %s is refused: %s", self.client, error or msg)
        self._is_refused = True
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # the answer has begun
            return
        self._write_refusal(error.error_status_hint if isinstance(error, h11.ProtocolError) else 400)
        self._linger()

    def _write_refusal(self, status: int) -> None:
        reason = "the head of the request is too large" if status == 431 else "this is not a valid HTTP request"
        answer = failure(status, reason)
        lines = {**answer.headers, "Content-Length": str(len(answer.body)), "Connection": "close"}
        start = h11.Response(status_code=status, headers=list(lines.items()), reason=STATUS_PHRASES[status])
        for event in (start, h11.Data(data=answer.body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _linger(self) -> None:
        """Close, but not at once: a client that still sends would get a reset in place of the answer."""
        if self._is_answering():
            self.cycle.disconnected = True  # it has its answer, from here
            self.cycle.message_event.set()
        self._forget_deadline()
        self._abort_in(self._limits.linger_seconds)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        cycle = getattr(self, "cycle", None)  # None before the first request, whatever uvicorn's types say
        return cycle is not None and not cycle.response_complete

    def _abort_in(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self.hang_up)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _unsupported_upgrade_warning(self) -> None:
        """A client may offer HTTP/2 or WebSocket: it is served without."""


class _PacedEvents(h11.Connection):
    """Says `enough` after so many events: a client can put tens of thousands of chunks into what is read at once."""

    def __init__(self, head_bytes: int, enough: Callable[[], None]) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self.left = _EVENTS_IN_A_TURN
        self._enough = enough

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.left == 0:
            self._enough()
            return h11.NEED_DATA
        self.left -= 1
        return super().next_event()


class _PacedFlow(FlowControl):
    """Reads nothing while the connection rests, though the application has room for more."""

    is_resting = False

    def resume_reading(self) -> None:
        if not self.is_resting:
            super().resume_reading()
