"""The COPY ceiling: every row that publishing writes, prepared beforehand, into the same tables by COPY alone.

It is what PostgreSQL could take if nothing else cost anything; rates are given as a share of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import psycopg

from crossdock.message.publication import Publication
from crossdock.messagebox.batch import Batch
from crossdock.messagebox.copy import fixed_rows
from crossdock.messagebox.store import message_rows, part_rows
from crossdock.subscription.router import Router

THREADS = 2
_SEARCH_PATH = "-csearch_path=crossdock"
_HEADER, _TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


def copy_ceiling(database: str, router: Router, batches: Sequence[Publication]) -> float:
    """Messages per second on two connections, a transaction for each batch. The rows stay; see `empty`."""
    prepared = [_buffers(router, batch) for batch in batches]
    connections = [psycopg.connect(database, options=_SEARCH_PATH) for _ in range(THREADS)]
    free = list(connections)

    def copy(buffers: Sequence[tuple[str, bytes]]) -> None:
        connection = free.pop()
        with connection.transaction(), connection.cursor() as cursor:
            for command, data in buffers:
                with cursor.copy(command) as stream:
                    stream.write(data)
        free.append(connection)

    try:
        seconds = timed(prepared, copy)
    finally:
        for connection in connections:
            connection.close()
    return sum(len(each.messages) for each in batches) / seconds


def empty(database: str) -> None:
    """Away with the rows of the ceiling, and with every other message."""
    with psycopg.connect(database, options=_SEARCH_PATH, autocommit=True) as connection:
        while True:
            try:
                connection.execute(
                    "TRUNCATE message, part, queue, claimed, scheduled, message_ref_log_1, message_ref_log_2,"
                    " part_ref_log_1, part_ref_log_2, message_ref_total, part_ref_total"
                )
                return
            except psycopg.errors.DeadlockDetected:
                continue  # cleanup is at work, and takes the tables in another order


def timed(items: Sequence[Any], work: Callable[[Any], object]) -> float:
    """Seconds until two threads have done the work for all items."""
    with ThreadPoolExecutor(THREADS) as pool:
        began = time.perf_counter()
        for _ in pool.map(work, items):
            pass
        return time.perf_counter() - began


def _buffers(router: Router, batch: Publication) -> list[tuple[str, bytes]]:
    """Every row that publishing this batch writes, as PostgreSQL takes it."""
    messages = Batch([batch.messages])
    ids = messages.ids
    positions, numbers = router.match(messages)
    columns = router.table
    found = columns.rows(numbers)
    counts = np.bincount(positions, minlength=len(ids))
    queue = fixed_rows(
        [
            ("int2", columns.host_id[found]),
            ("int4", columns.subqueue[found]),
            ("int2", columns.priority[found]),
            ("uuid", ids[positions]),
            ("int8", columns.id[found]),
            ("int4", columns.service_id[found]),
        ]
    )
    rows = {
        "message (id, context, part_count, parts, reference_count)": b"".join(
            chain.from_iterable(message_rows(messages, counts))
        ),
        "part (id, name, body, size, fragments)": b"".join(chain.from_iterable(part_rows(messages, {}))),
        "queue (host_id, subqueue, priority, message_id, subscription_id, service_id)": queue,
    }
    return [(f"COPY {table} FROM STDIN (FORMAT BINARY)", _HEADER + data + _TRAILER) for table, data in rows.items()]
