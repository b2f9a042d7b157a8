"""What an atomic function sets on its connection ends with its step: the engine, and the next step, have none of it."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from crossdock.messagebox.agent import Agent
from express import rows
from running import clean, deploy, engine, message, publish, sent, settled

FLOW = """
from psycopg import ClientCursor
from psycopg.rows import dict_row

out = Port("Out")

def charge(connection, card):
    if card == "odd":
{odd}
    return connection.execute("SELECT %s::text", [card]).fetchone()[0] if card != "odd" else card

@orchestration(Receive("Order"))
async def pay(process: Process, order: Message) -> None:
    done = await process.atomic(charge, order["OrderId"])
    await process.send(out, process.message("Note", {{"id": "Grüße Ω", "amount": 0, "done": done}}))
"""
SETTINGS = {
    "rows": "connection.row_factory = dict_row",
    "cursors": "connection.cursor_factory = ClientCursor",
    "adapters": "connection.adapters.register_loader('int4', connection.adapters.get_loader(25, 0))",
    "binary adapters": "[connection.adapters.register_loader(name, connection.adapters.get_loader(17, 1))"
    " for name in ('uuid', 'int8', 'text')]",
    "search path": "connection.execute('SET search_path = public')",
    "role": "connection.execute('SET SESSION ROLE pg_monitor')",
    "isolation": "connection.execute(\"SET default_transaction_isolation = 'serializable'\")",
    "read only": "connection.execute('SET default_transaction_read_only = on')",
    "time limit": "connection.execute(\"SET LOCAL statement_timeout = '1ms'\")",
    "letters": "connection.execute(\"SET client_encoding = 'LATIN1'\")",
    "lock": "connection.execute('SELECT pg_advisory_lock(5)')",
    "temporary queue": "connection.execute('CREATE TEMPORARY TABLE queue (LIKE crossdock.queue INCLUDING ALL)')",
    "temporary service": "connection.execute('CREATE TEMPORARY TABLE service (id integer)')",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_an_atomic_function_sets_on_its_connection_ends_with_the_step(
    agent: Agent, folder: Path, database: str, setting: str
) -> None:
    deploy(agent, folder, FLOW.format(odd=indent(SETTINGS[setting], " " * 8)), "pay")

    with engine(agent):
        for each in ("odd", "first", "second", "odd", "third"):
            publish(agent, message(agent, "Order", each))
            settled(agent, seconds=10)
        # Whatever the function set may have failed its own step, which then can be resumed, but nothing else.
        suspended = rows(database, "SELECT count(*) FROM instance WHERE state = 'suspended'")[0][0]

    done = sorted(str(body["done"]) for _, body in sent(agent))
    assert [each for each in done if each != "odd"] == ["first", "second", "third"]
    assert done.count("odd") + suspended == 2
    if not suspended:
        clean(agent)


def test_atomic_function_that_closes_its_connection_suspends_its_instance_and_no_other(
    agent: Agent, folder: Path, database: str
) -> None:
    deploy(agent, folder, FLOW.format(odd=" " * 8 + "connection.close()"), "pay")

    with engine(agent):
        publish(agent, message(agent, "Order", "odd"), message(agent, "Order", "first"))
        settled(agent, seconds=10)

    assert [body["done"] for _, body in sent(agent)] == ["first"]
    [(state, reason)] = rows(database, "SELECT state, reason FROM instance")
    assert (state, "closed its connection" in reason) == ("suspended", True)
