"""A record of a history that cannot be read concerns its instance only: it is suspended, and the others go on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from psycopg import connect

from crossdock.administration.instances import describe_instance
from crossdock.messagebox.agent import Agent
from crossdock.orchestration.history import Activated, Arrived, StepRecord, decode_record, encode_record
from express import rows
from running import clean, deploy, engine, message, publish, run, sent, settled
from server_clock import shift_clock
from walk import until

FLOW = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])


@orchestration(Receive("Order", initializes=case))
async def patient(process: Process, order: Message) -> None:
    await process.receive(case)
    await process.send(out, process.message("Note", order.json()))
"""
SLEEPER = """
out = Port("Out")


@orchestration(Receive("Order"))
async def sleeper(process: Process, order: Message) -> None:
    await process.delay(timedelta(hours=1))
    await process.send(out, process.message("Note", order.json()))
"""


def begun(agent: Agent) -> dict[str, UUID]:
    """An instance for each of two orders, by the order."""
    for order in ("bad", "good"):
        publish(agent, message(agent, "Order", order))
    run(agent)
    return {str(each.promoted["OrderId"]): each.id for each in agent.instances.list()}


def record_of(agent: Agent, instance: UUID) -> bytes:
    [(record,)] = rows(agent.database, f"SELECT record FROM history WHERE instance_id = '{instance}'")
    return bytes(record)


def overwrite(agent: Agent, instance: UUID, record: bytes) -> None:
    with connect(agent.database) as connection:
        done = connection.execute("UPDATE history SET record = %s WHERE instance_id = %s", (record, instance))
        assert done.rowcount == 1


def activated_by_nothing(record: bytes) -> bytes:
    """It can be read, and says what cannot have happened."""
    known = decode_record(record)
    [first] = known.events
    assert isinstance(first, Activated)
    return encode_record(StepRecord(known.at, [Activated(first.message, 99)], known.commands))


def brings_a_message_that_is_gone(record: bytes) -> bytes:
    known = decode_record(record)
    return encode_record(StepRecord(known.at, [*known.events, Arrived(UUID(int=7), "case")], known.commands))


@pytest.mark.parametrize(
    "broken",
    [
        lambda _: b"",
        lambda _: b"\xc1",
        lambda _: b"what is this",
        lambda record: record[:-3],
        lambda record: record.replace(b"case", b"c\xff\xfee"),
        lambda record: record + b"\x00",
        activated_by_nothing,
        brings_a_message_that_is_gone,
    ],
)
def test_unreadable_record_suspends_its_instance_and_nothing_else(agent: Agent, folder: Path, broken: object) -> None:
    deploy(agent, folder, FLOW, "patient")
    instance = begun(agent)
    assert callable(broken)
    kept = record_of(agent, instance["bad"])
    assert broken(kept) != kept
    overwrite(agent, instance["bad"], broken(kept))

    with engine(agent):  # it knows nothing yet, and replays
        publish(agent, *(message(agent, "Payment", order) for order in ("bad", "good")))
        settled(agent)
        publish(agent, message(agent, "Order", "next"))
        publish(agent, message(agent, "Payment", "next"))
        settled(agent)

    assert sorted(each["id"] for _, each in sent(agent)) == ["good", "next"]
    [row] = agent.instances.list()
    assert (row.id, row.state, row.code) == (instance["bad"], "suspended", "history-unreadable")
    assert "tep 1 " in str(row.reason)
    assert str(describe_instance(agent, str(row.id)).reason) == row.reason

    overwrite(agent, instance["bad"], kept)  # from a backup
    agent.instances.resume([instance["bad"]])
    run(agent)

    assert [each["id"] for _, each in sent(agent)] == ["bad"]
    clean(agent)


def test_unreadable_record_of_an_instance_whose_timer_is_due_suspends_it_and_nothing_else(
    agent: Agent, folder: Path
) -> None:
    deploy(agent, folder, SLEEPER, "sleeper")
    instance = begun(agent)
    overwrite(agent, instance["bad"], b"\xc1")

    shift_clock(agent.database, timedelta(hours=2))
    with engine(agent):
        until(lambda: [each.state for each in agent.instances.list()] == ["suspended"], 60)
        settled(agent)

    [row] = agent.instances.list()
    assert (row.id, row.code) == (instance["bad"], "history-unreadable")
    assert [each["id"] for _, each in sent(agent)] == ["good"]


def test_instance_with_an_unreadable_record_is_described_and_terminated(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, FLOW, "patient")
    instance = begun(agent)
    overwrite(agent, instance["bad"], b"\xc1")

    described = describe_instance(agent, str(instance["bad"]))

    [step] = described.steps
    assert (step.number, step.at) == (1, None)
    assert "cannot be read" in step.events[0]
    assert agent.instances.terminate([instance["bad"]]) == [instance["bad"]]


def test_history_of_more_than_anybody_reads_is_described_without_the_rest(agent: Agent, folder: Path) -> None:
    """The role of a host may write a record of any size; one of zeros is nothing in the database."""
    deploy(agent, folder, FLOW, "patient")
    instance = begun(agent)["bad"]
    first = record_of(agent, instance)
    with connect(agent.database, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "INSERT INTO history SELECT host_id, instance_id, step + number, record || decode(repeat('00', 40000000), 'hex')"
            " FROM history, generate_series(1, 2) AS number WHERE instance_id = %s",
            (instance,),
        )

    found = agent.instances.describe(instance)

    assert found is not None
    assert [len(each) for each in found.records] == [len(first), len(first) + 40_000_000, 0]
    *_, last = describe_instance(agent, str(instance)).steps
    assert last.events == ["this record cannot be read: Input data was truncated"]
