"""Every command works with `--url`, or is about this machine and says why. A new command has to be in one of the lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from console_box import APPLICATION, Seeded
from console_fixtures import box, console
from crossdock.cli.app import app
from roles import Roles, roles
from served import Served
from url_desk import UrlDesk

__all__ = ["box", "console", "roles"]

# What works on this machine only, and why.
HERE = {
    "run": "runs Spark and hosts in this process",
    "pipeline": "runs Spark in this process",
    "host": "runs a host in this process",
    "console": "serves the API itself",
    "demo": "makes a MessageBox of its own",
    "bench matching": "measures this machine",
    "bench queue": "measures this machine",
    "bench throughput": "measures this machine",
    "bench latency": "measures this machine",
    "bench orchestration": "measures this machine",
    "bench questions": "measures this machine",
    "bench console": "measures this machine",
    "bench start": "measures this machine",
    "match": "asks no MessageBox: it reads files",
    "lint": "asks no MessageBox: it reads a file",
    "schema": "asks no MessageBox",
    "doctor": "examines this machine",
    "token password": "asks no MessageBox: it prints a line for a file",
}
# What is done with every other command, one after the other. The words in braces are those of `words`.
THERE = {
    "get": "get ports",
    "describe": "describe {suspended}",
    "explain": "explain {suspended}",
    "trace": "trace {suspended}",
    "top": "top --once",
    "erase": "erase --where Region='none'",
    "publish": "publish {file} -p Region=NO",
    "save": "save {suspended} --to {folder}",
    "edit": "edit {suspended} --port Stopped -p Region=NO",
    "terminate": "terminate {suspended} --all",
    "resume": "resume --all --yes",
    "start": "start Plain",
    "stop": "stop orders",
    "unenlist": "unenlist others",
    "enlist": "enlist others",
    "disable": "disable orders",
    "enable": "enable orders.in",
    "cancel": "cancel {instance}",
    "plan": "plan {application} --out {plan}",
    "apply": "apply {application} --plan {plan}",
    "undeploy": "undeploy {application}",
    "grant": "grant viewer {user}",
    "revoke": "revoke viewer {user}",
    "token create": "token create nightly",
    "token list": "token list",
    "token revoke": "token revoke nightly",
}


def commands(of: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    if isinstance(of, TyperGroup):
        for word, each in of.commands.items():
            yield from commands(each, f"{name} {word}".strip())
    else:
        yield name, of


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_a_command_takes_a_url_unless_it_is_about_this_machine() -> None:
    with_url = {name for name, each in COMMANDS.items() if any("--url" in option.opts for option in each.params)}

    assert COMMANDS.keys() == HERE.keys() | THERE.keys()
    assert with_url == THERE.keys()


@pytest.fixture
def words(box: Seeded, roles: Roles, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "order").write_bytes(b"hello")
    (tmp_path / "shop.yaml").write_text(APPLICATION)
    files = {"file": "order", "folder": "saved", "application": "shop.yaml", "plan": "plan.json"}
    roles.create()
    roles.user("Default")
    known = {"suspended": box.suspended, "instance": box.instance, "user": f"{roles.names['Default']}_user"}
    return known | {name: str(tmp_path / file) for name, file in files.items()}


@pytest.mark.slow
def test_every_such_command_works_there(console: Served, box: Seeded, words: dict[str, str]) -> None:
    desk = UrlDesk(console, console.token("desk", "administrator"))
    box.agent.samples.take()

    for name, line in THERE.items():
        assert line.startswith(name)
        code, said = desk.there(*(word.format(**words) for word in line.split()))
        assert code == 0, (line, said)
        if name == "edit":
            box.held_back(1)
            words["suspended"] = box.held_back(1)[0]
