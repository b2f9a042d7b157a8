"""The command line with `--url`: it asks a console, and says the same as if it had asked the MessageBox itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from console_box import Seeded
from console_fixtures import box, console
from crossdock.cli.app import app
from crossdock.errors import CrossdockError
from served import Served

__all__ = ["box", "console"]


class Desk:
    """Runs a command on the MessageBox, or at its console."""

    def __init__(self, console: Served, token: str) -> None:
        self._here = ["--database", console.database]
        self._there = ["--url", console.url, "--token", token]

    def here(self, *words: str) -> tuple[int, str]:
        return self._run(*words, *self._here)

    def there(self, *words: str) -> tuple[int, str]:
        return self._run(*words, *self._there)

    @staticmethod
    def _run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, words)
        if isinstance(done.exception, CrossdockError):
            return done.exception.exit_code, str(done.exception)
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        return done.exit_code, done.stdout


@pytest.fixture
def desk(console: Served) -> Desk:
    return Desk(console, console.token("desk", "administrator"))


LISTS = ("applications", "ports", "groups", "locations", "orchestrations", "instances", "subscriptions", "suspended", "messages", "waiting", "hosts", "access")  # fmt: skip


def test_every_list_is_the_same(desk: Desk, box: Seeded) -> None:
    assert box.held_back(2)
    for what in LISTS:
        there, here = (sorted(map(str, _json(ask("get", what, "-o", "json")))) for ask in (desk.there, desk.here))
        assert there == here, what
    assert _json(desk.there("get", "suspended", "--by", "code", "-o", "json"))[0]["count"] == 3
    assert _json(desk.there("get", "audit", "--limit", "1", "-o", "json"))


def test_a_message_and_an_instance_are_shown_the_same(desk: Desk, box: Seeded) -> None:
    for words in (
        ("describe", box.suspended),
        ("describe", box.instance),
        ("explain", box.suspended),
        ("explain", box.suspended, "Plain"),
        ("trace", box.suspended),
    ):
        there, here = desk.there(*words), desk.here(*words)
        assert (there, there[0]) == (here, 0)


def test_acts_are_done_there(desk: Desk, box: Seeded) -> None:
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


def test_what_the_console_refuses_is_the_same_sentence_and_exit_code(console: Served, box: Seeded) -> None:
    weak = Desk(console, console.token("weak", "viewer"))

    assert weak.there("stop", "Plain") == (2, "'token weak' may not stop: that takes the right operator. Ask an administrator of the console for it.")  # fmt: skip
    assert weak.there("resume", box.suspended)[0] == 2
    assert weak.there("get", "messages", "--where", "Nothing = 1")[0] == 2
    assert weak.there("stop", "Plain", "--home", "x") == (
        2,
        "--url asks a console, which knows its MessageBox and you: leave --home, --database and --as out.",
    )
    assert Desk(console, "").there("get", "ports")[1].startswith("--url needs --token TOKEN")


def _json(ran: tuple[int, str]) -> Any:
    code, said = ran
    assert code == 0, said
    return json.loads(said)
