"""Taking an application away: what it leaves behind is refused, ended or kept, in one transaction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import running
from box import AT_ONCE
from crossdock.administration.deliveries import chosen, resume
from crossdock.administration.instances import resume_instances
from crossdock.administration.suspended import Selection
from crossdock.errors import ApplicationError, TransientError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.settle import Complete, Retry, Settlement
from crossdock.messagebox.undeployment import Leaving
from express import claim, deploy, living, port, publish, rows, unbalanced
from running import message

CONVERSATION = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", order.json()))
    payment = await process.receive(case)
    await process.send(out, process.message("Note", payment.json()))
"""
CONVOY = """
out = Port("Out")
lot = Correlation("OrderId", types=["Line"])

@orchestration(Receive("Line", initializes=lot))
async def collect(process: Process, first: Message) -> None:
    second = await process.receive(lot)
    await process.send(out, process.message("Note", second.json()))
"""
NORWAY = {"Region": "NO"}


def references(agent: Agent) -> dict[str, int]:
    tables = ("queue", "claimed", "scheduled", "suspended")
    return {table: rows(agent.database, f"SELECT count(*) FROM {table}")[0][0] for table in tables}


def test_application_with_nothing_left_is_gone_from_every_list_and_matches_nothing(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    deploy(agent, port("B", "Region = 'NO'"), application="others")

    done = agent.subscriptions.undeploy("orders")

    assert (done.application, done.ports, done.terminated, done.kept) == ("orders", 1, 0, 0)
    assert [each.name for each in agent.configuration.list_applications()] == ["others"]
    assert [each.name for each in agent.configuration.list_ports()] == ["B"]
    assert publish(agent, NORWAY).references == 1
    with pytest.raises(UsageError, match=r"There is no application 'orders' deployed \(there are: others\)"):
        agent.subscriptions.undeploy("orders")


def test_deploying_the_same_again_after_it_was_undeployed_is_a_change(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    agent.subscriptions.undeploy("orders")

    assert deploy(agent, port("A", "Region = 'NO'"))
    assert publish(agent, NORWAY).references == 1


def test_names_of_an_undeployed_application_are_free_unless_something_was_kept_for_them(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'SE'"))
    publish(agent, NORWAY)
    agent.subscriptions.undeploy("orders", "keep")

    assert deploy(agent, port("B", "Region = 'SE'"), application="others")
    with pytest.raises(ApplicationError, match="Send port 'A' already belongs to application 'orders'"):
        deploy(agent, port("B", "Region = 'SE'"), port("A"), application="others")
    assert [(each.name, each.application) for each in agent.configuration.list_ports()] == [
        ("A", "orders"),
        ("B", "others"),
    ]


def test_what_is_left_is_counted_and_refused_and_nothing_has_changed(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY, NORWAY)
    epoch = agent.epoch()
    with living(agent) as life:
        claimed = claim(agent, life, limit=1)

        with pytest.raises(UsageError, match="2 messages wait, 1 is in delivery") as refused:
            agent.subscriptions.undeploy("orders")

        assert "--terminate" in str(refused.value)
        assert agent.epoch() == epoch
        agent.settle(life.instance, [Complete(each) for each in claimed])


def test_terminated_messages_are_gone_wherever_they_were(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"))
    publish(agent, *[NORWAY] * 4)
    agent.subscriptions.stop("B")
    publish(agent, NORWAY)
    with living(agent) as life:
        claimed = claim(agent, life, limit=3)
        agent.settle(life.instance, [Retry(claimed[0], AT_ONCE, "later")])

        done = agent.subscriptions.undeploy("orders", "terminate")

        assert (done.terminated, done.kept) == (10, 0)
        late: list[Settlement] = [Complete(claimed[1]), Retry(claimed[2], AT_ONCE, "later")]
        agent.settle(life.instance, late)  # what was in delivery: nobody asks any more
    assert references(agent) == {"queue": 0, "claimed": 0, "scheduled": 0, "suspended": 0}
    assert unbalanced(agent.database) == []


def test_kept_messages_can_be_resumed_only_after_a_new_deployment(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY)
    done = agent.subscriptions.undeploy("orders", "keep")
    kept = agent.suspended.messages()
    ids = [str(each.id) for each in kept]

    before = {each.result for each in resume(agent, chosen(agent, Selection(tuple(ids))))}
    deploy(agent, port("A", "Region = 'DK'"))
    after = {each.result for each in resume(agent, chosen(agent, Selection(tuple(ids))))}

    assert (done.kept, [each.code for each in kept]) == (2, ["application-undeployed"] * 2)
    assert before == {"still suspended: application 'orders' is undeployed; deploy it again first"}
    assert after == {"queued again"}
    with living(agent) as life:
        assert len(claim(agent, life)) == 2


def test_what_is_in_delivery_when_messages_are_kept_is_finished(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY, NORWAY)
    with living(agent) as life:
        [claimed] = claim(agent, life, limit=1)

        agent.subscriptions.undeploy("orders", "keep")
        agent.settle(life.instance, [Complete(claimed)])

    assert references(agent) == {"queue": 0, "claimed": 0, "scheduled": 0, "suspended": 1}
    assert unbalanced(agent.database) == []


def test_terminated_instances_leave_nothing_behind(agent: Agent, folder: Path) -> None:
    running.deploy(agent, folder, CONVERSATION, "fulfil")
    running.publish(agent, *(message(agent, "Order", f"{number}") for number in range(3)))
    running.run(agent)
    with pytest.raises(UsageError, match="3 messages wait, 3 instances live"):
        agent.subscriptions.undeploy("shop")

    done = agent.subscriptions.undeploy("shop", "terminate")

    assert (done.terminated, done.instances_terminated, done.orchestrations) == (3, 3, 1)
    running.clean(agent)
    assert agent.configuration.list_orchestrations() == []


def test_kept_instances_do_nothing_until_they_are_resumed_after_a_new_deployment(agent: Agent, folder: Path) -> None:
    running.deploy(agent, folder, CONVERSATION, "fulfil")
    running.publish(agent, message(agent, "Order", "a"))
    running.run(agent)
    agent.subscriptions.undeploy("shop", "keep")
    [instance] = agent.instances.list()
    id_ = str(instance.id)

    [undone] = resume_instances(agent, [id_])
    running.publish(agent, message(agent, "Payment", "a"))
    running.run(agent)
    assert running.instances(agent) == [("fulfil", "suspended", 1)]
    running.redeploy(agent, folder)
    [resumed] = resume_instances(agent, [id_])
    running.run(agent)

    assert (instance.state, instance.code) == ("suspended", "application-undeployed")
    assert (undone.result, resumed.result) == ("is not suspended, or its application is undeployed", "resumed")
    assert running.instances(agent) == []
    assert running.sent(agent) == [("Note", {"id": "a", "amount": 1})]  # the first one is kept, suspended


def test_kept_convoy_that_has_not_begun_begins_after_a_new_deployment(agent: Agent, folder: Path) -> None:
    running.deploy(agent, folder, CONVOY, "collect")
    running.publish(agent, message(agent, "Line", "a"))
    agent.subscriptions.undeploy("shop", "keep")
    running.run(agent)
    ids = [str(each.id) for each in agent.instances.list()]

    running.redeploy(agent, folder)
    resume_instances(agent, ids)
    running.publish(agent, message(agent, "Line", "a", amount=2))
    running.run(agent)

    assert running.sent(agent) == [("Note", {"id": "a", "amount": 2})]
    running.clean(agent)


def paid(agent: Agent, number: int) -> None:
    """Publish a payment; PostgreSQL may ask to try again."""
    payment = message(agent, "Payment", f"{number}")
    for _ in range(5):
        try:
            running.publish(agent, payment)
            return
        except TransientError:
            continue
    running.publish(agent, payment)


@pytest.mark.parametrize("leaving", ["terminate", "keep"])
def test_undeploying_beside_steps_and_publishers_leaves_no_running_instance(
    agent: Agent, folder: Path, aside: ThreadPoolExecutor, leaving: Leaving
) -> None:
    running.deploy(agent, folder, CONVERSATION, "fulfil")
    running.publish(agent, *(message(agent, "Order", f"{number}") for number in range(100)))
    with running.engine(agent):
        paying = [aside.submit(paid, agent, number) for number in range(100)]

        agent.subscriptions.undeploy("shop", leaving)
        for each in paying:
            each.result(60)
        running.settled(agent)

    assert {state for _, state, _ in running.instances(agent)} <= {"suspended"}
    if leaving == "terminate":
        running.clean(agent)
    assert unbalanced(agent.database) == []
