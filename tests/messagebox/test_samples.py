"""Samples: what monitoring shows. Exact where there is little, an estimate at the same cost where there is much."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from box import AT_ONCE, a_publication, deployment, listed
from crossdock.errors import UnavailableError
from crossdock.maintenance.counts import FoldCounts
from crossdock.maintenance.samples import TakeSample
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.sample import Sample
from crossdock.messagebox.samples import Samples
from crossdock.messagebox.settle import Complete, Retry, Suspend
from express import claim, deploy, living, port, publish, rows
from roles import Roles, roles
from server_clock import JumpingClock
from walk import until

__all__ = ["roles"]

NORWAY = {"Region": "NO"}
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
RECEIVED = """
    SELECT minute, location.name, received, published
      FROM publication_minute
      JOIN receive_location AS location ON location.id = location_id
     ORDER BY minute
"""
DELIVERED = """
    SELECT minute, service.name, delivered, retried, delivery_minute.suspended
      FROM delivery_minute
      JOIN service ON service.id = service_id
     ORDER BY minute
"""


def sampled(agent: Agent) -> Sample:
    agent.cleanup.fold_counts()
    return agent.samples.take()


def by_name(sample: Sample, column: str) -> dict[str, float]:
    return {each.name: getattr(each, column) for each in sample.details.services}


def settle_three(agent: Agent) -> None:
    """Of three references one is delivered, one is to be tried again, one is suspended."""
    with living(agent) as life:
        first, second, third = claim(agent, life, limit=3)
        agent.settle(
            life.instance,
            [Complete(first), Retry(second, DAY, "down"), Suspend(third, "no", code="partner-refused")],
        )


def test_everything_that_is_there_is_counted(agent: Agent, database: str) -> None:
    clock = JumpingClock(database)
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'NO' AND Amount > 5"))
    read, _ = listed(agent, "read", "unread")
    agent.publish([a_publication(agent, read, *[NORWAY] * 4, {"Region": "XX"}, failures=2)])
    settle_three(agent)
    clock.jump(seconds=90)

    sample = sampled(agent)

    box = sample.box
    assert (box.exact, box.ready, box.claimed, box.waiting, box.suspended, box.unrouted, box.unread) == (
        True, 1, 0, 1, 3, 1, 1
    )  # fmt: skip
    assert (box.total.received, box.total.published, box.total.unrouted, box.total.receive_suspended) == (7, 4, 1, 2)
    assert (box.total.delivered, box.total.retried, box.total.suspended) == (1, 1, 1)
    assert {(each.code, each.kind): each.count for each in box.suspensions} == {
        ("document-invalid", "receive"): 2, ("no-subscriber", "unrouted"): 1, ("partner-refused", "send"): 1
    }  # fmt: skip
    assert box.oldest_seconds == pytest.approx(90, abs=20)
    assert all(each.oldest_seconds is not None and each.oldest_seconds >= 90 for each in box.suspensions)
    assert (box.spool_messages, box.database_bytes > 1_000_000, box.ports_left_out) == (7, True, 0)
    [host] = box.hosts
    assert (host.name, host.instances, host.ready, host.waiting, host.suspended) == ("Default", {}, 1, 1, 4)
    assert by_name(sample, "ready") == {"A": 1, "B": 0}
    assert (by_name(sample, "retried")["A"], by_name(sample, "failed")["A"]) == (1, 1)
    [location] = sample.details.locations
    assert (location.name, location.received, location.unread, location.failing) == ("orders.in", 7, 1, 0)


def test_rates_are_those_since_the_sample_before(agent: Agent, database: str) -> None:
    clock = JumpingClock(database)
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, *[NORWAY] * 40)
    sampled(agent)
    with living(agent) as life:
        agent.settle(life.instance, [Complete(each) for each in claim(agent, life)])
    clock.jump(seconds=10_000)

    sample = sampled(agent)

    assert sample.box.seconds == pytest.approx(10_000, abs=60)
    assert sample.box.per_second.delivered == pytest.approx(0.004)
    assert by_name(sample, "delivered_per_second") == {"A": pytest.approx(0.004)}


def test_what_is_counted_stays_counted_while_its_source_is_known_and_after(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    [source] = listed(agent, "file")
    agent.publish([a_publication(agent, source, NORWAY, NORWAY)])

    before = agent.statistics()
    counts = []
    for _ in range(2):
        sampled(agent)
        counts.append((agent.statistics(), agent.configuration.list_locations()[0].received))
    agent.ledger.forget([source])
    last = sampled(agent)

    assert [each.received for each, _ in counts] == [before.received, before.received] == [2, 2]
    assert [received for _, received in counts] == [2, 2]
    assert (last.box.total.received, agent.statistics().received) == (2, 2)


def test_counts_are_kept_by_the_minute(agent: Agent, database: str) -> None:
    clock = JumpingClock(database)
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    for name in ("first", "second"):
        [source] = listed(agent, name)
        agent.publish([a_publication(agent, source, *[NORWAY] * 3)])
        settle_three(agent)
        FoldCounts(agent).run_once()
        clock.jump(minutes=2)

    received = rows(database, RECEIVED)
    delivered = rows(database, DELIVERED)

    assert [counts for _, *counts in received] == [["orders.in", 3, 3]] * 2
    assert [counts for _, *counts in delivered] == [["A", 1, 1, 1]] * 2
    assert received[1][0] - received[0][0] >= timedelta(minutes=2)
    assert all(minute.second == 0 for minute, *_ in delivered)
    assert [each.received for each in agent.paged.total_minutes(DAY, MINUTE)] == [3, 3]
    assert agent.paged.total_minutes(AT_ONCE, MINUTE) == []


def test_minutes_and_samples_are_forgotten_after_a_while(agent: Agent, database: str) -> None:
    clock = JumpingClock(database)
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY, NORWAY)
    settle_three(agent)
    sampled(agent)
    clock.jump(minutes=59)
    sampled(agent)
    kept = rows(database, "SELECT count(*) FROM sample")
    clock.jump(minutes=2)
    sampled(agent)
    after_an_hour = rows(database, "SELECT count(*) FROM sample")
    details = rows(database, "SELECT count(details) FROM sample")
    FoldCounts(agent).run_once()
    minutes = rows(database, "SELECT count(*) FROM delivery_minute")
    clock.jump(days=91)

    FoldCounts(agent).run_once()

    assert (kept, after_an_hour, details, minutes) == ([(2,)], [(2,)], [(1,)], [(1,)])
    assert rows(database, "SELECT count(*) FROM delivery_minute") == [(0,)]


def test_only_one_of_two_processes_takes_a_sample(agent: Agent, other: Agent, database: str) -> None:
    clock = JumpingClock(database)
    deploy(agent)

    taken = [TakeSample(each).run_once() for each in (agent, other, agent)]
    clock.jump(seconds=5)
    again = [TakeSample(each).run_once() for each in (other, agent)]

    assert (taken, again) == ([1, 0, 0], [1, 0])


def test_host_instances_that_live_are_listed_by_state(agent: Agent) -> None:
    deploy(agent, hosts={"Other": ()})

    with living(agent) as life:
        life.check("throttled", 7)
        lives = {(each.host, each.state): (each.instances, each.in_hand) for each in agent.pulse().beat().lives}
        hosts = {each.name: (each.instances, each.in_hand) for each in agent.samples.take().box.hosts}

    assert lives == {("Default", "throttled"): (1, 7), ("Other", None): (0, 0)}
    assert hosts == {"Default": ({"throttled": 1}, 7), "Other": ({}, 0)}


def test_large_queue_is_estimated_from_a_few_of_its_pages(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"), port("C", "Region = 'SE'"))
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "INSERT INTO queue (host_id, priority, message_id, subscription_id, service_id)"
            " SELECT 1, 5, gen_random_uuid(), 1, CASE WHEN n %% 4 = 0 THEN 2 ELSE 1 END FROM generate_series(1, 8000) AS n",
            [],
        )
    until(lambda: rows(database, "SELECT pg_stat_get_live_tuples('queue_1'::regclass)") == [(8000,)])
    few = Samples(agent._database, most_pages=8)

    sample = few.take()

    assert not sample.box.exact
    assert sample.box.ready == pytest.approx(8000, rel=0.02)
    ready = by_name(sample, "ready")
    assert ready["A"] + ready["B"] == pytest.approx(8000, rel=0.02)
    assert ready["A"] > ready["B"] > ready["C"] == 0


def test_only_the_busiest_ports_are_listed(agent: Agent) -> None:
    deploy(agent, *(port(name, f"Region = '{name}'") for name in "ABCDE"))
    publish(agent, *[{"Region": "D"}] * 3, {"Region": "E"})
    with living(agent) as life:
        agent.settle(life.instance, [Complete(each) for each in claim(agent, life, limit=2)])
    agent.cleanup.fold_counts()

    sample = Samples(agent._database, most_listed=2).take()

    assert [each.name for each in sample.details.services] == ["D", "E"]
    assert sample.box.ports_left_out == 3
    assert sample.box.total.delivered == 2


def test_times_that_cannot_be_do_no_harm(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, {"Region": "XX"})
    for table in ("message SET created_at", "suspended SET suspended_at"):
        for time in ("infinity", "-infinity", "4700-01-01 BC"):
            with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
                connection.execute(f"UPDATE {table} = '{time}'".encode())

            sample = sampled(agent)

            assert (sample.box.ready, sample.box.unrouted) == (1, 1)


def test_viewer_reads_samples_and_the_role_of_a_host_only_their_age(agent: Agent, roles: Roles) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY, NORWAY)
    settle_three(agent)
    sampled(agent)
    [(box,)] = rows(agent.database, "SELECT to_hex(number) FROM box")
    viewer = f"crossdock_{box}_user_viewer"
    with psycopg.connect(agent.database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {viewer} LOGIN PASSWORD 'secret'".encode())
    agent.access.grant("viewer", viewer, None)
    roles.create()

    with (
        Agent(make_conninfo(agent.database, user=viewer, password="secret")) as watching,
        Agent(roles.user("Default")) as host,
    ):
        seen, minutes = watching.samples.newest(), watching.paged.total_minutes(DAY, MINUTE)
        age = host.samples.age()
        beat = host.pulse().beat()
        with pytest.raises(UnavailableError, match="may not do this"):
            host.samples.newest()

    assert seen is not None
    assert (seen.box.total.delivered, len(minutes)) == (1, 1)
    assert age is not None
    assert beat.sample_age is not None
