"""Claims of sources: pipelines share the ledger, what a dead one had comes free, and what cannot be read waits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from box import a_publication, deployment, ids, listed
from crossdock.messagebox import claims as claiming
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.claims import CLAIM_LOCK, SourceClaims
from interleave import PATIENCE_SECONDS
from server_clock import stop_clock
from walk import until

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _released_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "_SWEEP_SECONDS", 0.0)


@contextmanager
def pipeline(agent: Agent) -> Iterator[SourceClaims]:
    """One that lives until the block ends."""
    claims = agent.ledger.claims()
    try:
        yield claims
    finally:
        claims.close()


def claimed(agent: Agent, claims: SourceClaims, *, items: int = 100, size: int = 10_000) -> list[int]:
    _, host = ids(agent)
    return [item.sequence for item in claims.claim(host, items=items, size=size)]


def dies(database: str, claims: SourceClaims) -> None:
    """End a pipeline, and wait until the server has noticed."""
    claims.close()
    held = (
        "SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE datname = current_database() AND classid = %s AND objid = %s"
    )
    with psycopg.connect(database, autocommit=True) as observer:
        until(lambda: not observer.execute(held, [CLAIM_LOCK, claims._number]).rowcount, PATIENCE_SECONDS)


def test_claim_takes_what_fits_and_one_source_however_large_it_is(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Port="Region = 'NO'"))
    location, _ = ids(agent)
    agent.ledger.enter([(location, str(n).encode(), 100) for n in range(10)])
    first = agent.ledger.read(0, 2**62)[0].sequence

    with pipeline(agent) as claims:
        assert claimed(agent, claims, items=4) == [first, first + 1, first + 2, first + 3]
        assert claimed(agent, claims, size=250) == [first + 4, first + 5]
        assert claimed(agent, claims, size=1) == [first + 6]
        assert claimed(agent, claims) == [first + 7, first + 8, first + 9]
        assert claimed(agent, claims) == []


def test_pipelines_that_claim_at_the_same_time_get_each_source_once_between_them(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Port="Region = 'NO'"))
    sources = listed(agent, *map(str, range(500)))

    def work(_: int) -> list[int]:
        with pipeline(agent) as claims:
            got = []
            while more := claimed(agent, claims, items=7):
                got += more
            agent.publish([a_publication(agent, sequence, {"Region": "NO"}) for sequence in got])
            return got

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(work, range(4)))

    assert sorted(sequence for share in shares for sequence in share) == sources


def test_what_a_dead_pipeline_had_and_did_not_publish_is_claimed_by_the_next_one(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(Port="Region = 'NO'"))
    published, unpublished = listed(agent, "a", "b")
    with pipeline(agent) as first, pipeline(agent) as second:
        assert claimed(agent, first) == [published, unpublished]
        agent.publish([a_publication(agent, published, {"Region": "NO"})])
        assert claimed(agent, second) == []

        dies(database, first)

        assert claimed(agent, second) == [unpublished]


def test_pipeline_whose_session_was_ended_claims_again_what_it_had(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(Port="Region = 'NO'"))
    [sequence] = listed(agent, "a")
    with pipeline(agent) as claims:
        assert claimed(agent, claims) == [sequence]

        dies(database, claims)

        assert claimed(agent, claims) == [sequence]


def test_postponed_source_is_due_after_waits_that_double_up_to_a_minute(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(Port="Region = 'NO'"))
    [sequence] = listed(agent, "a")
    now, waits = NEW_YEAR, []
    with pipeline(agent) as claims, psycopg.connect(database, autocommit=True) as connection:
        assert claimed(agent, claims) == [sequence]
        for _ in range(8):
            stop_clock(connection, now)
            assert agent.ledger.postpone(sequence, "it is locked")
            postponed_at = now
            while not claimed(agent, claims):
                assert agent.ledger.waiting() == 1
                now += timedelta(seconds=1)
                stop_clock(connection, now)
            waits.append((now - postponed_at).seconds)

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert agent.ledger.waiting() == 0


def test_source_that_is_published_or_gone_is_not_postponed(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Port="Region = 'NO'"))
    published, gone = listed(agent, "a", "b")
    agent.publish([a_publication(agent, published, {"Region": "NO"})])
    agent.ledger.abandon([gone])

    assert not agent.ledger.postpone(published, "it is locked")
    assert not agent.ledger.postpone(gone, "it is locked")


def test_source_of_a_disabled_location_waits_until_the_location_is_enabled(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Port="Region = 'NO'"))
    _, host = ids(agent)
    [sequence] = listed(agent, "a")
    with pipeline(agent) as claims:
        agent.subscriptions.enable("orders.in", enabled=False)
        assert (claims.claim(host, items=1, size=1), agent.ledger.waiting()) == ([], 1)

        agent.subscriptions.enable("orders.in", enabled=True)

        assert (claimed(agent, claims), agent.ledger.waiting()) == ([sequence], 0)
