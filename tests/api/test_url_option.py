"""The command line with `--url`: it asks a console, and says the same as if it had asked the MessageBox itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from console_box import APPLICATION, Seeded
from console_fixtures import box, console
from crossdock.cli.app import app
from express import rows
from served import Served
from url_desk import UrlDesk

__all__ = ["box", "console"]


@pytest.fixture
def desk(console: Served) -> UrlDesk:
    return UrlDesk(console, console.token("desk", "administrator"))


LISTS = ("applications", "ports", "groups", "locations", "orchestrations", "instances", "subscriptions", "suspended", "messages", "waiting", "hosts", "access")  # fmt: skip


def test_every_list_is_the_same(desk: UrlDesk, box: Seeded) -> None:
    assert box.held_back(2)
    for what in LISTS:
        there, here = (sorted(map(str, _json(ask("get", what, "-o", "json")))) for ask in (desk.there, desk.here))
        assert there == here, what
    assert _json(desk.there("get", "suspended", "--by", "code", "-o", "json"))[0]["count"] == 3
    assert _json(desk.there("get", "audit", "--limit", "1", "-o", "json"))


def test_a_message_and_an_instance_are_shown_the_same(desk: UrlDesk, box: Seeded) -> None:
    for words in (
        ("describe", box.suspended),
        ("describe", box.instance),
        ("explain", box.suspended),
        ("explain", box.suspended, "Plain"),
        ("trace", box.suspended),
    ):
        there, here = desk.there(*words), desk.here(*words)
        assert (there, there[0]) == (here, 0)


def test_acts_are_done_there(desk: UrlDesk, box: Seeded) -> None:
    assert desk.there("stop", "Plain")[0] == 0
    assert "is now disabled" in desk.there("disable", "orders.in")[1]
    assert "is being cancelled" in desk.there("cancel", box.instance)[1]
    box.held_back(2)
    assert desk.there("resume", "--port", "Stopped")[0] == 2  # nobody can be asked
    code, said = desk.there("terminate", "--port", "Stopped", "--yes", "--reason", "old", "-o", "json")

    assert code == 0
    assert [each["result"] for each in json.loads(said)] == ["terminated"] * 3
    assert box.agent.suspended.messages(port="Stopped") == []
    assert box.agent.audit.list(limit=1)[0].reason == "old"


def test_a_file_of_this_machine_is_published_and_saved_there(desk: UrlDesk, tmp_path: Path) -> None:
    file = tmp_path / "order.txt"
    file.write_bytes(b"an order")

    code, said = desk.there("publish", str(file), "-p", "Region=Stopped", "-o", "json")
    [published] = json.loads(said)
    saved = desk.there("save", "--port", "Stopped", "--to", str(tmp_path / "saved"), "-o", "json")

    assert (code, published["file"], published["stopped"]) == (0, str(file), 1)
    assert {Path(each["file"]).read_bytes() for each in _json(saved)} == {b"content", b"an order"}
    assert desk.there("publish", str(tmp_path / "none")) == (
        2,
        f"{tmp_path / 'none'} cannot be read: No such file or directory.",
    )
    for words in (("save",), ("save", "--port", "Nowhere")):
        assert desk.there(*words) == desk.here(*words)


def test_a_suspended_message_is_edited_there(
    desk: UrlDesk, box: Seeded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf mended >> $1\n")
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))

    assert "is not suspended at 'Plain'" in desk.there("edit", box.suspended, "--port", "Plain")[1]
    edited = _json(desk.there("edit", box.suspended, "-o", "json"))

    saved = _json(desk.there("save", edited["edited_id"], "--to", str(tmp_path), "-o", "json"))
    assert Path(saved[0]["file"]).read_bytes() == b"contentmended"


def test_an_application_is_deployed_there_by_its_plan_once(desk: UrlDesk, tmp_path: Path) -> None:
    file, plan = tmp_path / "shop.yaml", tmp_path / "plan.json"
    file.write_text(APPLICATION)

    assert desk.there("plan", str(file), "--out", str(plan)) == desk.here("plan", str(file))
    assert desk.there("apply", str(file), "--plan", str(plan))[0] == 0
    assert "has changed since the plan" in desk.there("apply", str(file), "--plan", str(plan))[1]
    assert "A console takes YAML" in desk.there("apply", str(tmp_path / "shop.py"))[1]
    assert desk.there("undeploy", str(file))[0] == 0


def test_a_whole_application_is_stopped_there(desk: UrlDesk, box: Seeded) -> None:
    code, said = desk.there("stop", "orders", "-o", "json")

    changed = {each["name"]: each["after"] for each in json.loads(said)}
    assert (code, changed) == (0, {"Plain": "stopped", "Stopped": "stopped", "Flow": "stopped"})
    assert {each.target for each in box.agent.audit.list(person="token desk", action="stop")} == changed.keys()
    assert desk.there("stop", "Plain", "--application")[1].startswith("There is no application 'Plain'")


def test_what_the_console_refuses_is_the_same_sentence_and_exit_code(console: Served, box: Seeded) -> None:
    weak = UrlDesk(console, console.token("weak", "viewer"))

    assert weak.there("stop", "Plain") == (2, "'token weak' may not stop: that takes the right operator. Ask an administrator of the console for it.")  # fmt: skip
    assert weak.there("resume", box.suspended)[0] == 2
    code, said = weak.there("get", "messages", "--where", "Nothing = 1")
    assert (code, said.startswith("--where: ")) == (2, True)
    assert weak.there("stop", "Plain", "--home", "x") == (
        2,
        "--url asks a console, which knows its MessageBox and you: leave --home, --database and --as out.",
    )
    assert UrlDesk(console, "").there("get", "ports")[1].startswith("--url needs --token TOKEN")


@pytest.mark.parametrize("url", ["file:///x", "ftp://x", "x:8400", ""])
def test_a_url_that_is_no_address_of_a_console_is_refused_before_a_token_is_asked_for(url: str) -> None:
    done = CliRunner().invoke(app, ["get", "ports", "--url", url])

    assert str(done.exception) == (
        f"--url {url!r} is not the address of a console: write http://HOST:PORT or https://HOST:PORT."
    )


def _json(ran: tuple[int, str]) -> Any:
    code, said = ran
    assert code == 0, said
    return json.loads(said)


def test_a_search_by_a_personal_property_is_agreed_to_there(desk: UrlDesk, box: Seeded) -> None:
    rows(box.agent.database, "UPDATE property SET personal = true WHERE name = 'Region' RETURNING 1")
    chosen = ("--where", "Region = 'Stopped'")
    refused = [desk.there(*words, *chosen) for words in (("get", "suspended"), ("terminate", "--yes"))]
    found = _json(desk.there("get", "suspended", *chosen, "--personal", "-o", "json"))
    [instance] = _json(desk.there("get", "instances", "--where", "Region = 'IN'", "--personal", "-o", "json"))
    ended = _json(desk.there("terminate", *chosen, "--personal", "--yes", "-o", "json"))

    assert [code for code, *_ in refused] == [2, 2]
    assert all("add: --personal" in said for _, said, *_ in refused)
    assert [each["id"] for each in found] == [each["id"] for each in ended] == [box.suspended]
    assert instance["id"] == box.instance
    assert box.agent.suspended.messages(port="Stopped") == []
