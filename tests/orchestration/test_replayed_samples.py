"""Samples in production: code that does not do the same again is found right after its step, and nothing of it is done."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import psycopg

from crossdock.messagebox.agent import Agent
from crossdock.orchestration.samples import FIRST_INSTANCES, Samples
from express import rows, unbalanced
from running import clean, deploy, instances, message, publish, run, sent

FLOW = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])
seen = []


def note(connection, amount):
    connection.execute("INSERT INTO public.noted VALUES (%s)", [amount])


@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    {first}
    while (paid := await process.receive(case))["Amount"] > 0:
        {then}
        await process.send(out, process.message("Note", {{"id": "paid", "amount": paid["Amount"]}}))
"""
CHANCE = 'seen.append(1); await process.send(out, process.message("Note", {"id": "x", "amount": len(seen)}))'


def flow(first: str = "pass", then: str = "pass") -> str:
    return FLOW.format(first=first, then=then)


def line_of(folder: Path, text: str) -> str:
    lines = (folder / "flows.py").read_text().splitlines()
    return f"flows.py:{next(number for number, line in enumerate(lines, start=1) if text in line)}"


def test_code_that_does_not_do_the_same_again_is_suspended_with_step_line_and_difference(
    agent: Agent, folder: Path
) -> None:
    deploy(agent, folder, flow(CHANCE), "fulfil")
    publish(agent, message(agent, "Order", "a"))

    run(agent)

    [row] = agent.instances.list()
    assert (row.state, row.code, row.step) == ("suspended", "history-mismatch", 0)
    line = line_of(folder, "seen.append")
    assert row.line.endswith(line)
    assert f"does something else in step 1, {row.line}" in str(row.reason)
    assert f"the history has send Out (at {row.line} when it was recorded)" in str(row.reason)
    assert "and the code now has send Out with other content" in str(row.reason)
    assert str(row.reason).endswith("A replay right after the step found this, and nothing of the step is done.")
    assert sent(agent) == []
    assert unbalanced(agent.database) == []


def test_later_step_that_does_not_do_the_same_again_is_not_done_and_mended_code_goes_on(
    agent: Agent, folder: Path
) -> None:
    deploy(agent, folder, flow(then=CHANCE), "fulfil")
    publish(agent, message(agent, "Order", "a"))
    run(agent)
    publish(agent, message(agent, "Payment", "a", 5))
    run(agent)
    [row] = agent.instances.list()
    assert (row.state, row.code, row.step) == ("suspended", "history-mismatch", 1)
    assert "in step 2" in str(row.reason)
    assert sent(agent) == []

    deploy(agent, folder, flow(), "fulfil")
    agent.instances.resume([row.id])
    run(agent)

    assert sent(agent) == [("Note", {"id": "paid", "amount": 5})]
    publish(agent, message(agent, "Payment", "a", 0))
    run(agent)
    clean(agent)


def test_atomic_work_of_a_step_that_does_not_do_the_same_again_is_undone(
    agent: Agent, folder: Path, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.noted (amount integer)")
        connection.execute("GRANT ALL ON public.noted TO public")
    work = 'await process.atomic(note, paid["Amount"])'
    deploy(agent, folder, flow(then=f"{work}; {CHANCE}"), "fulfil")
    publish(agent, message(agent, "Order", "a"))
    run(agent)
    publish(agent, message(agent, "Payment", "a", 5))

    run(agent)

    assert instances(agent) == [("fulfil", "suspended", 1)]
    assert rows(database, "SELECT count(*) FROM public.noted") == [(0,)]
    deploy(agent, folder, flow(then=work), "fulfil")
    agent.instances.resume([each.id for each in agent.instances.list()])
    run(agent)
    assert rows(database, "SELECT amount FROM public.noted") == [(5,)]
    assert instances(agent) == [("fulfil", "running", 3)]


def test_most_instances_are_not_replayed_after_the_first_ones(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, flow(CHANCE), "fulfil")
    publish(agent, *(message(agent, "Order", f"{number}") for number in range(FIRST_INSTANCES + 12)))

    run(agent)

    states = [state for _, state, _ in instances(agent)]
    assert FIRST_INSTANCES <= states.count("suspended") < len(states) == FIRST_INSTANCES + 12
    assert len(sent(agent)) == states.count("running")


def test_first_instances_of_each_version_and_one_in_a_hundred_are_replayed() -> None:
    samples = Samples()
    ids = [UUID(int=number) for number in range(1, 5_001)]

    chosen = [id_.int for id_ in ids if samples.has("one", id_)]

    assert chosen == [*range(1, 21), *range(100, 5_001, 100)]
    assert [id_.int for id_ in ids if samples.has("one", id_)] == chosen
    assert samples.has("two", UUID(int=77))
