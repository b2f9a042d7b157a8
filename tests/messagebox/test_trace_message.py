"""`trace`: what happened to each copy of a message, in order, and the messages that came of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import running
from box import a_publication, deployment, listed
from crossdock.administration import trace
from crossdock.administration.service import Administration, Selection
from crossdock.administration.trace import Traced
from crossdock.message.message import Message
from crossdock.message.publication import Publication, Settles
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.settle import Complete, Retry, Suspend
from express import a_message, claim, deploy, living, port, publish
from office import Office, eventually, written
from service import quick_upkeep

NORWAY = {"BTS.MessageType": "Order", "Region": "NO"}


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


def happened(traced: Traced) -> list[tuple[str, str | None, int | None]]:
    return [(each.event, each.port, each.attempt) for each in traced.events]


def answered(agent: Agent, host: str, *messages: Message) -> None:
    """Claim what is ready, and publish these as what came of it."""
    with living(agent, host) as life:
        [reference] = claim(agent, life, host)
        id_ = agent.configuration.hosts()[host]
        agent.publish([Publication(id_, messages, cause=Settles(id_, life.instance, reference.sequence))])


def test_attempts_are_told_in_order(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    message = a_message(agent, NORWAY)
    publish(agent, message)
    with living(agent) as life:
        agent.settle(life.instance, [Retry(each, timedelta(0), "away") for each in claim(agent, life)])
        agent.queues.requeue_due(agent.configuration.hosts()["Default"])
        agent.settle(life.instance, [Suspend(each, "refused") for each in claim(agent, life)])
        list(service.resume(service.choose("resume", Selection([str(message.id)]))))
        agent.settle(life.instance, [Complete(each) for each in claim(agent, life)])

    traced = service.trace(str(message.id))

    assert happened(traced) == [
        ("published", None, None),
        ("retried", "A", 1),
        ("suspended", "A", 2),
        ("resumed", "A", None),
        ("delivered", "A", 1),
    ]
    assert [each.reason for each in traced.events[1:3]] == ["away", "refused"]
    assert traced.events == sorted(traced.events, key=lambda each: each.at)
    assert (traced.type, traced.children) == ("Order", [])


def test_message_of_a_source_tells_where_it_came_in(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    [sequence] = listed(agent, "orders/a17.json")
    agent.publish([a_publication(agent, sequence, NORWAY)])

    first, second, third = service.trace(f"{sequence}-0").events

    assert (first.event, first.location) == ("received", "orders.in")
    assert (second.event, second.copies) == ("published", 1)
    assert (third.event, third.port, third.attempt) == ("queued", "A", 1)


def test_terminated_and_unrouted_are_told(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'SE'"))
    message = a_message(agent, NORWAY)
    publish(agent, message)

    list(service.terminate(service.choose("terminate", Selection([str(message.id)]))))

    assert [event for event, _, _ in happened(service.trace(str(message.id)))] == ["unrouted", "terminated"]


def test_answers_are_children(agent: Agent, service: Administration) -> None:
    deploy(agent, port("Ask", "Region = 'NO'"), port("Take", "Region = 'SE'", host="Other"))
    request, answer = a_message(agent, NORWAY), a_message(agent, {"BTS.MessageType": "Answer", "Region": "SE"})
    publish(agent, request)
    answered(agent, "Default", answer)

    traced = service.trace(str(request.id))

    assert [event for event, _, _ in happened(traced)] == ["published", "answered"]
    assert [(child.id, child.type) for child in traced.children] == [(str(answer.id), "Answer")]
    assert service.describe(str(answer.id)).parents == [str(request.id)]  # type: ignore[union-attr]


def test_tree_is_bounded_in_width_and_depth(
    agent: Agent, service: Administration, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, port("Again", "Region = 'NO'"))
    first = a_message(agent, NORWAY)
    publish(agent, first)
    for _ in range(5):  # each message is answered by one that goes the same way, and two that nobody wants
        answered(agent, "Default", a_message(agent, NORWAY), a_message(agent), a_message(agent))
    monkeypatch.setattr(trace, "DEPTH_LIMIT", 3)
    monkeypatch.setattr(trace, "CHILD_LIMIT", 2)

    depth, node = 0, service.trace(str(first.id))
    while node.children:
        assert (len(node.children), node.left_out) == (2, 1)
        depth, node = depth + 1, node.children[0]

    assert (depth, node.left_out) == (3, 3)


def test_instance_is_shown_with_what_it_sent(agent: Agent, service: Administration, folder: Path) -> None:
    running.deploy(
        agent,
        folder,
        """
        out = Port("Out")
        case = Correlation("OrderId", types=["Payment"])

        @orchestration(Receive("Order", initializes=case))
        async def fulfil(process: Process, order: Message) -> None:
            await process.send(out, process.message("Note", order.json()))
            payment = await process.receive(case)
            await process.send(out, process.message("Line", payment.json()))
        """,
        "fulfil",
    )
    order, payment = running.message(agent, "Order", "a"), running.message(agent, "Payment", "a")
    running.publish(agent, order)
    running.run(agent)
    running.publish(agent, payment)
    running.run(agent)

    of_order, of_payment = service.trace(str(order.id)), service.trace(str(payment.id))

    [instance] = of_order.children
    assert (instance.kind, instance.type) == ("instance", "fulfil")
    assert [each.type for each in instance.children] == ["Note", "Line"]
    assert [[each.type for each in child.children] for child in of_payment.children] == [["Line"]]
    explained = service.explain(str(payment.id))
    assert [(each.name, each.matched) for each in explained.subscriptions if each.instance] == [("fulfil", True)]


def test_deliveries_of_a_trace_are_the_files_that_were_written(database: str, tmp_path: Path) -> None:
    def out(name: str, filter_: str) -> dict[str, str]:
        return {"name": name, "adapter": "file", "address": f"{name}/%MessageID%", "filter": filter_}

    ports = [out("North", "Region = 'NO'"), out("All", "EXISTS(Region)"), out("Blocked", "Region = 'SE'")]
    (tmp_path / "Blocked").write_bytes(b"in the way")
    office = Office(
        database, tmp_path, {"properties": {"Region": "text"}, "send_ports": ports}, host_limits=quick_upkeep(workers=4)
    )
    with office.open():
        ids = [str(office.publish(Region=region).id) for region in ("NO", "SE", "DK", "NO")]
        eventually(lambda: office.port("Blocked")["waiting"], 1)
        (tmp_path / "Blocked").unlink()
        office.clock.jump(minutes=6)
        eventually(lambda: len(written(tmp_path / "Blocked")), 1)
        office.settled()
    service = Administration(office.agent, text_limit=256)

    traces = {id_: service.trace(id_) for id_ in ids}

    files = {(folder, name) for folder in ("North", "All", "Blocked") for name in written(tmp_path / folder)}
    delivered = [
        (each.port, id_) for id_, traced in traces.items() for each in traced.events if each.event == "delivered"
    ]
    assert sorted(map(str, delivered)) == sorted(map(str, files))
    retried = [each.port for traced in traces.values() for each in traced.events if each.event == "retried"]
    assert retried == ["Blocked"]


def test_edited_copy_is_told_and_what_took_its_place_is_a_child(agent: Agent, service: Administration) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    agent.subscriptions.stop("A")
    message = a_message(agent, NORWAY)
    publish(agent, message)

    edited = service.edit(service.editable(str(message.id), "A"), body=b"mended", properties=[])

    traced = service.trace(str(message.id))
    assert [event for event, _, _ in happened(traced)] == ["published", "suspended", "edited"]
    assert [child.id for child in traced.children] == [edited.edited_id]
