"""The benchmark that compares the owner of the MessageBox with the role of a host."""

from __future__ import annotations

import psycopg
import pytest

from crossdock.bench.queue import bench_queue

pytestmark = pytest.mark.process


def test_owner_and_role_publish_and_deliver_the_same_and_the_user_is_gone_afterwards(empty_database: str) -> None:
    figures = bench_queue(
        messages=500,
        subscriptions=10,
        body=100,
        rounds=1,
        reader_seconds=0,
        database=empty_database,
        progress=lambda _: None,
        host_role=True,
    )

    assert len(figures["host_role_dequeue_ratio_each"]) == 8
    assert min(figures["host_role_publish_per_s"], figures["owner_publish_per_s"]) > 0
    with psycopg.connect(empty_database) as connection:
        users = connection.execute("SELECT count(*) FROM pg_roles WHERE rolname = 'crossdock_bench_host'").fetchone()
    assert users == (0,)
