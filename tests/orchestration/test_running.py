"""Orchestrations in a real MessageBox: activated, sent from, correlated, timed, ended."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from crossdock.errors import ApplicationError
from crossdock.messagebox.agent import Agent
from express import rows, unbalanced
from running import clean, deploy, instances, message, publish, redeploy, run, sent


def test_orchestration_is_activated_sends_and_completes(agent: Agent, folder: Path) -> None:
    deploy(
        agent,
        folder,
        """
        out = Port("Out")

        @orchestration(Receive("Order"))
        async def forward(process: Process, order: Message) -> None:
            await process.send(out, process.message("Note", order.json()))
        """,
        "forward",
    )

    publish(agent, message(agent, "Order", "a"), message(agent, "Order", "b"))
    run(agent)

    assert sent(agent) == [("Note", {"id": "a", "amount": 1}), ("Note", {"id": "b", "amount": 1})]
    assert agent.statistics().ports["forward"] == 2
    clean(agent)


def test_instance_waits_for_what_it_correlates_with(agent: Agent, folder: Path) -> None:
    deploy(
        agent,
        folder,
        """
        out = Port("Out")
        case = Correlation("OrderId", types=["Payment"])

        @orchestration(Receive("Order", initializes=case))
        async def fulfil(process: Process, order: Message) -> None:
            await process.send(out, process.message("Note", order.json()))
            payment = await process.receive(case)
            await process.send(out, process.message("Payment", payment.json()))
        """,
        "fulfil",
    )

    publish(agent, message(agent, "Order", "a"), message(agent, "Order", "b"))
    run(agent)
    assert instances(agent) == [("fulfil", "running", 1)] * 2
    assert unbalanced(agent.database) == []
    assert agent.statistics().waiting == 2
    publish(agent, message(agent, "Payment", "b", 7), message(agent, "Payment", "c", 8))
    run(agent)

    assert [each for _, each in sent(agent)] == [
        {"id": "a", "amount": 1},
        {"id": "b", "amount": 1},
        {"id": "b", "amount": 7},
    ]
    assert instances(agent) == [("fulfil", "running", 1)]
    assert [each.kind for each in agent.suspended.messages()] == ["unrouted"]
    publish(agent, message(agent, "Payment", "a"))
    run(agent)
    clean(agent)
    assert rows(agent.database, "SELECT count(*) FROM queue") == [(1,)]


WAITS = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def wait(process: Process, order: Message) -> None:
    answer = await process.receive(case, timeout=timedelta(seconds=order.json()["amount"]))
    await process.send(out, process.message("Note", {"id": order["OrderId"], "paid": answer is not None}))
"""


def test_timer_fires_where_no_message_comes(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, WAITS, "wait")
    publish(agent, message(agent, "Order", "a", 0), message(agent, "Order", "b", 3600))

    run(agent)

    assert sent(agent) == [("Note", {"id": "a", "paid": False})]
    assert rows(agent.database, "SELECT count(*) FROM timer") == [(1,)]
    publish(agent, message(agent, "Payment", "b"))
    run(agent)
    assert sent(agent) == [("Note", {"id": "b", "paid": True})]
    clean(agent)


def test_what_comes_for_an_instance_that_has_ended_is_unrouted_or_discarded(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, WAITS, "wait")
    publish(agent, message(agent, "Order", "a", 3600))
    run(agent)

    publish(agent, message(agent, "Payment", "a"), message(agent, "Payment", "a"))
    run(agent)
    publish(agent, message(agent, "Payment", "a"))

    assert len(sent(agent)) == 1
    assert [each.kind for each in agent.suspended.messages()] == ["discarded", "unrouted"]
    clean(agent)


def test_uncaught_exception_suspends_the_instance_and_sends_nothing(agent: Agent, folder: Path) -> None:
    deploy(
        agent,
        folder,
        """
        from pathlib import Path
        out = Port("Out")
        case = Correlation("OrderId", types=["Payment"])

        @orchestration(Receive("Order", initializes=case))
        async def fragile(process: Process, order: Message) -> None:
            await process.receive(case)
            await process.send(out, process.message("Note", order.json()))
            if order.json()["amount"] > 5:
                raise ValueError("too much")
        """,
        "fragile",
    )
    publish(agent, message(agent, "Order", "a", 7))
    run(agent)
    publish(agent, message(agent, "Payment", "a"))
    run(agent)

    [row] = agent.instances.list()
    assert (row.state, row.step, row.code) == ("suspended", 1, "orchestration-failed")
    assert "too much" in str(row.reason)
    assert "flows.py" in str(row.traceback)
    assert sent(agent) == []
    publish(agent, message(agent, "Payment", "a"))
    run(agent)
    assert rows(agent.database, "SELECT count(*) FROM held WHERE step IS NULL") == [(2,)]
    assert unbalanced(agent.database) == []
    agent.instances.resume([row.id])
    run(agent)
    assert instances(agent) == [("fragile", "suspended", 1)]
    agent.instances.terminate([row.id])
    assert [each.kind for each in agent.suspended.messages()] == ["discarded"] * 2
    clean(agent)


@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize("payment_first", [False, True])
def test_payment_in_the_batch_of_its_order_joins_its_instance(
    agent: Agent, folder: Path, many: int, payment_first: bool
) -> None:
    deploy(
        agent,
        folder,
        """
        case = Correlation("OrderId", types=["Payment"])

        @orchestration(Receive("Order", initializes=case))
        async def fulfil(process: Process, order: Message) -> None:
            await process.receive(case)
        """,
        "fulfil",
        bind="{}",
    )
    ids = [f"A{number}" for number in range(many)]
    orders, payments = ([message(agent, type_, id_) for id_ in ids] for type_ in ("Order", "Payment"))

    publish(agent, *(payments + orders if payment_first else orders + payments))
    run(agent)

    assert [row.kind for row in agent.suspended.messages()] == []
    assert instances(agent) == []
    clean(agent)


def test_first_step_that_fails_is_done_again_when_it_is_resumed(agent: Agent, folder: Path) -> None:
    deploy(
        agent,
        folder,
        """
        import os
        out = Port("Out")
        case = Correlation("OrderId", types=["Payment"])

        @orchestration(Receive("Order", initializes=case))
        async def fragile(process: Process, order: Message) -> None:
            await process.suspend("look at it")
            await process.receive(case)
            await process.send(out, process.message("Note", order.json()))
        """,
        "fragile",
    )
    publish(agent, message(agent, "Order", "a", 7))
    run(agent)
    [row] = agent.instances.list()
    assert (row.state, row.code, row.reason) == ("suspended", "suspended-by-code", "look at it")

    agent.instances.resume([row.id])
    publish(agent, message(agent, "Payment", "a"))
    run(agent)

    assert [each for _, each in sent(agent)] == [{"id": "a", "amount": 7}]
    clean(agent)


def test_cancelled_instance_compensates_and_ends(agent: Agent, folder: Path) -> None:
    deploy(
        agent,
        folder,
        """
        out = Port("Out")
        case = Correlation("OrderId", types=["Payment"])

        @orchestration(Receive("Order", initializes=case))
        async def book(process: Process, order: Message) -> None:
            async with process.scope() as scope:
                scope.compensate(process.send, out, process.message("Note", {"id": "undo", "amount": 0}))
                await process.receive(case)
        """,
        "book",
    )
    publish(agent, message(agent, "Order", "a"))
    run(agent)

    agent.instances.cancel([each.id for each in agent.instances.list()])
    run(agent)

    assert sent(agent) == [("Note", {"id": "undo", "amount": 0})]
    clean(agent)


def test_atomic_work_commits_with_the_step_and_its_error_undoes_it(agent: Agent, folder: Path, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE public.charge (card text)")
    deploy(
        agent,
        folder,
        """
        out = Port("Out")

        def charge(connection, card):
            connection.execute("INSERT INTO public.charge VALUES (%s)", [card])
            if card == "bad":
                raise ValueError("refused")
            return {"charged": card}

        @orchestration(Receive("Order"))
        async def pay(process: Process, order: Message) -> None:
            try:
                done = await process.atomic(charge, order["OrderId"])
            except ValueError as error:
                done = {"error": str(error)}
            again = await process.atomic(charge, "twice")
            await process.send(out, process.message("Note", {"id": "x", "amount": 0, "done": done}))
        """,
        "pay",
    )
    publish(agent, message(agent, "Order", "good"), message(agent, "Order", "bad"))

    run(agent)

    assert [each["done"] for _, each in sent(agent)] == [{"charged": "good"}, {"error": "refused"}]
    assert sorted(rows(database, "SELECT card FROM public.charge")) == [("good",), ("twice",), ("twice",)]
    clean(agent)


def test_continue_with_drops_history_and_messages(agent: Agent, folder: Path) -> None:
    deploy(
        agent,
        folder,
        """
        out = Port("Out")
        case = Correlation("OrderId", types=["Payment"])

        @orchestration(Receive("Order", initializes=case))
        async def count(process: Process, order: Message, seen: int = 0) -> None:
            await process.receive(case)
            if seen < 3:
                await process.continue_with(order, seen + 1)
            await process.send(out, process.message("Note", {"id": "x", "amount": seen}))
        """,
        "count",
    )
    publish(agent, message(agent, "Order", "a"))
    for number in range(4):
        publish(agent, message(agent, "Payment", "a", number))
        run(agent)
        if number < 3:
            assert rows(agent.database, "SELECT count(*) FROM history") == [(1,)]
            assert rows(agent.database, "SELECT count(*) FROM held") == [(1,)]
            assert unbalanced(agent.database) == []

    assert sent(agent) == [("Note", {"id": "x", "amount": 3})]
    clean(agent)


def test_atomic_work_of_a_step_that_fails_is_undone(agent: Agent, folder: Path, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE public.charge (card text)")
    deploy(
        agent,
        folder,
        """
        def charge(connection, card):
            connection.execute("INSERT INTO public.charge VALUES (%s)", [card])

        @orchestration(Receive("Order"))
        async def pay(process: Process, order: Message) -> None:
            await process.atomic(charge, order["OrderId"])
            raise ValueError("after it")
        """,
        "pay",
        bind="{}",
    )
    publish(agent, message(agent, "Order", "a"))

    run(agent)

    assert instances(agent) == [("pay", "suspended", 0)]
    assert rows(database, "SELECT card FROM public.charge") == []
    assert unbalanced(database) == []
    agent.instances.terminate([each.id for each in agent.instances.list()])
    clean(agent)


def test_orchestration_cannot_move_to_another_host_while_instances_run(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, WAITS, "wait")
    publish(agent, message(agent, "Order", "a", 3600))
    run(agent)
    moved = (folder / "shop.yaml").read_text().replace("bind: {Out: Out}", "bind: {Out: Out}, host: Elsewhere")
    (folder / "shop.yaml").write_text(moved + "\nhosts: [{name: Elsewhere}]\n")

    with pytest.raises(ApplicationError, match="cannot move to host 'Elsewhere' while 1"):
        redeploy(agent, folder)


def test_stopped_orchestration_keeps_messages_and_its_instances_go_on(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, WAITS, "wait")
    publish(agent, message(agent, "Order", "a", 3600))
    run(agent)
    agent.subscriptions.stop("wait")

    publish(agent, message(agent, "Order", "b", 3600), message(agent, "Payment", "a"))
    run(agent)
    assert [each for _, each in sent(agent)] == [{"id": "a", "paid": True}]
    assert [each.kind for each in agent.suspended.messages()] == ["stopped"]
    agent.subscriptions.start("wait")
    run(agent)
    publish(agent, message(agent, "Payment", "b"))
    run(agent)

    assert [each for _, each in sent(agent)] == [{"id": "b", "paid": True}]
    clean(agent)


def test_deploying_again_leaves_running_instances_with_their_version(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, WAITS, "wait")
    publish(agent, message(agent, "Order", "a", 3600))
    run(agent)
    deploy(agent, folder, WAITS.replace('"paid": answer is not None', '"new": True'), "wait")
    publish(agent, message(agent, "Order", "b", 3600))
    run(agent)

    publish(agent, message(agent, "Payment", "a"), message(agent, "Payment", "b"))
    run(agent)

    assert sorted(str(each) for _, each in sent(agent)) == ["{'id': 'a', 'paid': True}", "{'id': 'b', 'new': True}"]
    clean(agent)
