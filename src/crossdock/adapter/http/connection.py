"""One connection: uvicorn's, with deadlines for what a client can hold back, no more than its share of the event loop,
and refusals that say why.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import h11
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from crossdock.adapter.http.guard import failure

logger = logging.getLogger(__name__)

_EVENTS_IN_A_TURN = 64
_OTHER_FILES = 512  # descriptors left to the rest of the process
_MANY_FILES = 65536


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

    def __init__(self, config: Config, state: ServerState, limits: Limits, ended: Callable[[], None]) -> None:
        super().__init__(config, state, {"client": self}, asyncio.get_running_loop())
        assert config.h11_max_incomplete_event_size is not None
        self.conn: _PacedEvents = _PacedEvents(config.h11_max_incomplete_event_size, self._rest)
        self.logger = logging.getLogger(f"{__name__}.uvicorn")
        self.access_log = False
        self.timeout_keep_alive = limits.idle_seconds  # type: ignore[assignment]
        self.flush_seconds = limits.flush_seconds
        self._limits = limits
        self._ended = ended
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
        self._ended()
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
            self.cycle.waiting_for_100_continue = False
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
    """Says `enough` after so many events: a client can put tens of thousands of chunks into what is read at once.

    Refuses requests whose end a proxy before us may see elsewhere, and then take the rest for another request.
    """

    def __init__(self, head_bytes: int, enough: Callable[[], None]) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self.left = _EVENTS_IN_A_TURN
        self._enough = enough
        self._is_chunked = False
        self._recent = b""
        self._has_bare_cr = False

    def receive_data(self, data: bytes) -> None:
        """Keeps what h11 has not looked at yet, and the end of what it has."""
        waiting, _ = self.trailing_data
        self._recent = self._recent[-len(waiting) - len(_END_OF_CHUNKS) :] + data
        self._has_bare_cr = self._has_bare_cr or _BARE_CR.search(self._recent) is not None
        super().receive_data(data)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.left == 0:
            self._enough()
            return h11.NEED_DATA
        self.left -= 1
        if self.their_state is not h11.IDLE:
            return self._next_of_body()
        before, _ = self.trailing_data
        event = super().next_event()
        if isinstance(event, h11.Request):
            rest, _ = self.trailing_data
            _refuse_ambiguous(event, before[: len(before) - len(rest)])
            self._is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        return event

    def _next_of_body(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """After the last chunk comes an empty line: no headers, which nobody needs, and no line end without its CR."""
        event = self._checked_chunk() if self._has_bare_cr and self._is_chunked else super().next_event()
        if isinstance(event, h11.EndOfMessage) and self._is_chunked:
            rest, _ = self.trailing_data
            if event.headers or not self._recent[: len(self._recent) - len(rest)].endswith(_END_OF_CHUNKS):
                raise _ambiguous()
        return event

    def _checked_chunk(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """h11 takes a CR in the line before a chunk, which others take for the end of that line."""
        before, _ = self.trailing_data
        event = super().next_event()
        rest, _ = self.trailing_data
        content = len(event.data) if isinstance(event, h11.Data) else 0
        if _BARE_CR.search(before[: len(before) - len(rest) - content]):
            raise _ambiguous()
        return event


_BARE_CR = re.compile(rb"\r(?=[^\n])")
# A line that goes on in the next one, and a line end without its CR: h11 takes both, others do not.
_FOLDED_OR_BARE = re.compile(rb"\n[ \t]|(?<!\r)\n")
_END_OF_CHUNKS = b"\r\n\r\n"
_LENGTHS = re.compile(rb"\ncontent-length:[^\r]*", re.IGNORECASE)


def _refuse_ambiguous(request: h11.Request, head: bytes) -> None:
    """By the head as it was sent: h11 has made one of lengths that are alike, and lets chunks win over a length."""
    lengths = _LENGTHS.findall(head)
    chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    if (
        _FOLDED_OR_BARE.search(head)
        or len(lengths) > 1
        or any(b"," in length for length in lengths)
        or (chunked and (lengths or request.http_version < b"1.1"))
    ):
        raise _ambiguous()


def _ambiguous() -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError("the end of the request is ambiguous", error_status_hint=400)


class _PacedFlow(FlowControl):
    """Reads nothing while the connection rests, though the application has room for more."""

    is_resting = False

    def resume_reading(self) -> None:
        if not self.is_resting:
            super().resume_reading()


def files_for(connections: int) -> int:
    """How many connections the limit of open files allows, after raising it where it is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < connections + _OTHER_FILES:
        wanted = _MANY_FILES if hard == resource.RLIM_INFINITY else hard
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == resource.RLIM_INFINITY else max(16, soft - _OTHER_FILES)
