"""One item that the MessageBox cannot keep is suspended with its own bytes and a reason; the others go on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import psycopg
import pytest

from crossdock.adapter.file.adapter import file_identity
from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.dataflow.worker import Worker
from crossdock.errors import ContextError, TransientError
from crossdock.host.outcome import Answer, Complete, Outcome
from crossdock.host.publisher import Publisher
from crossdock.message.context import CONTEXT_LIMIT_BYTES, PROPERTIES_LIMIT, WRITTEN_TEXT_LIMIT
from crossdock.message.message import Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Published
from crossdock.pipeline import limits
from crossdock.receive.location import ReceiveLocation
from express import a_message, deploy, port, publish
from service import Partner, publish_named, running, settled
from walk import until

LONG = "x" * (WRITTEN_TEXT_LIMIT + 1)
LONGEST = "x" * WRITTEN_TEXT_LIMIT
FIELDS = CONTEXT_LIMIT_BYTES // WRITTEN_TEXT_LIMIT + 1
XML = [
    {
        "type": "Batch", "format": "xml", "body": "/Batch/orders", "promote": {},
        "distinguished": {"Note": "/Batch/note"},
    },
    {"type": "Order", "format": "xml"},
]  # fmt: skip


def deployed(agent: Agent, folder: Path, pipeline: str = "json", schemas: Sequence[Any] = ()) -> None:
    """Whatever comes to `in` goes to one port; of JSON, fields f0, f1 and so on are distinguished."""
    (folder / "in").mkdir()
    names = [f"F{n}" for n in range(FIELDS)]
    order = {"type": "Order", "format": "json", "distinguished": {name: f"$.{name.lower()}" for name in names}}
    model = ApplicationModel.model_validate(
        {
            "application": "orders",
            "properties": dict.fromkeys([*names, "Note"], "text"),
            "schemas": schemas or [order],
            "receive_ports": [
                {"name": "In", "locations": [{"adapter": "file", "address": "in/*", "pipeline": pipeline}]}
            ],
            "send_ports": [
                {"name": "All", "adapter": "file", "address": "out/%MessageID%", "filter": "EXISTS(MessageType)"}
            ],
        }
    )
    agent.subscriptions.deploy(deployment_of(model, folder / "orders.yaml", text_limit=256))


def received(agent: Agent, folder: Path, *contents: bytes) -> None:
    """Files with these contents go through a worker, all in one task."""
    [(location, _, _)] = agent.configuration.locations()
    paths = [folder / "in" / f"{n:04}" for n in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    agent.ledger.enter([(location, file_identity(path), path.stat().st_size) for path in paths])
    assert list(Worker(agent).receive(agent.ledger.read(0, 2**62))) != []


def order(**fields: str) -> bytes:
    return json.dumps(fields).encode()


def kept_back(agent: Agent) -> list[tuple[str, bytes]]:
    """(reason, bytes) of everything that is suspended."""
    found = agent.suspended.messages()
    messages = agent.messages.load([row.id for row in found])
    assert {row.kind for row in found} <= {"receive"}
    return [(row.reason, messages[row.id].body) for row in found]


def refuse(database: str, sqlstate: str, marked: str = "REFUSED") -> None:
    """PostgreSQL itself refuses to store a message whose context holds the mark."""
    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF NEW.context::text LIKE '%{marked}%' THEN RAISE SQLSTATE '{sqlstate}' USING MESSAGE = 'no';"
            " END IF; RETURN NEW; END $$"
        )
        connection.execute("CREATE TRIGGER refuse BEFORE INSERT ON message FOR EACH ROW EXECUTE FUNCTION refuse()")


class CountingAgent(Agent):
    """Remembers how many publications each transaction had."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.go = Event()
        self.go.set()
        self.together: list[int] = []

    def publish(self, publications: Sequence[Publication], *, location_epoch: UUID | None = None) -> Published:
        self.together.append(len(publications))
        assert self.go.wait(60)
        return super().publish(publications, location_epoch=location_epoch)


def test_distinguished_text_over_the_limit_suspends_its_document_alone(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)
    good, bad = order(f0=LONGEST), order(f0=LONG)

    received(agent, folder, good, bad, b"\n".join([good, bad, good]))

    assert agent.statistics().published == 3
    for reason, body in kept_back(agent):
        assert "property 'F0' is text, and in $.f0 the text has 65537 characters, and 65536 is the most" in reason
        assert body == bad
    assert len(kept_back(agent)) == 2


@pytest.mark.parametrize("lines", [1, 3, 9], ids=["alone", "few", "many"])
def test_context_over_the_limit_suspends_its_document_alone(agent: Agent, folder: Path, lines: int) -> None:
    deployed(agent, folder)
    good, bad = order(f0="good"), order(**{f"f{n}": LONGEST for n in range(FIELDS)})

    received(agent, folder, good, b"\n".join([bad, *[good] * (lines - 1)]), good)

    assert agent.statistics().published == lines + 1
    [(reason, body)] = kept_back(agent)
    assert f"bytes, and {CONTEXT_LIMIT_BYTES:,} is the most; the longest is 'F0' with 65,536 characters" in reason
    assert body == bad


def test_what_an_envelope_gives_counts_for_each_of_its_messages(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TOGETHER_BYTES", 1024 * 1024)
    deployed(agent, folder, "xml", XML)
    children = limits.TOGETHER_BYTES // WRITTEN_TEXT_LIMIT
    few, many = envelope(children), envelope(children * 3)

    received(agent, folder, few, many)

    assert agent.statistics().published == children
    [(reason, body)] = kept_back(agent)
    assert f"the properties of its {children * 3:,} messages have" in reason
    assert body == many


def envelope(children: int) -> bytes:
    note = b"x" * (WRITTEN_TEXT_LIMIT - 1_000)
    return b"<Batch><note>%b</note><orders>%b</orders></Batch>" % (note, b"<Order/>" * children)


def test_root_of_any_length_is_no_reason_not_to_suspend_its_document(agent: Agent, folder: Path) -> None:
    deployed(agent, folder, "xml", XML)
    odd = b'<Odd xmlns="%b"/>' % (b"x" * 2 * CONTEXT_LIMIT_BYTES)

    received(agent, folder, odd, envelope(1))

    [(reason, body)] = kept_back(agent)
    assert "there is no schema for documents of type" in reason
    assert len(reason) < 5_000
    assert body == odd
    assert agent.statistics().published == 1


def test_pushed_message_whose_context_is_over_the_limit_is_a_failure(agent: Agent, folder: Path) -> None:
    deployed(agent, folder)
    [(id_, host, definition)] = agent.configuration.locations()
    receiving = ReceiveLocation.from_definition(id_, host, definition)

    made = receiving.pushed(b"{}", {f"P{n}": "x" for n in range(PROPERTIES_LIMIT)}, agent.message_id)

    [failure] = made.failures
    assert f"properties, and {PROPERTIES_LIMIT:,} is the most" in failure.reason


def test_running_code_cannot_publish_a_context_over_the_limit(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))

    with pytest.raises(ContextError):
        publish(agent, a_message(agent, {"Region": "NO"}, written={"Note": "x" * CONTEXT_LIMIT_BYTES}))


@pytest.mark.parametrize("sqlstate", ["54000", "22021", "XX000"])
def test_source_that_postgresql_refuses_for_good_is_found_by_halving(
    database: str, folder: Path, sqlstate: str
) -> None:
    refuse(database, sqlstate)
    with CountingAgent(database) as agent:
        deployed(agent, folder)

        received(agent, folder, *[order(f0="good")] * 40, order(f0="REFUSED"), *[order(f0="good")] * 59)

        [(reason, body)] = kept_back(agent)
        assert reason.startswith("the MessageBox cannot hold it: ")
        assert body == order(f0="REFUSED")
        assert agent.statistics().published == 99
        assert len(agent.together) <= 2 * 7 + 2


@pytest.mark.parametrize(
    ("sqlstate", "transient"),
    [
        ("08006", True), ("40001", True), ("40P01", True), ("53100", True), ("53200", True), ("55P03", True),
        ("57P01", True), ("57P03", True), ("58030", True), ("25006", True), ("25P03", True), ("25P04", True),
        ("54000", False), ("54001", False), ("22P05", False), ("22001", False), ("23505", False), ("XX000", False),
    ],
)  # fmt: skip
def test_sqlstate_decides_whether_to_try_again(agent: Agent, database: str, sqlstate: str, transient: bool) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    refuse(database, sqlstate)

    with pytest.raises(TransientError if transient else psycopg.Error) as raised:
        publish(agent, a_message(agent, {"Region": "NO"}, written={"Note": "REFUSED"}))

    assert isinstance(raised.value, TransientError) is transient


def test_publisher_finds_the_one_that_is_refused_by_halving(database: str) -> None:
    refuse(database, "54000")
    with CountingAgent(database) as agent:
        deploy(agent, port("A", "Region = 'NO'"))
        host = agent.configuration.hosts()["Default"]
        messages = [
            a_message(agent, {"Region": "NO"}, written={"Note": "REFUSED" if n == 70 else ""}) for n in range(100)
        ]
        publisher = Publisher(agent)
        agent.go.clear()
        publisher.start()
        first = publisher.submit(Publication(host, (a_message(agent, {"Region": "NO"}),)))
        until(lambda: agent.together == [1])
        futures = [publisher.submit(Publication(host, (message,))) for message in messages]
        agent.go.set()

        problems = [future.exception(60) for future in [first, *futures]]
        publisher.stop()

        assert [n for n, problem in enumerate(problems) if problem is not None] == [71]
        assert len(agent.together) <= 2 * 7 + 2


def test_answer_that_postgresql_refuses_for_good_suspends_its_request_and_no_other(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("Answers", "Region = 'SE'"))
    refuse(database, "54000")

    def answer(name: str, _: int) -> Outcome:
        if name == "answer":
            return Complete()
        note = "REFUSED" if name == "3" else "fine"
        return Answer((a_message(agent, {"Region": "SE"}, written={"Note": note}, parts=[Part("body", b"answer")]),))

    partner = Partner(answer)
    with running(agent, partner):
        publish_named(agent, *map(str, range(6)))
        until(lambda: settled(agent) and partner.got.count("answer") == 5, 30)

    [row] = agent.suspended.messages()
    assert row.kind == "send"
    assert row.reason.startswith("What came of it cannot be published: ProgramLimitExceeded: no")
