"""Runs the maintenance jobs in a thread, each at its own interval. Every process that runs hosts may do so."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import Event, Thread
from typing import Protocol

from crossdock.errors import CrossdockError, OutageError
from crossdock.maintenance.compaction import Compact
from crossdock.maintenance.counts import FoldCounts
from crossdock.maintenance.dead_processes import ReleaseDead
from crossdock.maintenance.references import CleanReferences
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.maintenance.samples import SAMPLE_SECONDS, TakeSample
from crossdock.maintenance.statistics import ReportStatistics
from crossdock.maintenance.suspended import PurgeOriginals, PurgeSuspended
from crossdock.maintenance.tracking import KeepTrack, PackTrack
from crossdock.messagebox.agent import Agent
from crossdock.settings import KEEP_TRACK

logger = logging.getLogger(__name__)


class Job(Protocol):
    """One duty, done once; it may be done again, and by several processes at the same time."""

    def run_once(self) -> int:
        """Gives how much there was to do."""


def all_jobs(
    agent: Agent,
    *,
    purge_suspended_after: timedelta | None = None,
    keep_track: timedelta = KEEP_TRACK,
    keep_bodies: timedelta = KEEP_TRACK,
) -> dict[Job, float]:
    """Every job with the seconds between its runs."""
    return {
        ReportRoutingFailures(agent): 1.0,
        CleanReferences(agent): 5.0,
        ReleaseDead(agent): 5.0,
        TakeSample(agent): SAMPLE_SECONDS,
        FoldCounts(agent): 10.0,
        PackTrack(agent): 5.0,
        KeepTrack(agent, keep_track, keep_bodies): 60.0,
        PurgeSuspended(agent, purge_suspended_after): 60.0,
        PurgeOriginals(agent): 60.0,
        Compact(agent): 60.0,
        ReportStatistics(agent): 60.0,
    }


class Schedule:
    """Between `start` and `stop`. A job that fails is tried again when it is due; `waits` hears of an outage."""

    def __init__(self, jobs: Mapping[Job, float], waits: Callable[[OutageError], None] | None = None) -> None:
        self._jobs = jobs
        self._waits = waits
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the job under way."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        due = {job: time.monotonic() + seconds for job, seconds in self._jobs.items()}
        while not self._stopping.wait(max(0.0, min(due.values()) - time.monotonic())):
            job = min(due, key=lambda each: due[each])
            run(job, self._waits)
            due[job] = time.monotonic() + self._jobs[job]


def run(job: Job, waits: Callable[[OutageError], None] | None = None) -> int:
    """Once; what goes wrong is said, and the next run may do better."""
    try:
        return job.run_once()
    except CrossdockError as error:
        if waits is not None and isinstance(error, OutageError):
            waits(error)
        else:
            logger.warning("Maintenance job %s waits: %s", type(job).__name__, error)
    except Exception:
        logger.exception("Maintenance job %s failed", type(job).__name__)
    return 0
