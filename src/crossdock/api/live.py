"""Numbers as they change: one reader for the whole process, however many browsers watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from crossdock.administration.open_box import OpenBox
from crossdock.administration.samples import Sample
from crossdock.errors import CrossdockError, OutageError

INTERVAL_SECONDS = 2.0
_SAMPLE = TypeAdapter(Sample)


class Live:
    """Reads a sample every two seconds while anybody watches. Only the event loop's own thread may use it."""

    def __init__(self, box: OpenBox, interval: float = INTERVAL_SECONDS) -> None:
        self._box = box
        self._interval = interval
        self._watching = 0
        self._closed = False
        self._newest: tuple[int, str] = (0, "")
        self._changed = asyncio.Condition()
        self._reader: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncGenerator[str, None]:
        """Events of a stream: `sample` with a sample as JSON, `away` with a sentence. The first comes at once."""
        self._watching += 1
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        seen = 0
        try:
            while not self._closed:
                async with self._changed:
                    await self._changed.wait_for(partial(self._is_news, seen))
                    seen, event = self._newest
                if not self._closed:
                    yield event
        finally:
            self._watching -= 1

    def _is_news(self, seen: int) -> bool:
        return self._closed or self._newest[0] != seen

    async def close(self) -> None:
        """Everybody who watches is let go."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader

    async def _read(self) -> None:
        while self._watching and not self._closed:
            event = await run_in_threadpool(self._sampled)
            async with self._changed:
                self._newest = (self._newest[0] + 1, event)
                self._changed.notify_all()
            await asyncio.sleep(self._interval)

    def _sampled(self) -> str:
        try:
            sample = self._box.service.sample()
        except CrossdockError as error:
            if isinstance(error, OutageError):
                self._box.revive()
            sentence = " ".join(str(error).split())
            return f"event: away\ndata: {sentence}\n\n"
        return f"event: sample\nid: {sample.number}\ndata: {_SAMPLE.dump_json(sample).decode()}\n\n"
