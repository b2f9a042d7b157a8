"""What tables say to people: times, short ids, names that are written wrongly, and one send port in full."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from box import PROPERTIES, deployment
from crossdock.administration.service import Administration
from crossdock.administration.trace import Traced, TraceEvent
from crossdock.cli.app import app
from crossdock.cli.output import Format
from crossdock.cli.show_message import print_trace
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.settle import Retry, Suspend
from express import claim, deploy, living, port, publish

NORWAY = {"BTS.MessageType": "Order", "Region": "NO"}
AT = datetime(2026, 11, 18, 9, 12, 3, tzinfo=UTC)


@pytest.fixture
def failed(agent: Agent) -> Agent:
    """Of a port that wants Norway: one delivery is suspended, one waits for its next attempt."""
    deploy(agent, port("Partner", "Region = 'NO'"), port("Addressed"))
    publish(agent, NORWAY, NORWAY)
    with living(agent) as life:
        first, second = claim(agent, life)
        agent.settle(life.instance, [Suspend(first, "refused"), Retry(second, timedelta(hours=1), "away")])
    return agent


def said(agent: Agent, *words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--database", agent.database], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("words", [("applications",), ("waiting",), ("audit",), ("suspended", "--by", "code")])
def test_times_in_tables_are_utc_to_the_second_and_in_json_as_iso_8601_says(
    failed: Agent, words: tuple[str, ...]
) -> None:
    table, document = said(failed, "get", *words), said(failed, "get", *words, "-o", "json")

    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", table)
    assert not re.search(r"\+00:00|:\d\d\.\d", table)
    assert re.search(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00"', document)
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-8", table), "ids of messages are short"


@pytest.mark.parametrize("what", ["suspended", "waiting"])
def test_port_whose_name_is_written_wrongly_is_not_taken_for_one_where_all_is_well(failed: Agent, what: str) -> None:
    with pytest.raises(UsageError, match=r"no send port or orchestration 'Partnr'\. Did you mean 'Partner'"):
        said(failed, "get", what, "--port", "Partnr")

    assert said(failed, "get", what, "--port", "Addressed").strip()
    assert "For all of them: crossdock get suspended" in said(failed, "get", "suspended", "--code", "time-over")


def test_port_is_described_with_its_filter_what_waits_and_what_is_suspended(failed: Agent) -> None:
    document = json.loads(said(failed, "describe", "Partner", "-o", "json"))
    table = said(failed, "describe", "Partner")

    assert (document["filter"], document["waiting"], document["suspended"]) == ("Region = 'NO'", 1, 1)
    assert document["codes"] == {"delivery-failed": 1}
    assert [(each["attempt"], each["reason"]) for each in document["next"]] == [(2, "away")]
    assert all(word in table for word in ("Region = 'NO'", "delivery-failed", "away"))
    assert "only messages that name it" in said(failed, "describe", "Addressed")
    with pytest.raises(UsageError, match=r"'Partnr' is not a message id, .* Did you mean the send port 'Partner'"):
        said(failed, "describe", "Partnr")


def test_subscriptions_are_listed_with_their_filters(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO' AND Amount > 5", B="Region = 'SE'"))

    rows = json.loads(said(agent, "get", "subscriptions", "-o", "json"))

    assert {row["name"]: row["filter"] for row in rows} == {"A": "Region = 'NO' AND Amount > 5", "B": "Region = 'SE'"}


def test_audit_says_why_an_act_was_refused(failed: Agent) -> None:
    with pytest.raises(UsageError):
        said(failed, "stop", "Nobody")

    assert "There is no send port, group or orchestration" in said(failed, "get", "audit")


def test_personal_values_are_masked_where_edit_says_what_stays(agent: Agent) -> None:
    service = Administration(agent, text_limit=256)
    ports = [port("Partner", "Region = 'NO'")]
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], ports, {"Default": ()}, personal=["Region"]))
    agent.subscriptions.stop("Partner")
    publish(agent, NORWAY)
    [row] = agent.suspended.messages()

    edited = service.edit(service.editable(str(row.id), "Partner"), body=b"mended", properties=[])

    assert edited.kept["Region"] == "***"


def test_what_a_host_puts_back_several_times_is_one_line_of_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    events = [TraceEvent(AT + timedelta(seconds=n), "given-back", "Partner", sequence=1) for n in range(4)]
    done = TraceEvent(AT + timedelta(seconds=9), "delivered", "Partner", 1, sequence=1)

    print_trace(Traced("x", "message", "Order", AT, [*events, done]), Format.TABLE)

    shown = capsys.readouterr().out
    assert shown.count("given-back") == 1
    assert "2026-11-18 09:12:06Z  given-back  4 times" in shown
