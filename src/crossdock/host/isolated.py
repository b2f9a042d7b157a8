"""The isolated instance of a host: publishes requests, and gives each response to the one that waits for it here.

It claims nothing but the responses that only this process may take. A response that nobody waits for any more is
suspended, not lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event, Lock
from uuid import UUID, uuid4

from crossdock.errors import (
    CrossdockError,
    GivenUpError,
    NoAnswerError,
    TerminalError,
    TransientError,
    UnawaitedError,
)
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.host.publisher import Publisher
from crossdock.host.threads import Threads
from crossdock.host.token import new_token, told_of
from crossdock.message.message import Message
from crossdock.message.property import TOKEN
from crossdock.message.publication import Awaited, Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.lifeline import ISOLATED
from crossdock.messagebox.rows import Published, Reference
from crossdock.messagebox.settle import Complete, Suspend

_HUNG_UP = UnawaitedError("The client hung up before it had the response.")
_NOBODY = UnawaitedError("Nobody waits for this response any more: the time was over, or the client hung up.")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldResponse:
    """A response that was claimed for whoever waits; it is settled by saying what became of it."""

    isolated: IsolatedInstance
    instance: int
    reference: Reference

    @property
    def message(self) -> Message:
        return self.reference.message

    def sent(self) -> None:
        self.isolated.settle(self.instance, self.reference, None)

    def lost(self) -> None:
        self.isolated.settle(self.instance, self.reference, _HUNG_UP)


@dataclass(frozen=True, slots=True)
class _Done:
    """Somebody has stopped waiting; with the reference of the response, if there is one, and why it was lost, if so."""

    waiting: UUID | None
    instance: int = 0
    reference: Reference | None = None
    lost: TerminalError | None = None


class IsolatedInstance:
    """Works in threads of its own between `start` and `stop`; `request` is for event loops."""

    def __init__(
        self,
        agent: Agent,
        host_id: int,
        publisher: Publisher,
        services: Mapping[str, int],
        limits: HostLimits = DEFAULT_LIMITS,
    ) -> None:
        self._agent = agent
        self._limits = limits
        self._host_id = host_id
        self._publisher = publisher
        self.services = services
        self._lifeline = agent.queues.lifeline(host_id, ISOLATED)
        interval, _ = agent.queues.service_classes()[ISOLATED]
        self._polling = interval.total_seconds()
        self._lock = Lock()
        self._waiting: dict[UUID, asyncio.Future[HeldResponse]] = {}
        self._told: dict[str, UUID] = {}
        self._living = 0
        self._done: SimpleQueue[_Done | None] = SimpleQueue()
        self._stopping = Event()
        self._ready = Event()
        self._threads = Threads(f"isolated-{host_id}")
        self._keeping = self._threads.thread("keep", self._keep)
        self._settling = self._threads.thread("settle", self._settle_all)

    def start(self) -> None:
        """TransientError if the MessageBox is away: a request must not come before there is somebody to wait for it."""
        self._agent.subscriptions.correlate([TOKEN])
        self._hold()
        self._keeping.start()
        self._settling.start()

    def stop(self) -> None:
        self._stopping.set()
        self._keeping.join()
        self._fail_all("This process is stopping.")
        self._done.put(None)
        self._settling.join()
        self._lifeline.end()

    def check(self) -> None:
        """Raise what ended the instance, if anything did."""
        self._threads.check("An isolated instance")

    async def request(self, publication: Publication, service: str, *, timeout: float) -> HeldResponse:
        """Publish a request together with the subscription for its response; TimeoutError if it takes too long."""
        if not self._ready.is_set() or service not in self.services:
            raise TransientError("The MessageBox cannot be reached.")
        waiting = uuid4()
        token = new_token()
        future: asyncio.Future[HeldResponse] = asyncio.get_running_loop().create_future()
        with self._lock:
            instance = self._living
            self._waiting[waiting] = future
            self._told[told_of(token)] = waiting
        asking = self._awaiting(publication, service, waiting, token, instance)
        publishing = self._publisher.submit(asking)
        response: HeldResponse | None = None
        try:
            async with asyncio.timeout(timeout):
                published = await asyncio.wrap_future(publishing)
                refused = [why for message in publication.messages if (why := published.refused.get(message.id))]
                if refused:
                    raise NoAnswerError(refused[0])
                response = await future
            return response
        finally:
            with self._lock:
                self._waiting.pop(waiting, None)
                self._told.pop(told_of(token), None)
            if not future.cancel() and response is None and not future.cancelled() and future.exception() is None:
                future.result().lost()
            publishing.cancel()  # what has not begun is not published, nor kept, for somebody who is gone
            # Not before it is published: what is to be ended must be there.
            publishing.add_done_callback(lambda done: self._end(waiting, done))

    def _end(self, waiting: UUID, published: Future[Published]) -> None:
        # Also if that failed: what failed may be hearing that it is committed.
        if not published.cancelled():
            self._done.put(_Done(waiting))

    def _awaiting(
        self, publication: Publication, service: str, waiting: UUID, token: str, instance: int
    ) -> Publication:
        """The token is only written into the request: promoted, it would be taken for its own response."""
        [message] = publication.messages
        asking = Message(message.id, message.context.write(TOKEN, token), message.parts)
        awaits = Awaited(waiting, self.services[service], self._host_id, {TOKEN: token}, instance)
        return replace(publication, messages=(asking,), awaits=awaits)

    # Responses

    def _keep(self) -> None:
        """Hold the lifeline, and hand out responses as they arrive."""
        next_upkeep = 0.0
        while not self._stopping.is_set():
            try:
                self._hold()
                if time.monotonic() >= next_upkeep:
                    self._lifeline.check("running", len(self._waiting))
                    next_upkeep = time.monotonic() + self._limits.upkeep_seconds
                if not self._hand_out():
                    self._lifeline.wait(self._polling)
                    self._give_up()
            except TransientError as error:
                self._agent.outage.waits(error)
                self._lifeline.end()  # the answer to a claim may be what was lost: what it took comes free
                self._stopping.wait(self._limits.reconnect_seconds)

    def _hold(self) -> None:
        """A new life after a lost connection: what was waited for in the one before will not come."""
        self._lifeline.hold()
        if self._lifeline.instance != self._living:
            self._fail_all("The MessageBox was away; whether the request was carried out is not known.")
            self._ready.set()

    def _hand_out(self) -> int:
        instance = self._living
        references = self._agent.queues.dequeue_responses(self._host_id, instance, limit=self._limits.claim_size)
        for reference in references:
            with self._lock:
                future = None if reference.instance is None else self._waiting.pop(reference.instance, None)
            if reference.undeliverable is not None:
                self.settle(instance, reference, reference.undeliverable)
                if future is not None:
                    _tell(future, GivenUpError(str(reference.undeliverable)))
            elif future is None:
                self.settle(instance, reference, _NOBODY)
            else:
                response = HeldResponse(self, instance, reference)
                _tell(future, response, otherwise=response.lost)
        return len(references)

    def _give_up(self) -> None:
        """Tell those whose request has failed for good; what is told may be for another process."""
        told = set(self._lifeline.given_up())
        with self._lock:
            known = [self._told[each] for each in told if each in self._told]
            mine = [waiting for waiting in known if waiting in self._waiting]
            futures = [self._waiting.pop(waiting) for waiting in mine]
        for future in futures:
            _tell(future, GivenUpError("The send port that was to answer has given up; the request is kept there."))

    def _fail_all(self, reason: str) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            self._living = self._lifeline.instance
        for future in waiting.values():
            _tell(future, TransientError(reason))

    # Settling

    def settle(self, instance: int, reference: Reference, lost: TerminalError | None) -> None:
        """The response is with the client, or lost for a reason."""
        self._done.put(_Done(None, instance, reference, lost))

    def _settle_all(self) -> None:
        while (first := self._done.get()) is not None:
            together = [first]
            while len(together) < self._limits.claim_size and not self._done.empty():
                following = self._done.get()
                if following is None:
                    self._done.put(None)
                    break
                together.append(following)
            self._settle(together)

    def _settle(self, together: list[_Done]) -> None:
        """Keep trying, unless we have to stop: then it is suspended when this process is found dead."""
        while True:
            try:
                self._record(together)
                return
            except TransientError as error:
                self._agent.outage.waits(error)
                if self._stopping.wait(self._limits.reconnect_seconds):
                    logger.warning("What became of %d responses is not recorded: %s", len(together), error)
                    return

    def _record(self, together: list[_Done]) -> None:
        outcomes: defaultdict[int, list[Complete | Suspend]] = defaultdict(list)
        for each in together:
            if each.reference is not None and each.lost is None:
                outcomes[each.instance].append(Complete(each.reference))
            elif each.reference is not None and each.lost is not None:
                lost = Suspend(each.reference, str(each.lost), kind="response", code=each.lost.code)
                outcomes[each.instance].append(lost)
        for instance, mine in outcomes.items():
            self._agent.settle(instance, mine)
        ended = [each.waiting for each in together if each.waiting is not None]
        if ended:
            self._agent.subscriptions.end_instance(*ended, host_id=self._host_id)


def _tell(
    future: asyncio.Future[HeldResponse],
    result: HeldResponse | CrossdockError,
    *,
    otherwise: Callable[[], None] | None = None,
) -> None:
    """From another thread; if nobody waits any more, `otherwise` is called."""

    def told() -> None:
        if future.done():
            if otherwise is not None:
                otherwise()
        elif isinstance(result, CrossdockError):
            future.set_exception(result)
        else:
            future.set_result(result)

    try:
        future.get_loop().call_soon_threadsafe(told)
    except RuntimeError:  # its loop has ended
        if otherwise is not None:
            otherwise()
