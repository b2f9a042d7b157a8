"""What waits for a person: the report about it, resuming it where it stopped, ending it for good."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import TypeVar
from uuid import UUID, uuid4

import pytest

import acting
import settling
from box import AT_ONCE, count, deployment
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import UsageError
from crossdock.maintenance.references import CleanReferences
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.maintenance.suspended import PurgeSuspended
from crossdock.messagebox.agent import Agent
from crossdock.receive.location import ReceiveLocation
from express import at_ports, claim, delivered_now, deploy, kinds, living, port, publish, unbalanced
from server_clock import shift_clock
from walk import EXAMPLES

NORWAY = {"Region": "NO"}
ORDERS = (EXAMPLES / "orders.yaml").read_text()
Result = TypeVar("Result")


def failed_delivery(agent: Agent) -> tuple[UUID, int]:
    """A delivery that was suspended at its second attempt: the message, and its place in the queue."""
    deploy(agent, port("Shipping", "Region = 'NO'"))
    host = agent.configuration.hosts()["Default"]
    publish(agent, NORWAY)
    with living(agent) as life:
        [reference] = claim(agent, life)
        settling.retry(agent, host, life.instance, [(reference.sequence, AT_ONCE, "down")])
        agent.queues.requeue_due(host)
        claim(agent, life)
        settling.suspend(agent, host, life.instance, [(reference.sequence, "refused")])
    return reference.message.id, reference.sequence


def unrouted(agent: Agent) -> UUID:
    """A message from Norway that nobody wants."""
    deploy(agent, port("Sweden", "Region = 'SE'"))
    publish(agent, NORWAY)
    [row] = agent.suspended.messages()
    return row.id


def received(agent: Agent, folder: Path, application: str, content: bytes) -> None:
    """What comes of a file with this content, in the application as it is deployed first."""
    deploy_text(agent, folder, application)
    [(id_, host, definition)] = agent.configuration.locations()
    location = ReceiveLocation.from_definition(id_, host, definition)
    agent.ledger.enter([(id_, f"1:2:3:{folder}/in/a.json".encode(), len(content))])
    [item] = agent.ledger.read(0, 2**62)
    agent.publish([location.publication(item, content)])


def deploy_text(agent: Agent, folder: Path, application: str) -> None:
    path = folder / "orders.yaml"
    path.write_text(application)
    agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))


def clean(agent: Agent) -> None:
    """Twice: a part goes in the round after its message."""
    for _ in range(2):
        CleanReferences(agent).run_once()


def test_failed_delivery_is_resumed_in_its_place_with_all_its_attempts_also_where_the_port_is_stopped(
    agent: Agent, database: str
) -> None:
    message, sequence = failed_delivery(agent)
    agent.subscriptions.stop("Shipping")

    [result] = acting.resume(agent, [str(message)])

    assert (result.kind, result.port, result.result) == ("send", "Shipping", "queued again")
    [again] = delivered_now(agent)
    assert (again.sequence, again.attempt, again.message.id) == (sequence, 0, message)
    assert unbalanced(database) == []


def test_resuming_goes_to_the_host_that_has_the_port_now(agent: Agent) -> None:
    message, _ = failed_delivery(agent)
    deploy(agent, port("Shipping", "Region = 'NO'", host="Elsewhere"))

    acting.resume(agent, [str(message)])

    assert delivered_now(agent) == []
    assert len(delivered_now(agent, "Elsewhere")) == 1


def test_location_that_this_version_cannot_read_keeps_no_delivery_from_being_resumed(agent: Agent) -> None:
    message, _ = failed_delivery(agent)
    agent.subscriptions.deploy(deployment("older"))

    assert acting.resume(agent, [str(message)])[0].result == "queued again"


def test_delivery_that_two_resume_at_once_is_delivered_once(agent: Agent, database: str) -> None:
    message, _ = failed_delivery(agent)

    resumed = both_at_once(lambda: agent.suspended.resume([message]))

    assert sorted(resumed, key=len) == [{}, {message: 1}]
    assert at_ports(agent) == {"Shipping": 1}
    with pytest.raises(UsageError, match=f"No message {message} is suspended"):
        acting.resume(agent, [str(message)])
    assert unbalanced(database) == []


def test_report_names_five_nearest_misses_and_those_for_the_same_type_first(agent: Agent) -> None:
    nearer = [port(f"Other{n}", "MessageType = 'Invoice' OR Region = 'SE'") for n in range(4)]
    same = [port(f"Same{n}", "MessageType = 'order' AND Region = 'SE' AND Amount > 5") for n in range(3)]
    deploy(agent, *nearer, *same, port("Untyped", "Region = 'DK'"), port("Addressed"))
    publish(agent, {**NORWAY, "BTS.MessageType": "Order"})
    report = ReportRoutingFailures(agent)

    assert [row.nearest_misses for row in agent.suspended.messages()] == [None]
    assert (report.run_once(), report.run_once()) == (1, 0)

    [row] = agent.suspended.messages()
    assert row.nearest_misses is not None
    assert [miss["service"] for miss in row.nearest_misses] == ["Same0", "Same1", "Same2", "Untyped", "Other0"]
    assert row.nearest_misses[0] == {
        "service": "Same0",
        "holding": 1,
        "failing": ["Region = 'SE' (Region is text 'NO')", "Amount > 5 (Amount is absent)"],
    }


def test_report_about_any_text_is_kept_and_shown(agent: Agent) -> None:
    texts = ["\0", "\\u0000", "\\\\u0000 \0", "\\0", "'\"\\", "\u2028"]
    deploy(agent, port("Sweden", "Region = 'SE'"))
    publish(agent, *({"Region": text} for text in texts))

    ReportRoutingFailures(agent).run_once()

    assert [len(row.nearest_misses or ()) for row in agent.suspended.messages()] == [1] * len(texts)


def test_unrouted_message_is_routed_once_somebody_wants_it_and_its_report_is_dropped(
    agent: Agent, database: str
) -> None:
    message = unrouted(agent)
    ReportRoutingFailures(agent).run_once()

    assert acting.resume(agent, [str(message)])[0].result == "still nobody wants it"
    assert (kinds(agent), count(database, "routing_failure")) == ([("unrouted", None)], 1)
    wanted = [port("Sweden", "Region = 'SE'"), port("Norway", "Region = 'NO'"), port("All", "EXISTS(Region)")]
    deploy(agent, *wanted, port("Third", "EXISTS(Region)", host="Elsewhere"))

    assert acting.resume(agent, [str(message)])[0].result == "routed"
    assert (kinds(agent), count(database, "routing_failure")) == ([], 0)
    assert at_ports(agent) == {"Norway": 1, "All": 1, "Third": 1}
    assert unbalanced(database) == []
    assert [each.message.id for each in delivered_now(agent) + delivered_now(agent, "Elsewhere")] == [message] * 3
    clean(agent)
    assert (count(database, "message"), count(database, "part"), count(database, "message_ref_total")) == (0, 0, 0)


def test_unrouted_message_that_only_a_stopped_port_wants_waits_for_its_start(agent: Agent, database: str) -> None:
    message = unrouted(agent)
    deploy(agent, port("Norway", "Region = 'NO'"))
    agent.subscriptions.stop("Norway")

    assert acting.resume(agent, [str(message)])[0].result == "routed"

    assert kinds(agent) == [("stopped", "Norway")]
    assert agent.subscriptions.start("Norway").resumed == 1
    assert unbalanced(database) == []


def test_unrouted_message_that_two_resume_at_once_is_routed_once(agent: Agent, database: str) -> None:
    message = unrouted(agent)
    deploy(agent, port("Norway", "Region = 'NO'"), port("All", "EXISTS(Region)"))

    routed = both_at_once(lambda: agent.route_again([message]))

    assert sorted(routed, key=len) == [{}, {message: True}]
    assert at_ports(agent) == {"Norway": 1, "All": 1}
    assert unbalanced(database) == []


def test_resuming_needs_no_second_connection_while_it_holds_one(agent: Agent, database: str) -> None:
    message = unrouted(agent)
    deploy(agent, port("Norway", "Region = 'NO'"))

    with Agent(database, connections=1) as frugal:
        assert frugal.route_again([message]) == {message: True}


def test_document_that_still_fails_or_whose_location_is_disabled_stays_as_it_is(
    agent: Agent, database: str, folder: Path
) -> None:
    received(agent, folder, ORDERS, b'{"id": "a", "amount": "lots"}')
    [failure] = agent.suspended.messages()

    [still_fails] = acting.resume(agent, [str(failure.id)])
    agent.subscriptions.enable("OrdersIn.file", enabled=False)
    [disabled] = acting.resume(agent, [str(failure.id)])

    assert still_fails.result.startswith("still fails: property 'Amount' is decimal")
    assert disabled.result == (
        "still suspended: receive location 'OrdersIn.file' is disabled. Enable it with: crossdock enable OrdersIn.file"
    )
    assert not disabled.done
    assert agent.suspended.messages() == [failure]
    assert unbalanced(database) == []


def test_document_whose_location_is_not_deployed_any_more_says_so_and_what_to_do(agent: Agent, folder: Path) -> None:
    received(agent, folder, ORDERS, b'{"id": "a", "amount": "lots"}')
    [failure] = agent.suspended.messages()
    deploy_text(agent, folder, ORDERS.replace("OrdersIn", "OtherIn"))

    [gone] = acting.resume(agent, [str(failure.id)])

    assert gone.result == (
        "still suspended: receive location 'OrdersIn.file' is not deployed any more. Deploy it again, or save the "
        f"message with: crossdock save {failure.id}"
    )


def test_document_that_failed_by_its_definition_is_published_once_the_definition_is_mended(
    agent: Agent, database: str, folder: Path
) -> None:
    content = b'{"id": "a", "region": "EU", "amount": "lots", "total": 2000}'
    received(agent, folder, ORDERS, content)
    [failure] = agent.suspended.messages()
    deploy_text(agent, folder, ORDERS.replace("$.amount", "$.total"))

    def resume() -> str:
        try:
            return str(acting.resume(agent, [str(failure.id)])[0].result)
        except UsageError:
            return "resumed by somebody else"  # who had finished before this one looked

    assert sorted(both_at_once(resume)) == ["published 1, unrouted 0, suspended 0", "resumed by somebody else"]
    assert at_ports(agent) == {"EuropeLarge": 1, "Archive": 1}
    references = delivered_now(agent)
    assert {each.message.body for each in references} == {content}
    [context] = {each.message.id: each.message.context for each in references}.values()
    assert context.written["FILE.ReceivedFileName"] == f"{folder}/in/a.json"
    assert unbalanced(database) == []
    clean(agent)
    assert (count(database, "message"), count(database, "part")) == (0, 0)


def test_document_that_nobody_wants_after_all_is_unrouted_in_place_of_its_failure(
    agent: Agent, database: str, folder: Path
) -> None:
    received(agent, folder, ORDERS, b'{"id": "a", "amount": "lots", "total": 2000}')
    [failure] = agent.suspended.messages()
    agent.subscriptions.unenlist("Archive")
    deploy_text(agent, folder, ORDERS.replace("$.amount", "$.total"))

    [result] = acting.resume(agent, [str(failure.id)])

    assert result.result == "published 0, unrouted 1, suspended 0"
    assert kinds(agent) == [("unrouted", None)]
    assert unbalanced(database) == []


def test_terminating_ends_every_suspended_reference_and_the_spool_empties(agent: Agent, database: str) -> None:
    deploy(agent, *(port(name, "Region = 'NO'") for name in ("A", "B", "Alive")))
    agent.subscriptions.stop("A")
    agent.subscriptions.stop("B")
    publish(agent, NORWAY, {"Region": "unknown"})
    ReportRoutingFailures(agent).run_once()
    both = list({str(row.id): None for row in agent.suspended.messages()})

    with pytest.raises(UsageError, match=f"Message {both[0]} is suspended at 2 ports: A, B. Name one with --port NAME"):
        acting.terminate(agent, both)
    ended = acting.terminate(agent, both, everything=True)

    assert [(row.id, row.port, row.done) for row in ended] == [
        (both[0], "A", True), (both[0], "B", True), (both[1], None, True)
    ]  # fmt: skip
    assert kinds(agent) == []
    clean(agent)
    assert count(database, "message") == 1
    assert len(delivered_now(agent)) == 1
    clean(agent)
    for table in ("message", "part", "routing_failure", "message_ref_total", "part_ref_total"):
        assert count(database, table) == 0, table
    with pytest.raises(UsageError, match="is suspended"):
        acting.terminate(agent, both)


def test_nothing_is_purged_unless_somebody_said_after_how_long(agent: Agent, database: str) -> None:
    unrouted(agent)
    publish(agent, *[NORWAY] * 4)
    shift_clock(database, timedelta(days=3))

    assert PurgeSuspended(agent, None).run_once() == 0
    assert PurgeSuspended(agent, timedelta(days=4)).run_once() == 0
    assert len(agent.suspended.messages()) == 5
    assert sum(both_at_once(PurgeSuspended(agent, timedelta(days=2)).run_once)) == 5

    assert unbalanced(database) == []
    clean(agent)
    assert (count(database, "message"), count(database, "part")) == (0, 0)


def test_one_unknown_id_is_refused_and_then_nothing_is_done(agent: Agent) -> None:
    message, _ = failed_delivery(agent)
    unknown, no_id = str(uuid4()), "not-an-id"

    for verb in (acting.resume, acting.terminate):
        with pytest.raises(UsageError, match=f"No message {unknown} is suspended"):
            verb(agent, [str(message), unknown])
        with pytest.raises(UsageError, match=f"'{no_id}' is not a message id"):
            verb(agent, [str(message), no_id])
    assert kinds(agent) == [("send", "Shipping")]
    assert agent.suspended.resume([UUID(unknown)]) == agent.route_again([UUID(unknown)]) == {}


def both_at_once(work: Callable[[], Result]) -> list[Result]:
    """What two threads get that do the same at the same time."""
    together = Barrier(2)

    def attempt(_: int) -> Result:
        together.wait()
        return work()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(attempt, range(2)))
