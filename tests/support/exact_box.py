"""What is left in a MessageBox after a walk in which nothing was lost or doubled."""

from __future__ import annotations

import psycopg

from crossdock.messagebox.embedded import EmbeddedServer
from walk import Walk, expected


def assert_box_is_exact(walk: Walk, orders: int) -> None:
    """Everything counted once; nothing queued, claimed or listed, and nothing stored but the one that is suspended."""
    server = EmbeddedServer(walk.home)
    with psycopg.connect(server.acquire(), options="-csearch_path=crossdock") as connection:
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM part), (SELECT count(*) FROM queue),"
            " (SELECT count(*) FROM claimed), (SELECT count(*) FROM intake),"
            " (SELECT coalesce(sum(received), 0) FROM publication WHERE NOT counted)"
            " + (SELECT coalesce(sum(received), 0) FROM publication_total),"
            " (SELECT coalesce(sum(count), 0) FROM delivery) + (SELECT coalesce(sum(count), 0) FROM delivery_total)"
        ).fetchone()
    server.release()
    assert counts == (1, 1, 0, 0, 0, orders + 1, sum(map(sum, (c.values() for c in expected(orders)))))
