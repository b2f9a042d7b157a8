"""`crossdock publish`, and what `get groups` shows: the command line on a real MessageBox."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crossdock.administration.publish import given_properties, publish_files
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from express import at_ports, kinds, rows, unbalanced
from office import Office
from walk import CROSSDOCK

ORDERS: dict[str, Any] = {
    "properties": {"Region": "text", "Amount": "decimal"},
    "schemas": [{"type": "Order", "format": "json", "promote": {"Region": "$.region", "Amount": "$.amount"}}],
    "receive_ports": [
        {"name": "In", "locations": [{"adapter": "file", "address": "in/*.json", "pipeline": "json"}]},
    ],
    "send_ports": [
        {"name": "North", "adapter": "file", "address": "north/%SourceFileName%", "filter": "Region = 'NO'"},
        {"name": "Large", "adapter": "file", "address": "large/%MessageID%", "filter": "Amount >= 1000"},
        {"name": "Nothing", "adapter": "file", "address": "nothing/%MessageID%"},
    ],
    "send_port_groups": [{"name": "Everyone", "ports": ["North", "Large"], "filter": "Region = 'everywhere'"}],
}


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Office]:
    """Deployed, and nobody delivers."""
    yield Office(database, tmp_path, ORDERS)
    assert unbalanced(database) == []


def put(folder: Path, content: bytes, name: str = "order.json") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def published(agent: Agent, *files: Path, to: str | None = None, at: str | None = None, **given: str) -> list[Any]:
    properties = given_properties(agent, [f"{name}={value}" for name, value in given.items()], to, text_limit=256)
    return list(publish_files(agent, files, location=at, properties=properties))


def command(database: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CROSSDOCK, *arguments, "--database", database], capture_output=True, text=True, timeout=120, check=False
    )


def test_file_is_one_message_with_the_properties_that_are_given(office: Office, tmp_path: Path) -> None:
    file = put(tmp_path, b"\x00 no json at all", "raw.bin")

    [row] = published(office.agent, file, Region="NO", Amount="1000.00")

    assert (row.result, row.references, row.stopped, row.type) == ("published", 2, 0, None)
    assert at_ports(office.agent) == {"North": 1, "Large": 1}
    with office.open():
        office.settled()
    assert (tmp_path / "north" / "raw.bin").read_bytes() == file.read_bytes() == b"\x00 no json at all"


def test_file_through_a_location_becomes_what_its_pipeline_makes_of_it(office: Office, tmp_path: Path) -> None:
    lines = b'{"region": "NO", "amount": 5}\nbad\n{"region": "SE", "amount": 5}\n{"region": "NO", "amount": 5000}\n'

    rows_ = published(office.agent, put(tmp_path, lines), at="In.file")

    found = [(row.result, row.references, row.type) for row in rows_]
    assert found == [("published", 1, "Order"), ("unrouted", 0, "Order"), ("published", 2, "Order"), ("suspended", 0, "Order")]  # fmt: skip
    assert "nobody wants this message" in rows_[1].reason
    assert "line 2" in rows_[3].reason
    assert sorted(kind for kind, _ in kinds(office.agent)) == ["receive", "unrouted"]
    assert [row.received for row in office.agent.configuration.list_locations()] == [4]


def test_message_for_a_port_surely_reaches_it_and_others_by_their_filters(office: Office, tmp_path: Path) -> None:
    [row] = published(office.agent, put(tmp_path, b'{"region": "NO", "amount": 1}'), to="Nothing", at="In.file")

    assert (row.result, row.references) == ("published", 2)
    assert at_ports(office.agent) == {"North": 1, "Nothing": 1}


def test_message_for_a_group_reaches_all_its_ports(office: Office, tmp_path: Path) -> None:
    [row] = published(office.agent, put(tmp_path, b"x"), to="Everyone")

    assert (row.result, row.references) == ("published", 2)
    assert at_ports(office.agent) == {"Everyone/North": 1, "Everyone/Large": 1}


def test_message_for_a_stopped_port_is_held_back_there(office: Office, tmp_path: Path) -> None:
    office.agent.subscriptions.stop("North")

    [row] = published(office.agent, put(tmp_path, b"x"), Region="NO", Amount="1000")

    assert (row.result, row.references, row.stopped) == ("published", 2, 1)
    assert kinds(office.agent) == [("stopped", "North")]


@pytest.mark.parametrize("name", ["Nothing", "Everyone"])
def test_message_for_a_port_or_group_that_is_not_enlisted_is_refused(
    office: Office, database: str, tmp_path: Path, name: str
) -> None:
    office.agent.subscriptions.unenlist(name)

    refused = command(database, "publish", str(put(tmp_path, b"x")), "--to", name, "-p", "Region=NO")

    assert (refused.returncode, refused.stdout, at_ports(office.agent)) == (2, "", {})
    assert f"{name!r} is not enlisted: nothing reaches it. Enlist it with: crossdock enlist {name}" in refused.stderr


def test_nothing_is_published_if_one_of_the_files_cannot_be_read(office: Office, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing.json cannot be read: No such file or directory\."):
        published(office.agent, put(tmp_path, b"x"), tmp_path / "missing.json", Region="NO")

    assert at_ports(office.agent) == {}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("Amount=much", "Property 'Amount': 'much' is not a decimal."),
        ("Regoin=NO", "There is no property 'Regoin'; did you mean 'Region'?"),
        ("zzz=1", "There is no property 'zzz'; declare it under `properties`."),
        ("Region", "'Region' is no property: write NAME=VALUE."),
        ("MessageID=1", "Property 'BTS.MessageID' is only ever written: no filter can see it."),
        ("InterchangeSequenceNumber=1.5", "Property 'BTS.InterchangeSequenceNumber': '1.5' is not an integer."),
        (f"Region={'x' * 300}", "Property 'Region': the text has 300 characters, and 256 is the most."),
        ("Region=\udcff", "Property 'Region': the value is not UTF-8."),
        ("SPTransportID=1", "Property 'BTS.SPTransportID' is given twice."),
    ],
)
def test_property_that_is_wrong_is_refused_in_one_sentence(office: Office, given: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        given_properties(office.agent, [given], "North", text_limit=256)

    assert str(raised.value) == sentence


def test_location_or_port_that_is_not_there_is_refused(office: Office, tmp_path: Path) -> None:
    office.agent.subscriptions.enable("In.file", enabled=False)

    for name in ("In.file", "Nowhere"):
        with pytest.raises(UsageError, match=f"There is no receive location '{name}' that is enabled"):
            published(office.agent, put(tmp_path, b"{}"), at=name)
    with pytest.raises(UsageError, match="There is no send port 'Nowhere'"):
        published(office.agent, put(tmp_path, b"{}"), to="Nowhere")


def test_report_on_a_failed_document_does_not_go_to_the_port_that_was_named(office: Office, tmp_path: Path) -> None:
    routed = [{**ORDERS["receive_ports"][0], "failed_messages": "route"}]
    office.deploy({**ORDERS, "receive_ports": routed})

    [row] = published(office.agent, put(tmp_path, b"bad"), to="Nothing", at="In.file")

    assert (row.result, at_ports(office.agent)) == ("unrouted", {})


@pytest.mark.usefixtures("office")
def test_command_says_what_became_of_each_message(database: str, tmp_path: Path) -> None:
    good, bad = put(tmp_path, b"x", "good.txt"), put(tmp_path, b"bad", "bad.json")

    table = command(database, "publish", str(good), "-p", "Region=NO", "-p", "Amount=2000")
    suspended = command(database, "publish", str(bad), "--location", "In.file", "-o", "json")
    wrong = command(database, "publish", str(good), "-p", "Amount=x")

    assert (table.returncode, suspended.returncode, wrong.returncode) == (0, 3, 2)
    assert "goes to 2" in table.stdout
    [row] = json.loads(suspended.stdout)
    assert (row["file"], row["result"], row["references"]) == (str(bad), "suspended", 0)
    assert rows(database, "SELECT message_id::text FROM suspended") == [(row["id"],)]
    assert (wrong.stdout, wrong.stderr) == ("", "crossdock: Property 'Amount': 'x' is not a decimal.\n")


@pytest.mark.usefixtures("office")
def test_groups_are_listed_and_change_their_state_like_ports(database: str) -> None:
    stopped = command(database, "stop", "Everyone", "-o", "json")
    listed = command(database, "get", "groups", "-o", "json")
    table = command(database, "get", "groups")

    assert json.loads(stopped.stdout) == [{"name": "Everyone", "before": "started", "after": "stopped", "resumed": 0}]
    assert json.loads(listed.stdout) == [
        {"name": "Everyone", "application": "office", "state": "stopped", "ports": ["Large", "North"]}
    ]
    assert "Large, North" in table.stdout
