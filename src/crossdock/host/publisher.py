"""Publishes what many ask for at the same time together: one transaction for all that has come in meanwhile.

All, as far as it is not too much for one transaction, by number or by bytes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock, Thread

from crossdock.errors import TransientError
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.message.publication import Express, Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Published
from crossdock.pipeline.limits import body_bytes, context_bytes

_STOPPED = "This process is stopping."
_MESSAGE_BYTES = 2_048  # what a message takes in memory besides its body


@dataclass(slots=True)
class _Asked:
    """What somebody wants to be published; nothing any more if that was cancelled before it had begun."""

    publication: Publication
    future: Future[Published]


class Publisher:
    """Works in a thread of its own between `start` and `stop`."""

    def __init__(self, agent: Agent, limits: HostLimits = DEFAULT_LIMITS) -> None:
        self._agent = agent
        self._limits = limits
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._unpublished: defaultdict[int | None, int] = defaultdict(int)  # bytes, by location
        self._changing = Lock()
        self._thread = Thread(target=self._run, name="publish", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def publish(self, publication: Publication) -> Published:
        """Done when it is committed; the counts are those of all that were published with it."""
        return self.submit(publication).result()

    async def publish_soon(self, publication: Publication) -> Published:
        """The same for event loops. Whoever is cancelled before it has begun publishes nothing."""
        return await asyncio.wrap_future(self.submit(publication))

    def submit(self, publication: Publication) -> Future[Published]:
        """The same for whoever asks later. It can be cancelled until it has begun, and is not kept then."""
        asked = _Asked(publication, Future())
        location = publication.cause.location_id if isinstance(publication.cause, Express) else None
        held = _size(publication) + _MESSAGE_BYTES * _messages(publication)
        self._hold(location, held)
        asked.future.add_done_callback(lambda _: self._hold(location, -held))
        asked.future.add_done_callback(lambda done: _forget(asked) if done.cancelled() else None)
        self._asked.put(asked)
        return asked.future

    def has_room(self, location: int) -> bool:
        """Whether no more of this location waits to be published than it leaves to the others.

        To be asked before more is made: a small body may hold very many messages, or be compressed.
        """
        with self._changing:
            mine = self._unpublished.get(location, 0)
            return mine == 0 or mine < self._limits.unpublished_bytes - sum(self._unpublished.values())

    def _hold(self, location: int | None, size: int) -> None:
        with self._changing:
            self._unpublished[location] += size
            if not self._unpublished[location]:
                del self._unpublished[location]

    def _run(self) -> None:
        limits = self._limits
        while (first := self._asked.get()) is not None:
            together, size, messages = [first], _size(first.publication), _messages(first.publication)
            while (
                len(together) < limits.published_together
                and size < limits.published_bytes
                and messages < limits.published_messages
                and not self._asked.empty()
            ):
                following = self._asked.get()
                if following is None:
                    self._asked.put(None)
                    break
                together.append(following)
                size += _size(following.publication)
                messages += _messages(following.publication)
            self._publish([each for each in together if each.future.set_running_or_notify_cancel()])
        while not self._asked.empty():
            left = self._asked.get()
            if left is not None and left.future.set_running_or_notify_cancel():
                left.future.set_exception(TransientError(_STOPPED))

    def _publish(self, together: Sequence[_Asked]) -> None:
        if not together:
            return
        try:
            published = self._agent.publish([each.publication for each in together])
        except Exception as error:
            if isinstance(error, TransientError) or len(together) == 1:
                for each in together:
                    each.future.set_exception(error)
            else:
                middle = len(together) // 2  # one of them is to blame, and only that one fails
                self._publish(together[:middle])
                self._publish(together[middle:])
            return
        for each in together:
            each.future.set_result(published)


def _forget(asked: _Asked) -> None:
    asked.publication = replace(asked.publication, messages=(), failures=())


def _size(publication: Publication) -> int:
    """The bytes of all its bodies, and of many contexts."""
    failed = [failure.message for failure in publication.failures]
    return body_bytes(publication.messages) + body_bytes(failed) + context_bytes(publication.messages)


def _messages(publication: Publication) -> int:
    return len(publication.messages) + len(publication.failures)
