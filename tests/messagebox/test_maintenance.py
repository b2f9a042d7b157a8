"""The maintenance jobs: each can be run again, and by several at once; what they tidy away nobody misses."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, Event

import psycopg
import pytest

from box import a_publication, count, deployment, listed
from crossdock.errors import TransientError
from crossdock.maintenance.compaction import Compact
from crossdock.maintenance.counts import FoldCounts
from crossdock.maintenance.dead_processes import ReleaseDead
from crossdock.maintenance.references import CleanReferences
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.maintenance.samples import TakeSample
from crossdock.maintenance.schedule import Job, Schedule, all_jobs, run
from crossdock.maintenance.statistics import ReportStatistics
from crossdock.maintenance.suspended import PurgeOriginals, PurgeSuspended
from crossdock.maintenance.tracking import KeepTrack, PackTrack
from crossdock.messagebox import cleanup
from crossdock.messagebox.agent import Agent
from express import at_ports, claim, delivered_now, deploy, living, port, publish, rows, unbalanced
from server_clock import shift_clock
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")

NORWAY = {"Region": "NO"}
BLOATED_ROWS = 1_000_000 if os.environ.get("CROSSDOCK_SOAK") else 150_000


def at_once(*works: Callable[[], int]) -> list[int]:
    together = Barrier(len(works))

    def attempt(work: Callable[[], int]) -> int:
        together.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(attempt, works))


def test_references_are_cleaned_once_by_however_many_clean(agent: Agent, other: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"))
    publish(agent, *[NORWAY] * 20)
    delivered_now(agent)
    publish(agent, NORWAY)

    jobs = [CleanReferences(agent), CleanReferences(other)]
    deleted = sum(sum(at_once(*[job.run_once for job in jobs * 2])) for _ in range(4))

    assert deleted == 40
    assert (count(database, "message"), count(database, "part")) == (1, 1)
    assert (CleanReferences(agent).run_once(), CleanReferences(agent).run_once()) == (0, 0)
    assert unbalanced(database) == []
    assert len(delivered_now(agent)) == 2


def test_cleaning_goes_on_while_messages_come_and_go(agent: Agent, other: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"))
    done = Event()

    def clean() -> int:
        rounds = 0
        while not done.is_set():
            CleanReferences(other).run_once()
            rounds += 1
        return rounds

    with ThreadPoolExecutor(1) as pool:
        cleaning = pool.submit(clean)
        try:
            delivered = 0
            for _ in range(25):
                publish(agent, NORWAY, NORWAY)
                references = delivered_now(agent)
                assert {each.message.body for each in references} <= {b"content"}
                delivered += len(references)
        finally:
            done.set()
        assert cleaning.result() > 1
    for _ in range(2):
        CleanReferences(agent).run_once()

    assert delivered + len(delivered_now(agent)) == 100
    assert unbalanced(database) == []


def test_publishing_leaves_nothing_for_cleanup_to_do(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY)

    assert not agent.cleanup.may_be_unreferenced("message")
    assert not agent.cleanup.may_be_unreferenced("part")
    assert [count(database, f"message WHERE reference_count = {number}") for number in (2, 1)] == [2, 0]
    assert unbalanced(database) == []


def test_messages_published_before_the_number_of_references_stood_beside_them_are_counted_as_before(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY)
    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        connection.execute("INSERT INTO message_ref_log_1 SELECT id, reference_count FROM message")
        connection.execute("INSERT INTO part_ref_total SELECT id, reference_count FROM part")
        connection.execute("UPDATE message SET reference_count = 0")
        connection.execute("UPDATE part SET reference_count = 0")
    CleanReferences(agent).run_once()
    assert (count(database, "message"), count(database, "part")) == (2, 2)

    delivered_now(agent)
    for _ in range(2):
        CleanReferences(agent).run_once()

    assert (count(database, "message"), count(database, "part")) == (0, 0)
    assert unbalanced(database) == []


def test_reader_of_a_log_holds_up_neither_cleaning_nor_publishing(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    with psycopg.connect(database, options="-csearch_path=crossdock") as reader:
        reader.execute("SELECT FROM message_ref_log_1, message_ref_log_2, part_ref_log_1, part_ref_log_2 LIMIT 0")
        publish(agent, NORWAY, NORWAY)
        delivered_now(agent)
        publish(agent, NORWAY)

        assert sum(CleanReferences(agent).run_once() for _ in range(3)) == 4

    assert count(database, "message") == 1
    assert unbalanced(database) == []


def test_counts_stay_exact_while_they_are_folded(agent: Agent, other: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="EXISTS(Region)"))
    first, second, kept = listed(agent, "a", "b", "c")
    publications = [
        a_publication(agent, each, NORWAY, {"Region": "SE"}, {}, failures=1) for each in (first, second, kept)
    ]
    agent.publish(publications)
    delivered_now(agent)
    agent.ledger.forget([first, second])
    before, ports, locations = (
        agent.statistics(),
        agent.configuration.list_ports(),
        agent.configuration.list_locations(),
    )
    assert (before.received, before.published, before.ports) == (12, 6, {"A": 3, "B": 6})
    seen = []
    done = Event()

    def look() -> None:
        while not done.is_set():
            seen.append(agent.statistics())

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        ran = [at_once(FoldCounts(agent).run_once, FoldCounts(other).run_once) for _ in range(3)]
        until(lambda: len(seen) > 3, 10)
        done.set()
        looking.result()

    assert all(1 in each for each in ran)
    assert (count(database, "publication"), count(database, "delivery")) == (1, 0)
    assert all(each == before for each in [*seen, agent.statistics()])
    assert (agent.configuration.list_ports(), agent.configuration.list_locations()) == (ports, locations)
    assert agent.publish([publications[2]]).publications == 0
    agent.ledger.forget([kept])
    FoldCounts(agent).run_once()
    FoldCounts(agent).run_once()
    assert agent.statistics() == before


def test_router_older_than_the_removals_that_are_remembered_is_loaded_anew(
    agent: Agent, other: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, port("Kept", "Region = 'NO'"), port("Gone", "Region = 'NO'"))
    assert len(other.router().route(NORWAY)) == 2
    deploy(agent, port("Kept", "Region = 'NO'"))

    FoldCounts(agent).run_once()
    assert count(database, "subscription_removal") == 1  # not long ago
    monkeypatch.setattr(cleanup, "_KEPT_REMOVALS", 0)
    FoldCounts(agent).run_once()
    FoldCounts(agent).run_once()

    assert count(database, "subscription_removal") == 0
    assert [each.service for each in other.router().route(NORWAY)] == ["Kept"]
    assert publish(other, NORWAY).references == 1
    deploy(agent)
    assert other.router().route(NORWAY) == []


@pytest.mark.slow
def test_index_is_compacted_once_its_rows_are_gone_and_not_while_they_are_there(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    host = agent.configuration.hosts()["Default"]
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "INSERT INTO queue (host_id, priority, message_id, subscription_id, service_id)"
            " SELECT %s, 5, gen_random_uuid(), 1, 1 FROM generate_series(1, %s)",
            [host, BLOATED_ROWS],
        )
        connection.execute("VACUUM ANALYZE queue")
        assert Compact(agent).run_once() == 0
        before = index_bytes(database)
        connection.execute("DELETE FROM queue")
        connection.execute("VACUUM queue")

    publish(agent, NORWAY)
    compacted = Compact(agent).run_once()

    assert compacted == 1
    assert index_bytes(database) < before / 20
    assert Compact(agent).run_once() == 0
    assert len(delivered_now(agent)) == 1


@pytest.mark.slow
def test_table_that_stayed_large_is_made_small_once_nothing_is_in_it(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute("ALTER TABLE part SET (autovacuum_enabled = off)")
        connection.execute(
            "INSERT INTO part (id, name, body, size)"
            " SELECT gen_random_uuid(), 'body', decode(repeat('00', 99), 'hex'), 99 FROM generate_series(1, %s)",
            [BLOATED_ROWS],
        )
        connection.execute("DELETE FROM part WHERE ctid <> (SELECT max(ctid) FROM part)")
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("VACUUM part")  # which finds the last row there
        connection.execute("DELETE FROM part")
        assert table_bytes(database, "part") > cleanup._BLOATED_BYTES
        known = "SELECT n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE relname = 'part'"
        until(lambda: rows(database, known) == [(0, 1)], 20)

    assert "part" in agent.cleanup.compact()

    assert table_bytes(database, "part") == 0
    publish(agent, NORWAY)
    assert "part" not in agent.cleanup.compact()
    assert len(delivered_now(agent)) == 1


def table_bytes(database: str, table: str) -> int:
    [(size,)] = rows(database, f"SELECT pg_relation_size('{table}')")
    return int(size)


def test_index_that_is_in_use_is_left_for_later(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "_BLOATED_BYTES", 10_000)  # two pages, over one page of rows
    monkeypatch.setattr(cleanup, "_LOCK_TIMEOUT", "20ms")
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY)
    with psycopg.connect(agent.database, options="-csearch_path=crossdock") as reader:
        reader.execute("SELECT count(*) FROM message").fetchone()

        assert "message_pkey" not in agent.cleanup.compact()

    assert "message_pkey" in agent.cleanup.compact()
    assert len(delivered_now(agent)) == 1


def index_bytes(database: str) -> int:
    [(size,)] = rows(
        database, "SELECT max(pg_relation_size(indexrelid)) FROM pg_stat_user_indexes WHERE relname LIKE 'queue_%%'"
    )
    return int(size)


def test_references_of_the_dead_are_freed_once_at_every_host(agent: Agent, other: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'", host="Elsewhere"))
    publish(agent, *[NORWAY] * 5)
    with living(agent) as alive:
        claim(agent, alive, limit=2)
        with living(agent) as one, living(agent, "Elsewhere") as two:
            claim(agent, one)
            claim(agent, two, "Elsewhere")
        freed = 0

        def all_freed() -> bool:
            nonlocal freed
            freed += sum(at_once(ReleaseDead(agent).run_once, ReleaseDead(other).run_once))
            return freed >= 8

        until(all_freed, 10)

        assert (freed, ReleaseDead(agent).run_once()) == (8, 0)
        assert (count(database, "claimed"), count(database, "queue")) == (2, 8)
        assert at_ports(agent) == {"A": 5, "B": 5}
    assert unbalanced(database) == []


def test_every_job_can_be_run_again_and_by_two_at_once_on_an_empty_messagebox(agent: Agent, other: Agent) -> None:
    agent.subscriptions.deploy(deployment())
    both = list(zip(all_jobs(agent), all_jobs(other), strict=True))

    for mine, theirs in both:
        at_once(mine.run_once, theirs.run_once)
        mine.run_once()
        theirs.run_once()

    assert {type(job) for job, _ in both} == {
        ReportRoutingFailures, CleanReferences, ReleaseDead, TakeSample, FoldCounts, PurgeSuspended, PurgeOriginals, Compact,
        ReportStatistics, KeepTrack, PackTrack,
    }  # fmt: skip


def test_report_that_two_work_out_at_once_is_kept_once(agent: Agent, other: Agent, database: str) -> None:
    deploy(agent, port("Sweden", "Region = 'SE'"))
    publish(agent, *[NORWAY] * 250)

    at_once(ReportRoutingFailures(agent).run_once, ReportRoutingFailures(other).run_once)
    ReportRoutingFailures(agent).run_once()

    assert ReportRoutingFailures(other).run_once() == 0
    assert count(database, "routing_failure") == 250


def test_spool_is_counted(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY)
    assert ReportStatistics(agent).run_once() == 0
    TakeSample(agent).run_once()

    with caplog.at_level("INFO"):
        assert ReportStatistics(agent).run_once() == 2

    assert "Spool: 2 messages; database" in caplog.text
    assert "Host Default: 2 ready, 0 waiting, 0 suspended" in caplog.text


class Recorder:
    """A job that counts its runs, and fails in the way it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.runs = 0
        self.enough = Event()
        self._failure = failure

    def run_once(self) -> int:
        self.runs += 1
        if self.runs >= 5:
            self.enough.set()
        if self._failure is not None:
            raise self._failure
        return 1


def test_schedule_runs_every_job_and_goes_on_after_one_that_fails() -> None:
    good, away, broken, rare = Recorder(), Recorder(TransientError("away")), Recorder(KeyError("bug")), Recorder()
    jobs: dict[Job, float] = {good: 0.001, away: 0.001, broken: 0.001, rare: 3600.0}
    schedule = Schedule(jobs)

    schedule.start()
    reached = [job.enough.wait(20) for job in (good, away, broken)]
    schedule.stop()

    assert reached == [True, True, True]
    assert rare.runs == 0
    runs = good.runs
    assert (run(broken), run(away), run(good)) == (0, 0, 1)
    assert good.runs == runs + 1


def test_schedule_of_all_jobs_cleans_up_by_itself(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, {"Region": "SE"})
    delivered_now(agent)
    shift_clock(database, timedelta(days=2))
    jobs: dict[Job, float] = dict.fromkeys(all_jobs(agent), 0.01)
    jobs[PurgeSuspended(agent, timedelta(days=1))] = 0.2
    schedule = Schedule(jobs)

    schedule.start()
    try:
        until(lambda: count(database, "part") == 0, 20)
    finally:
        schedule.stop()

    assert (count(database, "message"), count(database, "suspended"), count(database, "delivery")) == (0, 0, 0)
    assert agent.statistics().ports == {"A": 1}
