"""The same with DBOS: a workflow of one step that is recorded in the same PostgreSQL, at its best concurrency.

Workflows are enqueued beforehand, as our activations are published beforehand. One process runs them in threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

_CONCURRENCIES = (8, 32, 64)
_POLLING_SECONDS = 0.02
# The queue is found by a thread that looks now and then, so DBOS's own times count.
_QUEUED_SECONDS = """
SELECT (max(updated_at) - min(started_at_epoch_ms)) / 1000.0
  FROM dbos.workflow_status
 WHERE queue_name = %s AND status = 'SUCCESS'
"""

Progress = Callable[[str], None]


def dbos_rates(database: str, workflows: int, progress: Progress) -> Mapping[int, float] | None:
    """Workflows per second by threads. None if DBOS is not installed. Leaves nothing behind."""
    if find_spec("dbos") is None:
        return None
    rates: dict[int, float] = {}
    try:
        for concurrency in _CONCURRENCIES:
            progress(f"{workflows:,} workflows of DBOS, {concurrency} at a time")
            # DBOS is global in its process, so it gets one of its own, as an engine has one.
            with get_context("spawn").Pool(1) as pool:
                rates[concurrency] = pool.apply(_rate, (database, workflows, concurrency))
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS dbos CASCADE")
    return rates


def _rate(database: str, workflows: int, concurrency: int) -> float:
    from dbos import DBOS, DBOSConfig

    config: DBOSConfig = {
        "name": "crossdock-bench",
        "system_database_url": _url(database),
        "sys_db_pool_size": concurrency,
        "max_executor_threads": concurrency,
        "log_level": "ERROR",
    }
    DBOS(config=config)

    @DBOS.step()
    def send(number: int) -> dict[str, Any]:
        return {"id": str(number), "amount": 17}

    @DBOS.workflow()
    def forward(number: int) -> None:
        send(number)

    DBOS.launch()
    logging.getLogger("dbos").setLevel(logging.ERROR)
    try:
        return _queued(DBOS, forward, database, workflows, concurrency)
    finally:
        DBOS.destroy()


def _queued(dbos: Any, forward: Callable[[int], None], database: str, workflows: int, concurrency: int) -> float:
    name = f"bench-{concurrency}"
    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(lambda number: dbos.enqueue_workflow(name, forward, number), range(workflows)))
    dbos.register_queue(name, polling_interval_sec=_POLLING_SECONDS)  # from now on they are taken
    for handle in reversed(handles):
        handle.get_result()
    with psycopg.connect(database) as connection:
        row = connection.execute(_QUEUED_SECONDS, [name]).fetchone()
    assert row is not None
    return workflows / float(row[0])


def _url(database: str) -> str:
    """The connection string as SQLAlchemy writes it."""
    given = {name: str(value) for name, value in conninfo_to_dict(database).items()}
    return URL.create(
        "postgresql+psycopg",
        username=given.pop("user", None),
        password=given.pop("password", None),
        database=given.pop("dbname", None),
        query=given,
    ).render_as_string(hide_password=False)
