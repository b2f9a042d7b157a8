"""Takes lines over TCP: each line is a document, and is answered by a line once its messages are committed."""

from __future__ import annotations

import asyncio
import socket
from threading import Event, Thread

from crossdock.adapter.contract import Receiver, Response
from crossdock.errors import ApplicationError, CrossdockError, TransientError


class LineListener:
    """Listens on HOST:PORT. Answers `ok` and ids, or the response of a two-way port, or `error` and the reason."""

    answers = True

    def __init__(self, address: str, *, timeout: float = 60, longest: int = 1024 * 1024) -> None:
        self._host, _, port = address.rpartition(":")
        if not self._host or not port.isdigit():
            raise ApplicationError(f"{address!r} is no address to listen on: write HOST:PORT")
        self._port, self._timeout, self._longest = int(port), timeout, longest
        self._thread: Thread | None = None

    def start(self, receiver: Receiver) -> None:
        try:
            listening = socket.create_server((self._host, self._port))
        except (OSError, OverflowError) as error:
            raise TransientError(f"nobody can listen on {self._host}:{self._port}: {error}") from error
        self._receiver = receiver
        self._loop = asyncio.new_event_loop()
        self._clients: set[asyncio.Task[None]] = set()
        self._closing, self._closed = asyncio.Event(), Event()
        self._thread = Thread(target=self._run, args=[listening], daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None and not self._closed.is_set():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._closed.wait(5)

    def stop(self, seconds: float) -> None:
        self.close()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(lambda: [client.cancel() for client in self._clients])
                self._thread.join(5)

    def _run(self, listening: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._serve_client, sock=listening, limit=self._longest)
        await self._closing.wait()
        server.close()
        self._closed.set()
        await asyncio.sleep(0)  # a connection that was made just now has its task by then
        while self._clients:
            await asyncio.wait(self._clients)

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all is written
        try:
            while (line := await self._next_line(reader)) is not None:
                await self._answer(line, reader, writer)
        except (OSError, ValueError):
            pass  # the client is gone, or its line is too long
        finally:
            self._clients.discard(task)
            writer.close()

    async def _next_line(self, reader: asyncio.StreamReader) -> bytes | None:
        """None once nothing new is taken, or the client is gone: half a line is no line."""
        reading = asyncio.ensure_future(reader.readline())
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([reading, closing], return_when=asyncio.FIRST_COMPLETED)
            if closing.done() or not reading.result().endswith(b"\n"):
                return None
            return reading.result().rstrip(b"\r\n")
        finally:
            reading.cancel()
            closing.cancel()

    async def _answer(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        response: Response | None = None
        try:
            if self._receiver.two_way:
                response = await self._receiver.request(line, timeout=self._timeout)
                answer = response.body
            else:
                taken = await self._receiver.publish(line)
                answer = f"ok {' '.join(map(str, taken.messages))}".encode()
        except (CrossdockError, TimeoutError) as error:
            answer = f"error {error}".encode()
        except Exception:
            answer = b"error it could not be handled"
        try:
            if reader.at_eof():
                raise ConnectionResetError("the client has hung up")
            writer.write(answer.replace(b"\n", b" ") + b"\n")
            await writer.drain()
        except BaseException:
            if response is not None:
                response.lost()
            raise
        if response is not None:
            response.sent()
