"""Lists for programs and for wide screens: every list in every format, and what a spreadsheet must not run."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from box import PROPERTIES, an_orchestration
from crossdock.cli.app import app
from crossdock.cli.formats import print_csv
from crossdock.errors import CrossdockError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from express import port, publish

LISTS = (
    "applications", "ports", "groups", "locations", "orchestrations", "instances", "subscriptions", "messages",
    "suspended", "waiting", "hosts", "access", "audit",
)  # fmt: skip


@pytest.fixture
def busy(agent: Agent) -> Agent:
    """Ports, a location, an instance, and messages that are suspended."""
    agent.subscriptions.deploy(
        Deployment(
            "orders",
            PROPERTIES,
            [DeployedLocation("orders.in", "Default", {})],
            [port("Plain", "Region = 'NO'"), port("Stopped", "Region = 'Stopped'"), port("Too", "Region = 'Stopped'")],
            {"Default": ()},
            orchestrations=[an_orchestration("Flow", "Region = 'IN'")],
        )
    )
    for name in ("Stopped", "Too"):
        agent.subscriptions.stop(name)
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    for _ in range(2):
        publish(agent, {"Region": "Stopped", "Amount": Decimal(5)})
    return agent


def said(agent: Agent, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*words, "--database", agent.database])
    assert not isinstance(done.exception, CrossdockError), done.exception
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


@pytest.mark.parametrize("what", LISTS)
def test_every_list_is_the_same_in_every_format(busy: Agent, what: str) -> None:
    document = json.loads(said(busy, "get", what, "-o", "json"))
    lines = said(busy, "get", what, "-o", "jsonl").splitlines()
    table = list(csv.DictReader(io.StringIO(said(busy, "get", what, "-o", "csv"), newline="")))
    wide = said(busy, "get", what, "-o", "wide").splitlines()
    names = said(busy, "get", what, "-o", "name").splitlines()

    assert [json.loads(line) for line in lines] == document
    assert len(table) == len(document)
    for row, entry in zip(table, document, strict=True):
        assert list(row) == list(entry)
        for name, value in entry.items():
            shown = row[name]
            assert shown == ("" if value is None else value if isinstance(value, str) else json.dumps(value)), name
    assert len(wide) == (len(document) + 1 if document else 1)
    if document:
        key = next(each for each in ("name", "id", "database_user", "number") if each in document[0])
        assert names == list(dict.fromkeys(str(entry[key]) for entry in document))
        assert all(name in wide[0] for name in (each.replace("_", " ") for each in document[0]))
        assert all(str(entry[key]) in line.replace(",", "") for entry, line in zip(document, wide[1:], strict=True))
    else:
        assert names == []


def test_a_list_without_rows_has_a_header_in_csv_and_nothing_in_lines(agent: Agent) -> None:
    for what in LISTS:
        if what in ("hosts", "audit"):  # these have some
            continue
        header = said(agent, "get", what, "-o", "csv")
        assert {"name", "id", "database_user"} & set(header.strip().split(",")), what
        assert said(agent, "get", what, "-o", "jsonl") == said(agent, "get", what, "-o", "name") == ""
    assert said(agent, "get", "suspended", "--by", "code", "-o", "csv").startswith("group,count")


def test_names_of_suspended_messages_are_what_resume_reads(busy: Agent) -> None:
    names = said(busy, "get", "suspended", "-o", "name")
    busy.subscriptions.start("Stopped")

    done = CliRunner().invoke(
        app, ["terminate", "-", "--all", "--yes", "-o", "json", "--database", busy.database], input=names
    )

    assert done.exit_code == 0, done.output
    assert [(each["port"], each["done"]) for each in json.loads(done.stdout)] == [("Too", True)] * 2
    assert said(busy, "get", "suspended", "-o", "name") == ""


def test_format_that_is_unknown_or_only_for_lists_is_wrong_usage(agent: Agent) -> None:
    assert "xml" in said(agent, "get", "ports", "-o", "xml", code=2)
    for words in (["explain", "1-1"], ["top", "--once"], ["resume", "1-1"]):
        assert "is for lists" in said(agent, *words, "-o", "csv", code=2)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\\t=1"),
        ("\r=1", "'\\r=1"),
        ("  =1", "'  =1"),
        ("\n=1", "'\n=1"),
        (-1, "-1"),
        (Decimal("-1.50"), "-1.50"),
        ("a = 1", "a = 1"),
        ('say "yes", twice', 'say "yes", twice'),
        ("two\nlines", "two\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
        (None, ""),
        (True, "true"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (["=1", "b"], '["=1", "b"]'),
    ],
)
def test_cell_of_a_spreadsheet_is_harmless(value: object, cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_csv([{"first": "x", "second": value}])

    written = capsys.readouterr().out
    assert list(csv.reader(io.StringIO(written, newline=""))) == [["first", "second"], ["x", cell]]
    assert written.endswith("\r\n")
