"""A host instance: claims references of its host, lets worker threads deliver them, settles the outcomes.

No transaction is open while a message is delivered. The instance lives while its own connection holds a lock; when it
dies, whoever looks next frees what it had claimed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Protocol, assert_never

from crossdock.errors import TransientError, UnavailableError
from crossdock.host.outcome import Complete, Outcome, Retry, Service, Suspend
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Reference

_WORKERS = 8
_BATCH = 200
_POLL_SECONDS = 0.5
_UPKEEP_SECONDS = 1.0
_RECONNECT_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Services(Protocol):
    """Finds the service a reference is for."""

    def __call__(self) -> Mapping[int, Service]: ...


def _now() -> datetime:
    return datetime.now(UTC)


class HostInstance:
    """Runs in a thread of its own between `start` and `stop`; `stop` lets what is claimed finish first."""

    def __init__(self, agent: Agent, host_id: int, services: Services, *, clock: Callable[[], datetime] = _now) -> None:
        self._agent = agent
        self._host_id = host_id
        self._services = services
        self._clock = clock
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"host-{host_id}", daemon=True)
        self._lifeline = agent.lifeline(host_id)
        self._problem: BaseException | None = None
        self._next_upkeep = datetime.min.replace(tzinfo=UTC)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what ended the instance, if anything did."""
        if self._problem is not None:
            raise UnavailableError(f"A host instance ended unexpectedly: {self._problem!r}") from self._problem

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._problem = error
        finally:
            self._lifeline.end()

    def _work(self) -> None:
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="deliver") as workers:
            while not self._stopping.is_set():
                try:
                    self._lifeline.hold()
                    self._upkeep()
                    if not self.work_once(workers):
                        self._lifeline.wait(_POLL_SECONDS)
                except TransientError as error:
                    logger.warning("Host instance waits for the MessageBox: %s", error)
                    # The answer to a claim may be what was lost: begin anew, and let the old claims come free.
                    self._lifeline.end()
                    self._stopping.wait(_RECONNECT_SECONDS)

    def work_once(self, workers: ThreadPoolExecutor) -> int:
        """Claim one batch, deliver it and settle it; gives how many references it had."""
        references = self._agent.dequeue(self._host_id, self._lifeline.instance, limit=_BATCH, now=self._clock())
        services = self._services() if references else {}
        outcomes = list(workers.map(lambda reference: self._deliver(services, reference), references))
        self._settle(references, outcomes)
        return len(references)

    def _deliver(self, services: Mapping[int, Service], reference: Reference) -> Outcome:
        service = services.get(reference.service_id)
        if service is None:
            return Suspend("The send port is no longer deployed.")
        try:
            return service.deliver(reference.message, attempt=reference.attempt, now=self._clock())
        except Exception as error:
            logger.exception("A delivery failed in an unexpected way")
            return Suspend(f"Unexpected {type(error).__name__}: {error}")

    def _settle(self, references: Sequence[Reference], outcomes: Sequence[Outcome]) -> None:
        """What was delivered must be recorded: keep trying while PostgreSQL is away, unless we have to stop."""
        while True:
            try:
                self._settle_now(references, outcomes)
                return
            except TransientError:
                if self._stopping.wait(_RECONNECT_SECONDS):
                    raise

    def _settle_now(self, references: Sequence[Reference], outcomes: Sequence[Outcome]) -> None:
        completed: list[int] = []
        retried: list[tuple[int, datetime, str]] = []
        suspended: list[tuple[int, str]] = []
        for reference, outcome in zip(references, outcomes, strict=True):
            match outcome:
                case Complete():
                    completed.append(reference.sequence)
                case Retry(at, reason):
                    retried.append((reference.sequence, at, reason))
                case Suspend(reason):
                    suspended.append((reference.sequence, reason))
                case _:
                    assert_never(outcome)
        now, instance = self._clock(), self._lifeline.instance
        self._agent.complete(self._host_id, instance, completed, now=now)
        self._agent.retry(self._host_id, instance, retried, now=now)
        self._agent.suspend(self._host_id, instance, suspended, now=now)

    def _upkeep(self) -> None:
        """Bring back what is due and what the dead left behind, now and then."""
        now = self._clock()
        if now >= self._next_upkeep:
            self._lifeline.check()
            self._agent.release_dead(self._host_id)
            self._agent.requeue_due(self._host_id, now=now)
            self._next_upkeep = datetime.fromtimestamp(now.timestamp() + _UPKEEP_SECONDS, UTC)
