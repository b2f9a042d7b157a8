"""Trouble is said once per artefact and code, now and then, and when it is over; never a word of what a message says."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest

from box import a_publication, an_orchestration, deployment, ids, listed
from crossdock.cli.logs import LogFormat, LogLevel, Logs
from crossdock.cli.output import progress
from crossdock.host.outcome import Complete as Delivered
from crossdock.host.outcome import Retry as TryAgain
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, DeployedPort, Deployment
from crossdock.messagebox.instance_change import InstanceChange
from crossdock.messagebox.queues import ORCHESTRATIONS
from crossdock.messagebox.settle import Complete, Hold, Retry, Settlement, Suspend
from crossdock.messagebox.step import Step
from crossdock.messagebox.troubles import Trouble
from crossdock.monitoring.notices import Notices
from express import claim, deploy, living, port, publish
from service import Partner, publish_named, running
from walk import until

NORWAY = {"Region": "NO"}
SECRET = "hunter2"
SOON = timedelta(0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def notices(agent: Agent, clock: Clock, caplog: pytest.LogCaptureFixture) -> Iterator[Notices]:
    made = deployment(Invoices="Region = 'NO'")
    ports = [DeployedPort(each.name, each.host, 5, each.filter, {"name": each.name}) for each in made.ports]
    locations = [DeployedLocation("orders.in", "Default", {"name": "orders.in"})]
    flow = an_orchestration("Flow", "Region = 'IN'")
    agent.subscriptions.deploy(Deployment("orders", made.properties, locations, ports, orchestrations=[flow]))
    with caplog.at_level(logging.WARNING):
        yield Notices(agent, clock)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.message for record in caplog.records if record.name == "crossdock.monitoring.notices"]
    caplog.clear()
    return lines


def settle_all(agent: Agent, *outcomes: type[Settlement], code: str = "partner-refused") -> None:
    """Publish a message for each of these outcomes, and settle it so."""
    publish(agent, *[NORWAY] * len(outcomes))
    with living(agent) as life:
        made: list[Settlement] = []
        for reference, outcome in zip(claim(agent, life), outcomes, strict=True):
            if outcome is Suspend:
                made.append(Suspend(reference, f"it says {SECRET}", code=code))
            else:
                made.append(Retry(reference, SOON, f"{SECRET} is away") if outcome is Retry else Complete(reference))
        agent.settle(life.instance, made)


def test_suspended_messages_are_said_once_with_code_count_and_next_step(
    agent: Agent, notices: Notices, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    settle_all(agent, Suspend, Suspend, Complete)
    notices.tend()
    first = said(caplog)
    for _ in range(5):
        settle_all(agent, Suspend)
        notices.tend()
        clock.now += 5
    between = said(caplog)
    clock.now += 300
    notices.tend()

    assert first == [
        "Send port 'Invoices': 2 messages are suspended (partner-refused). See: crossdock get suspended --port Invoices --code partner-refused"
    ]
    assert between == []
    assert said(caplog) == [
        "Send port 'Invoices': 5 messages are suspended (partner-refused), 7 in all. See: crossdock get suspended --port Invoices --code partner-refused"
    ]


def test_each_code_is_said_by_itself(agent: Agent, notices: Notices, caplog: pytest.LogCaptureFixture) -> None:
    settle_all(agent, Suspend, code="partner-refused")
    settle_all(agent, Suspend, code="pipeline-failed")
    notices.tend()

    assert [line.split("(")[1].split(")")[0] for line in said(caplog)] == ["partner-refused", "pipeline-failed"]


def test_partner_that_goes_away_and_comes_back_is_said_twice(
    agent: Agent, notices: Notices, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    settle_all(agent, Retry, Retry)
    notices.tend()
    clock.now += 30
    agent.queues.requeue_due(ids(agent)[1])
    with living(agent) as life:
        agent.settle(life.instance, [Retry(each, SOON, "still") for each in claim(agent, life)])
    notices.tend()
    agent.queues.requeue_due(ids(agent)[1])
    with living(agent) as life:
        agent.settle(life.instance, [Complete(each) for each in claim(agent, life)])
    notices.tend()
    away = said(caplog)
    clock.now += 11
    notices.tend()
    back = said(caplog)
    notices.tend()

    assert away == [
        "Send port 'Invoices': 2 deliveries failed (not-now); they are tried again. See: crossdock get waiting --port Invoices"
    ]
    assert back[-1] == "Send port 'Invoices' works again after 30 s, 4 failed (not-now)"
    assert said(caplog) == []


def test_port_that_fails_now_and_then_does_not_come_and_go(
    agent: Agent, notices: Notices, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        settle_all(agent, Suspend, Complete, Complete)
        settle_all(agent, Complete)
        notices.tend()
        clock.now += 5

    assert len(said(caplog)) == 1


def test_receive_location_says_what_it_cannot_use_and_what_nobody_wants(
    agent: Agent, notices: Notices, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = listed(agent, "first", "second")
    agent.publish([a_publication(agent, first, NORWAY, {"Region": "XX"}, failures=3)])
    notices.tend()
    wrong = said(caplog)
    agent.publish([a_publication(agent, second, NORWAY)])
    notices.tend()
    clock.now += 11
    notices.tend()

    assert sorted(wrong) == [
        "Receive location 'orders.in': 3 messages are suspended (document-invalid). See: crossdock get suspended --code document-invalid",
        "Receive location 'orders.in': nobody subscribes to 1 message (no-subscriber). See: crossdock get suspended --code no-subscriber",
    ]
    [over] = said(caplog)  # of what it could not use; where nobody subscribed it has worked all the time
    assert over.startswith("Receive location 'orders.in' works again, 3 failed (document-invalid)")


def test_receive_location_whose_messages_nobody_wants_is_not_said_to_work_again(
    agent: Agent, notices: Notices, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = listed(agent, "first", "second")
    agent.publish([a_publication(agent, first, {"Region": "XX"})])
    notices.tend()
    agent.publish([a_publication(agent, second, NORWAY)])
    notices.tend()
    clock.now += 11
    notices.tend()

    assert [line.split(" (")[0] for line in said(caplog)] == [
        "Receive location 'orders.in': nobody subscribes to 1 message"
    ]


def test_orchestration_says_that_instances_are_suspended(
    agent: Agent, notices: Notices, caplog: pytest.LogCaptureFixture
) -> None:
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    _, host = ids(agent)
    with living(agent) as life:
        [reference] = agent.queues.dequeue(host, life.instance, limit=1, subqueue=ORCHESTRATIONS)
        assert reference.instance is not None
        change = InstanceChange(
            reference.instance, reference.service_id, "0" * 64, reference.message.id,
            state="suspended", code="orchestration-failed", reason=SECRET,
        )  # fmt: skip
        held = Hold(reference, reference.instance, None)
        assert agent.step([Step(host, life.instance, [held], change=change)])[0].done
    notices.tend()

    assert said(caplog) == [
        "Orchestration 'Flow': 1 instance is suspended (orchestration-failed). See: crossdock get instances"
    ]


def test_answers_that_nobody_waits_for_are_said_with_the_name_of_their_port(
    agent: Agent, notices: Notices, caplog: pytest.LogCaptureFixture
) -> None:
    deploy(agent, port("Ask.response", waits=True), application="asking")
    id_ = agent.configuration.waiting_services()["Ask.response"]

    agent.troubles.add(Trouble("service", id_, "nobody-waits", 49))
    notices.tend()

    assert said(caplog) == [
        "Receive port 'Ask.response': 49 messages are suspended (nobody-waits). See: crossdock get suspended --port Ask.response --code nobody-waits"
    ]


def test_port_that_waits_for_nothing_any_more_is_still_named(
    agent: Agent, notices: Notices, caplog: pytest.LogCaptureFixture
) -> None:
    deploy(agent, port("Ask.response", waits=True), application="asking")
    id_ = agent.configuration.waiting_services()["Ask.response"]
    agent.subscriptions.undeploy("asking")

    agent.troubles.add(Trouble("service", id_, "nobody-waits", 1))
    notices.tend()

    assert said(caplog)[0].startswith("Service 'Ask.response': 1 message is suspended")


def test_what_was_not_said_yet_is_said_at_the_end_and_no_reason_is_quoted(
    agent: Agent, notices: Notices, caplog: pytest.LogCaptureFixture
) -> None:
    settle_all(agent, Suspend)
    notices.tend()
    settle_all(agent, Suspend, Retry)
    notices.tend()
    notices.end()

    lines = said(caplog)
    assert len(lines) == 3
    assert SECRET not in "\n".join(lines)


def test_host_instance_whose_partner_is_away_is_said(
    agent: Agent, notices: Notices, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    partner = Partner(lambda _, attempt: TryAgain(SOON, "away") if attempt < 2 else Delivered())
    with running(agent, partner):
        publish_named(agent, "one")
        until(lambda: partner.got == ["one"])
        until(lambda: agent.statistics().delivered == 1)

        def over() -> bool:
            notices.tend()
            clock.now += 11
            return any("works again" in record.message for record in caplog.records)

        until(over)

    assert "Send port 'Invoices': 2 deliveries failed (not-now)" in said(caplog)[0]


def test_json_line_has_the_facts_as_members(agent: Agent, notices: Notices, capsys: pytest.CaptureFixture[str]) -> None:
    settle_all(agent, Suspend)

    with progress(Logs(LogLevel.WARNING, LogFormat.JSON)):
        notices.tend()

    [line] = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["level"], told["artefact"], told["name"]) == ("warning", "send port", "Invoices")
    assert (told["code"], told["count"]) == ("partner-refused", 1)
    assert told["time"].endswith("Z")


def test_json_line_is_one_line_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = 'a"\n{"level": "forged"}\x1b[2J\u2028\u202e'
    logger = logging.getLogger("crossdock.test")

    with progress(Logs(LogLevel.INFO, LogFormat.JSON)) as show:
        logger.warning("File %s", hostile)
        try:
            raise ValueError(hostile)
        except ValueError:
            logger.exception("It failed")
        logger.debug("nothing")
        assert show is not None

    lines = capsys.readouterr().err.splitlines()
    documents = [json.loads(line) for line in lines]
    assert [each["level"] for each in documents] == ["warning", "error"]
    assert documents[0]["message"] == f"File {hostile}"
    assert "ValueError" in documents[1]["exception"]
    assert all(letter.isprintable() for line in lines for letter in line)
