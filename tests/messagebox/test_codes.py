"""The code of a suspended message: every way to be suspended has one, and an older MessageBox gets them."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import AttemptsError
from crossdock.host.outcome import Outcome, Suspend
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.migrate import migrations
from crossdock.messagebox.settle import GiveBack
from crossdock.receive.location import ReceiveLocation
from express import a_message, claim, deploy, living, port, publish
from service import Partner, publish_named, running, settled
from walk import EXAMPLES, until

NORWAY = {"Region": "NO"}
OLD_SUSPENSIONS = [
    ("receive", "the file is empty", "document-invalid"),
    ("receive", "property 'Amount' is decimal, and in $.amount 'lots' is not a decimal", "value-of-wrong-type"),
    ("receive", "line 3: property 'Amount' is decimal, and in amount 'x' is not a decimal", "value-of-wrong-type"),
    ("receive", "the pipeline failed: KeyError: 'a'", "pipeline-failed"),
    ("receive", "the pipeline took more than 300 seconds", "pipeline-too-slow"),
    ("receive", "reading it ended the process, 3 times by itself; it was not tried again", "too-many-deaths"),
    ("receive", "the MessageBox cannot hold it: DataError: no", "not-storable"),
    ("unrouted", "No subscription matches: the message has no type.", "no-subscriber"),
    ("unrouted", "No subscription matches: A would, but the host lacks the label secret.", "label-missing"),
    ("unrouted", "The send port that BTS.SPTransportID names is not enlisted.", "port-not-enlisted"),
    ("unrouted", "The request matches more than one two-way subscriber: A, B.", "more-than-one-answer"),
    ("stopped", "Send port 'A' is stopped.", "port-stopped"),
    ("send", "The host A lacks the label b of this message. Give it the label.", "label-missing"),
    ("send", "Send port 'A' gave up after 4 attempts: it is away", "attempts-used-up"),
    ("send", "Send port 'A': unexpected KeyError: 'a'", "unexpected-error"),
    ("send", "Unexpected KeyError: 'a'", "unexpected-error"),
    ("send", "Send port 'A': file b exists with other content", "delivery-failed"),
    ("send", "The send port is no longer deployed.", "port-gone"),
    ("send", "The process that delivered it has ended 4 times; it was not tried again.", "too-many-deaths"),
    ("send", "The message of this reference is gone from the MessageBox: it cannot be", "message-gone"),
    ("response", "The stored context of this message cannot be read: it can be saved", "message-unreadable"),
    ("response", "The client hung up before it had the response.", "nobody-waits"),
    ("discarded", "The instance ended without taking this message.", "instance-ended"),
]


def codes(agent: Agent) -> list[tuple[str, str]]:
    """(kind, code) of everything that is suspended, the oldest first."""
    return [(row.kind, row.code) for row in agent.suspended.messages()]


def test_message_that_nobody_gets_has_the_code_of_the_reason(agent: Agent) -> None:
    deploy(agent, port("Sweden", "Region = 'SE'"), port("Idle", "Region = 'NO'"))
    nowhere = {"BTS.SPTransportID": "00000000-0000-0000-0000-000000000000"}
    publish(agent, {"Region": "DK"})
    publish(agent, nowhere)
    publish(agent, a_message(agent, {"Region": "SE"}, labels=["secret"]))
    agent.subscriptions.stop("Idle")
    publish(agent, NORWAY)

    assert codes(agent) == [
        ("unrouted", "no-subscriber"),
        ("unrouted", "port-not-enlisted"),
        ("unrouted", "label-missing"),
        ("stopped", "port-stopped"),
    ]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"not JSON", "document-invalid"),
        (b"", "document-invalid"),
        (b'{"id": "a", "amount": "lots"}', "value-of-wrong-type"),
    ],
)
def test_document_that_fails_has_the_code_of_its_error(agent: Agent, folder: Path, content: bytes, code: str) -> None:
    path = folder / "orders.yaml"
    path.write_text((EXAMPLES / "orders.yaml").read_text())
    agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))
    [(id_, host, definition)] = agent.configuration.locations()
    location = ReceiveLocation.from_definition(id_, host, definition)

    agent.publish([location.pushed(content, {}, agent.message_id)])

    assert codes(agent) == [("receive", code)]


@pytest.mark.parametrize("ordered", [False, True])
def test_delivery_that_gave_up_has_the_code_of_its_outcome(agent: Agent, ordered: bool) -> None:
    deploy(agent, port("Out", "Region = 'NO'", ordered=ordered))
    publish_named(agent, "gave up", "raises", "refused")

    def answer(name: str, _: int) -> Outcome:
        if name == "raises":
            raise ValueError(name)
        return Suspend.because(AttemptsError("too often")) if name == "gave up" else Suspend("no")

    with running(agent, Partner(answer)):
        until(lambda: settled(agent) and len(codes(agent)) == 3)

    assert sorted(codes(agent)) == [
        ("send", "attempts-used-up"),
        ("send", "delivery-failed"),
        ("send", "unexpected-error"),
    ]


def test_delivery_to_a_port_that_is_gone_has_its_own_code(agent: Agent) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    publish_named(agent, "one")

    with running(agent, None):
        until(lambda: settled(agent))

    assert codes(agent) == [("send", "port-gone")]


def test_what_waits_at_a_host_that_loses_a_label_says_so_by_its_code(agent: Agent) -> None:
    deploy(agent, port("Out", "Region = 'NO'"), hosts={"Default": ["secret"]})
    publish(agent, a_message(agent, NORWAY, labels=["secret"]))
    publish(agent, a_message(agent, NORWAY, labels=["secret"]))
    with living(agent) as life:
        [held] = claim(agent, life, limit=1)
        deploy(agent, port("Out", "Region = 'NO'"))
        agent.settle(life.instance, [GiveBack(held)])

    assert codes(agent) == [("send", "label-missing")] * 2
    agent.suspended.resume([held.message.id])
    assert codes(agent) == [("send", "label-missing")] * 2


def test_what_an_older_version_suspended_gets_its_code(empty_database: str) -> None:
    older_box(empty_database, "0018")
    with psycopg.connect(empty_database, autocommit=True, options="-csearch_path=crossdock") as connection:
        for kind, reason, _ in OLD_SUSPENSIONS:
            connection.execute(
                "INSERT INTO suspended (host_id, kind, message_id, service_id, reason)"
                " VALUES (1, %s, gen_random_uuid(), %s, %s)",
                [kind, None if kind in ("receive", "unrouted") else 1, reason],
            )

    with Agent(empty_database) as agent:
        agent.box.create()
        found = [(row.kind, row.reason, row.code) for row in agent.suspended.messages()]

    assert found == OLD_SUSPENSIONS


def test_state_of_an_instance_of_an_older_version_is_one_word_afterwards(empty_database: str) -> None:
    older_box(empty_database, "0018")
    with psycopg.connect(empty_database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "INSERT INTO host_instance (id, host_id, machine, process, state)"
            " VALUES (1, 1, 'here', 1, 'stuck: 2,000 messages in hand, and nothing moves'), (2, 1, 'here', 2, 'running')"
        )

        with Agent(empty_database) as agent:
            agent.box.create()
        states = connection.execute("SELECT state FROM host_instance ORDER BY id").fetchall()

    assert states == [("stuck",), ("running",)]


def older_box(database: str, before: str) -> None:
    """A MessageBox with a host and a service, as it was before this migration."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA crossdock")
        connection.execute("SET search_path TO crossdock")
        connection.execute("CREATE TABLE migration (name text PRIMARY KEY, applied_at timestamptz DEFAULT now())")
        for name, text in migrations().items():
            if name < before:
                connection.execute(text.encode())
                connection.execute("INSERT INTO migration (name) VALUES (%s)", [name])
        connection.execute("INSERT INTO box (number, case_sensitive) VALUES (5, false)")
        connection.execute("SELECT create_host('Default')")
        connection.execute("INSERT INTO application (name, digest) VALUES ('orders', 'old')")
        connection.execute(
            "INSERT INTO service (name, application, host_id, definition) VALUES ('A', 'orders', 1, '{}')"
        )
