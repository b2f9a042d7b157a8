"""The instance of a host that runs orchestrations: claims what they are given, looks for timers, and does their steps.

It lives as every host instance does, by a lock. A few threads claim, run and commit; no transaction is open while code
runs. Two threads never have the same instance in hand.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from threading import Event, Lock
from uuid import UUID

from crossdock.errors import TransientError
from crossdock.host.garbage import spare_what_is_loaded
from crossdock.host.in_hand import InHand
from crossdock.host.limits import DEFAULT_LIMITS, HostLimits
from crossdock.host.threads import Threads
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.instance_rows import DueTimer
from crossdock.messagebox.queues import FEW, ORCHESTRATIONS
from crossdock.messagebox.rows import Reference
from crossdock.orchestration.prepare import UNUSABLE_SECONDS
from crossdock.orchestration.work import Worker

ORCHESTRATION = "orchestration"
STEPS_TOGETHER = 200
_IDLE_SECONDS = 30.0
_AGAIN_SECONDS = 0.02

logger = logging.getLogger(__name__)


class Engine:
    """Works in threads of its own between `start` and `stop`; `stop` finishes what has begun."""

    def __init__(self, agent: Agent, host_id: int, *, limits: HostLimits = DEFAULT_LIMITS) -> None:
        self._agent = agent
        self._host_id = host_id
        self._limits = limits
        self._lifeline = agent.queues.lifeline(host_id, ORCHESTRATION)
        self._threads = Threads(f"orchestrations-{host_id}")
        self._stopping = Event()
        self._broken = Event()
        self._calls = InHand()
        self._shared = InstancesInHand()
        self._worker = Worker(agent, host_id, limits, self._persist)
        interval, threads = agent.queues.service_classes()[ORCHESTRATION]
        self._polling = interval.total_seconds()
        self._timers = _Timers(agent, host_id, self._polling)
        self._keeper = self._threads.thread("keep", self._keep)
        self._workers = [self._threads.thread(f"step-{number}", self._work) for number in range(max(1, threads))]

    def start(self) -> None:
        spare_what_is_loaded()
        self._keeper.start()

    def stop(self) -> None:
        self._stopping.set()
        self._calls.wake_all(len(self._workers))
        self._keeper.join()
        self._lifeline.stopping()
        self._worker.forget()
        self._lifeline.end()

    def check(self) -> None:
        """Raise what ended the engine, if anything did."""
        self._threads.check("An instance that runs orchestrations")

    # Living

    def _keep(self) -> None:
        started = False
        upkeep_at = 0.0
        while not self._stopping.is_set():
            try:
                # The answer to a claim may be lost: what it took comes free with the old life.
                if self._broken.is_set():
                    self._lifeline.end()
                    self._broken.clear()
                self._lifeline.hold()
                if time.monotonic() >= upkeep_at:
                    self._upkeep()  # first of all: what the dead had in hand may have ended them
                    upkeep_at = time.monotonic() + self._limits.upkeep_seconds
                if not started:
                    for thread in self._workers:
                        thread.start()
                    started = True
                if self._lifeline.wait(self._polling):
                    self._timers.look()
                    self._calls.wake()
            except TransientError as error:
                self._agent.outage.waits(error)
                self._stopping.wait(self._limits.reconnect_seconds)
        for thread in self._workers if started else ():
            thread.join()

    def _upkeep(self) -> None:
        queues = self._agent.queues
        self._lifeline.check("running", self._calls.count)
        try:
            brought_back = queues.release_dead(self._host_id) if queues.any_dead(self._host_id) else 0
            brought_back += queues.requeue_due(self._host_id)
        except TransientError:
            raise
        except Exception:  # a row that it stumbles over keeps nothing else waiting
            logger.exception("What is due, or was left by the dead, is not brought back")
            return
        if brought_back:
            self._calls.wake()

    # Working

    def _work(self) -> None:
        size, worked_at = FEW, time.monotonic()
        while not self._stopping.is_set():
            if self._broken.is_set():
                self._stopping.wait(self._limits.reconnect_seconds)
                continue
            try:
                host_instance = self._lifeline.instance
                due = self._timers.due()
                references = self._agent.queues.dequeue(
                    self._host_id, host_instance, limit=size, hurry=size == FEW, subqueue=ORCHESTRATIONS
                )
            except TransientError as error:
                self._agent.outage.waits(error)
                self._broken.set()
                continue
            if references or due:
                worked_at = time.monotonic()
                self._do(host_instance, references, due)
            elif time.monotonic() - worked_at > _IDLE_SECONDS:
                self._worker.forget()
                worked_at = time.monotonic()
            size = STEPS_TOGETHER if len(references) >= size else FEW
            if size == FEW and not due:
                self._calls.wait(0.0 if references else self._timers.pause)

    def _do(self, host_instance: int, references: Sequence[Reference], due: Sequence[DueTimer]) -> None:
        self._calls.hold(len(references))
        try:
            mine, timers = self._shared.take(host_instance, references, due)
            batches = [(host_instance, mine, timers)] if mine or timers else []
            while batches:
                life, mine, timers = batches.pop()
                try:
                    self._worker.work(life, mine, timers)
                except TransientError as error:
                    self._agent.outage.waits(error)
                except Exception as error:
                    logger.exception("Steps of orchestrations failed in an unexpected way: %r", error)
                    self._broken.set()
                batches += [(life, more, []) for life, more in self._shared.leave(mine, timers).items()]
        finally:
            self._calls.release(len(references))

    def _persist(self, record: Callable[[], object]) -> bool:
        """What was claimed must be settled: keep trying while PostgreSQL is away, unless we have to stop."""
        while True:
            try:
                record()
                return True
            except TransientError as error:
                self._agent.outage.waits(error)
                if self._stopping.wait(self._limits.reconnect_seconds):
                    return False


class InstancesInHand:
    """Which instances threads have in hand; what comes for one meanwhile is for the thread that has it.

    Each reference is kept with the life of the engine that claimed it: only in its name can the reference be settled,
    and the thread may have begun in the life before.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: dict[UUID, list[tuple[int, Reference]]] = {}

    def take(
        self, host_instance: int, references: Sequence[Reference], due: Sequence[DueTimer]
    ) -> tuple[list[Reference], list[DueTimer]]:
        """Those that nobody has in hand."""
        mine: list[Reference] = []
        with self._lock:
            taken: set[UUID] = set()
            for each in references:
                if each.instance is None:
                    mine.append(each)
                elif each.instance in taken or each.instance not in self._held:
                    taken.add(each.instance)
                    mine.append(each)
                else:
                    self._held[each.instance].append((host_instance, each))
            timers = [each for each in due if each.instance in taken or each.instance not in self._held]
            for instance in taken | {each.instance for each in timers}:
                self._held[instance] = []
        return mine, timers

    def leave(self, references: Sequence[Reference], due: Sequence[DueTimer]) -> dict[int, list[Reference]]:
        """These are done; gives what has come for their instances, by the life that claimed it. Those stay in hand."""
        more: defaultdict[int, list[Reference]] = defaultdict(list)
        with self._lock:
            for instance in {each.instance for each in references if each.instance} | {each.instance for each in due}:
                came = self._held.get(instance)
                if came:
                    first, _ = came[0]  # an instance is in one batch at a time
                    more[first] += [each for life, each in came if life == first]
                    self._held[instance] = [(life, each) for life, each in came if life != first]
                else:
                    self._held.pop(instance, None)
        return more


class _Timers:
    """When to look for timers: by the interval of the service class, or when the next one is due."""

    def __init__(self, agent: Agent, host_id: int, polling: float) -> None:
        self._agent = agent
        self._host_id = host_id
        self._polling = polling
        self._lock = Lock()
        self._look_at = 0.0
        self._seen: dict[UUID, tuple[float, float]] = {}  # when to look at it again, and how long that was

    def look(self) -> None:
        """Something has happened: perhaps somebody was woken."""
        self._look_at = 0.0

    @property
    def pause(self) -> float:
        return max(0.001, min(self._polling, self._look_at - time.monotonic()))

    def due(self) -> list[DueTimer]:
        """For one thread at a time; a timer that is seen again and again is left alone for a while."""
        if time.monotonic() < self._look_at or not self._lock.acquire(blocking=False):
            return []
        try:
            found = self._agent.instances.due(self._host_id, limit=STEPS_TOGETHER)
            now = time.monotonic()
            ready = [each for each in found if self._seen.get(each.instance, (0.0, 0.0))[0] <= now]
            if not found:
                self._seen.clear()
            if ready:
                self._look_at = 0.0
                for each in ready:
                    pause = min(UNUSABLE_SECONDS, max(_AGAIN_SECONDS, 2 * self._seen.get(each.instance, (0, 0))[1]))
                    self._seen[each.instance] = now + pause, pause
            else:
                next_due = self._agent.instances.next_due(self._host_id)
                self._look_at = now + min(self._polling, self._polling if next_due is None else max(next_due, 0.05))
            return ready
        finally:
            self._lock.release()
