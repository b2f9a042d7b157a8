"""A message whose stored context is none: it is suspended by itself and shown, and holds up nobody else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from acting import resume, save, terminate
from crossdock.administration.suspended import list_suspended
from crossdock.cli.app import app
from crossdock.errors import ContextError, GivenUpError, UsageError
from crossdock.host.isolated import IsolatedInstance
from crossdock.host.publisher import Publisher
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.message.context import PROPERTIES_LIMIT, Context
from crossdock.message.property import TOKEN
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.messages import HELD_BYTES, UNREADABLE
from express import a_message, delivered_now, deploy, kinds, port, publish, rows
from service import BatchPartner, Partner, publish_named, running, settled
from walk import until

NO_CONTEXTS = [
    "{}",
    "5",
    "null",
    '"promoted"',
    '[{"promoted": {}, "written": {}}]',
    '{"promoted": {}}',
    '{"promoted": [], "written": {}}',
    '{"promoted": {}, "written": {}, "labels": 5}',
    '{"promoted": {}, "written": {}, "labels": "AB"}',
    '{"promoted": {}, "written": {}, "labels": [1]}',
    '{"promoted": {"Region": null}, "written": {}}',
    '{"promoted": {"Region": {"text": "NO", "integer": "5"}}, "written": {}}',
    '{"promoted": {"Region": {}}, "written": {}}',
    '{"promoted": {"Region": {"no type": "5"}}, "written": {}}',
    '{"promoted": {"Region": {"boolean": []}}, "written": {}}',
    '{"promoted": {"Region": {"decimal": []}}, "written": {}}',
    '{"promoted": {"Region": {"datetime": {}}}, "written": {}}',
    '{"promoted": {"Region": "\\ud800"}, "written": {}}',
    "[" * 5_000 + "]" * 5_000,
]


def spoil(database: str, context: str, *names: str) -> None:
    """As whoever may write to the spool can, or a fault of the disk."""
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "UPDATE message SET context = %s::json WHERE parts && ARRAY(SELECT id FROM part WHERE body = ANY(%s))",
            [context, [name.encode() for name in names]],
        )


@pytest.mark.parametrize("stored", NO_CONTEXTS)
def test_whatever_is_no_context_is_refused_in_one_way(stored: str) -> None:
    with pytest.raises(ContextError, match="its context cannot be read"):
        Context.from_json(stored)


@pytest.mark.parametrize("many", ["promoted", "written", "labels"])
def test_context_with_more_than_is_ever_kept_is_none(many: str) -> None:
    """A megabyte of short names would take many times that in the memory of whoever claims some hundred of them."""
    names = [str(number) for number in range(PROPERTIES_LIMIT + 1)]
    stored = {"promoted": {}, "written": {}, many: names if many == "labels" else dict.fromkeys(names, "")}

    with pytest.raises(ContextError, match="its context cannot be read"):
        Context.from_json(json.dumps(stored))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", [Partner, BatchPartner])
@pytest.mark.parametrize("spoiled", [["2"], ["1", "2", "3"]])
def test_message_that_cannot_be_read_is_suspended_and_the_others_are_delivered(
    agent: Agent, database: str, ordered: bool, kind: type[Partner], spoiled: list[str]
) -> None:
    deploy(agent, port("Out", "Region = 'NO'", ordered=ordered))
    publish_named(agent, "1", "2", "3")
    spoil(database, "{}", *spoiled)
    partner = kind()

    with running(agent, partner):
        until(lambda: settled(agent))
        publish_named(agent, "4")
        until(lambda: "4" in partner.got)

    assert sorted(partner.got) == [name for name in ("1", "2", "3", "4") if name not in spoiled]
    assert kinds(agent) == [("send", "Out")] * len(spoiled)
    assert {row.reason for row in agent.suspended.messages()} == {UNREADABLE}
    assert rows(database, "SELECT FROM subqueue_lease WHERE held_by IS NOT NULL") == []


def test_messages_that_are_unreadable_in_every_way_are_suspended_and_the_one_behind_them_is_delivered(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    names = [str(number) for number in range(len(NO_CONTEXTS))]
    publish_named(agent, *names, "last")
    for name, stored in zip(names, NO_CONTEXTS, strict=True):
        spoil(database, stored, name)
    partner = Partner()

    with running(agent, partner):
        until(lambda: settled(agent))

    assert partner.got == ["last"]
    assert [row.reason for row in agent.suspended.messages()] == [UNREADABLE] * len(NO_CONTEXTS)


def test_message_with_a_large_body_that_cannot_be_read_is_suspended_too(agent: Agent, database: str) -> None:
    """Its context does not come with the claim."""
    deploy(agent, port("Out", "Region = 'NO'"))
    large = "x" * (HELD_BYTES + 1)
    publish_named(agent, large, "small")
    spoil(database, "{}", large)
    partner = Partner()

    with running(agent, partner):
        until(lambda: settled(agent))

    assert (partner.got, [row.reason for row in agent.suspended.messages()]) == (["small"], [UNREADABLE])


def test_message_that_cannot_be_read_can_be_saved_and_terminated_and_resumed_once_it_is_mended(
    agent: Agent, database: str, tmp_path: Path
) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    publish_named(agent, "1", "2")
    spoil(database, "{}", "1", "2")
    with running(agent, Partner()):
        until(lambda: settled(agent))
    first, second = (str(row.id) for row in agent.suspended.messages())

    assert {row.result for row in resume(agent, [first, second])} == {
        "cannot be resumed: the context of the message cannot be read"
    }
    assert {Path(row.file).read_text() for row in save(agent, [first, second], tmp_path)} == {"1", "2"}
    terminate(agent, [second])
    spoil(database, '{"promoted": {"Region": "NO"}, "written": {}}', "1")
    assert [row.result for row in resume(agent, [first])] == ["queued again"]
    partner = Partner()
    with running(agent, partner):
        until(lambda: settled(agent))
    assert (partner.got, kinds(agent)) == (["1"], [])


def test_folder_that_cannot_be_written_is_named_with_the_next_step(agent: Agent, tmp_path: Path) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    publish(agent, {"Region": "SE"})
    [row] = agent.suspended.messages()
    (tmp_path / "file").touch()

    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match=r"file.* cannot be written: .*\. Save elsewhere with: --to FOLDER"):
            save(agent, [str(row.id)], folder)


def test_bytes_that_are_gone_are_told_from_a_message_that_never_was(
    agent: Agent, database: str, tmp_path: Path
) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    message = a_message(agent, {"Region": "NO"})
    publish(agent, message)
    delivered_now(agent)
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM crossdock.message")

    with pytest.raises(UsageError, match=f"The bytes of message {message.id} are gone: .* crossdock trace"):
        save(agent, [str(message.id)], tmp_path)
    with pytest.raises(UsageError, match="There is no message"):
        save(agent, [str(agent.message_id())], tmp_path)


@pytest.mark.parametrize("stored", ["{}", NO_CONTEXTS[7]])
def test_unrouted_message_that_cannot_be_read_has_an_empty_report_and_hides_no_other(
    agent: Agent, database: str, stored: str
) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    publish(agent, {"Region": "SE"}, {"Region": "DK"})
    bad, good = agent.suspended.messages()
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute("UPDATE message SET context = %s::json WHERE id = %s", [stored, bad.id])

    assert ReportRoutingFailures(agent).run_once() == 2

    first, second = list_suspended(agent)
    assert (first.id, first.nearest_misses) == (str(bad.id), [])
    assert first.reason == f"{bad.reason} {UNREADABLE}"
    assert (second.reason, len(second.nearest_misses or ())) == (good.reason, 1)
    assert [row.result for row in resume(agent, [first.id, second.id])] == [
        "cannot be resumed: the context of the message cannot be read",
        "still nobody wants it",
    ]


@pytest.mark.parametrize("when", ["infinity", "-infinity", "12000-01-01", "0044-03-15 BC"])
def test_time_that_python_does_not_have_hides_no_suspended_message(agent: Agent, database: str, when: str) -> None:
    deploy(agent, port("Out", "Region = 'NO'"))
    publish(agent, {"Region": "SE"}, {"Region": "DK"})
    ReportRoutingFailures(agent).run_once()
    odd, other = agent.suspended.messages()
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute("UPDATE suspended SET suspended_at = %s WHERE message_id = %s", [when, odd.id])
        connection.execute("UPDATE routing_failure SET report = '5' WHERE message_id = %s", [odd.id])

    shown = CliRunner().invoke(app, ["get", "suspended", "--database", database, "-o", "json"])

    assert shown.exit_code == 0, shown.output
    first, second = json.loads(shown.stdout)
    assert (first["id"], first["suspended_at"], first["nearest_misses"]) == (str(odd.id), None, None)
    assert "The time when it was suspended" in first["reason"]
    assert "routing failure report cannot be read" in first["reason"]
    assert (second["id"], second["reason"]) == (str(other.id), other.reason)


SPOIL = """
CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.context -> 'promoted' ->> 'BTS.EpmRRCorrelationToken' > '' THEN
        NEW.context = '{}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER spoil BEFORE INSERT ON message FOR EACH ROW EXECUTE FUNCTION spoil();
"""


@pytest.fixture
def spoiling(agent: Agent) -> Agent:
    """Responses are stored without a context."""
    with psycopg.connect(agent.database, options="-csearch_path=crossdock") as connection:
        connection.execute(SPOIL)
    return agent


def test_response_that_cannot_be_read_is_suspended_and_the_client_told_at_once(spoiling: Agent) -> None:
    deploy(spoiling, port("A", "Region = 'NO'"), port("Ask.response", waits=True))
    host = spoiling.configuration.hosts()["Default"]
    publisher = Publisher(spoiling)
    publisher.start()
    instance = IsolatedInstance(spoiling, host, publisher, spoiling.configuration.waiting_services())
    instance.start()

    async def ask() -> None:
        request = Publication(host, (a_message(spoiling, {"Region": "NO"}),))
        waiting = asyncio.create_task(instance.request(request, "Ask.response", timeout=20))
        await asyncio.to_thread(until, lambda: bool(rows(spoiling.database, "SELECT FROM queue")))
        [reference] = spoiling.queues.dequeue(host, 0, limit=10)
        token = reference.message.context.get(TOKEN)
        assert token is not None
        await asyncio.to_thread(publish, spoiling, {TOKEN: token})
        await waiting

    try:
        until(lambda: bool(rows(spoiling.database, "SELECT FROM host_instance")))
        with pytest.raises(GivenUpError, match="cannot be read"):
            asyncio.run(ask())
        until(lambda: [(row.kind, row.reason) for row in spoiling.suspended.messages()] == [("response", UNREADABLE)])
    finally:
        instance.stop()
        publisher.stop()
