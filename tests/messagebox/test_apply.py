"""`plan`, `apply` and `undeploy` as commands: a plan that does not hold any more, what is told, what is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crossdock.cli.app import app
from crossdock.messagebox.agent import Agent
from express import publish

ORDERS = """
application: orders
properties: {Region: text}
send_ports:
  - {name: Europe, adapter: file, address: "europe/%MessageID%", filter: "Region = 'EU'"}
"""
MORE = (
    ORDERS
    + """  - {name: America, adapter: file, address: "america/%MessageID%", filter: "Region = 'US'"}
"""
)


class Shell:
    """Commands on one MessageBox, with an application file beside them."""

    def __init__(self, folder: Path, database: str) -> None:
        self.file = folder / "orders.yaml"
        self.plan = folder / "plan.json"
        self._database = database

    def call(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--database", self._database])

    def done(self, *arguments: str) -> str:
        result = self.call(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, *arguments: str) -> str:
        result = self.call(*arguments)
        assert result.exception is not None
        assert getattr(result.exception, "exit_code", None) == 2
        return str(result.exception)


@pytest.fixture
def shell(folder: Path, database: str) -> Shell:
    made = Shell(folder, database)
    made.file.write_text(ORDERS)
    return made


def test_plan_that_still_holds_is_applied(shell: Shell, agent: Agent) -> None:
    shell.done("apply", str(shell.file))
    shell.file.write_text(MORE)
    shell.done("plan", str(shell.file), "--out", str(shell.plan))

    said = shell.done("apply", str(shell.file), "--plan", str(shell.plan))

    assert said.strip() == "orders: 1 port added; 2 subscriptions: 1 added"
    assert [port.name for port in agent.configuration.list_ports()] == ["Europe", "America"]


def test_plan_is_refused_once_the_messagebox_has_moved(shell: Shell, agent: Agent) -> None:
    shell.done("apply", str(shell.file))
    shell.file.write_text(MORE)
    shell.done("plan", str(shell.file), "--out", str(shell.plan))
    agent.subscriptions.stop("Europe")

    said = shell.refused("apply", str(shell.file), "--plan", str(shell.plan))

    assert "The MessageBox has changed since the plan was made" in said
    assert [port.name for port in agent.configuration.list_ports()] == ["Europe"]


def test_plan_is_refused_once_the_application_is_another(shell: Shell) -> None:
    shell.done("plan", str(shell.file), "--out", str(shell.plan))
    shell.file.write_text(MORE)

    assert "The plan was made of another application" in shell.refused(
        "apply", str(shell.file), "--plan", str(shell.plan)
    )


def test_plan_of_an_empty_database_holds_until_something_is_deployed_there(
    shell: Shell, folder: Path, empty_database: str
) -> None:
    empty = Shell(folder, empty_database)
    empty.done("plan", str(shell.file), "--out", str(shell.plan))
    empty.done("apply", str(shell.file), "--plan", str(shell.plan))

    assert json.loads(shell.plan.read_text())["epoch"] == 0
    assert "has changed since the plan was made" in empty.refused("apply", str(shell.file), "--plan", str(shell.plan))


def test_what_is_no_plan_is_refused(shell: Shell) -> None:
    shell.plan.write_text("[]")

    assert "is no plan of" in shell.refused("apply", str(shell.file), "--plan", str(shell.plan))
    assert "cannot be read" in shell.refused("apply", str(shell.file), "--plan", str(shell.file.parent / "none"))


def test_application_is_undeployed_by_its_file_or_its_name(shell: Shell) -> None:
    for named in (str(shell.file), "orders"):
        shell.done("apply", str(shell.file))

        [undeployed] = json.loads(shell.done("undeploy", named, "-o", "json"))

        assert (undeployed["application"], undeployed["ports"]) == ("orders", 1)
    assert "There is no application 'orders' deployed" in shell.refused("undeploy", "orders")


def test_acts_are_recorded_refused_ones_too(shell: Shell, agent: Agent) -> None:
    shell.done("apply", str(shell.file), "--as", "ada", "--reason", "CHG-1")
    publish(agent, {"Region": "EU"})
    shell.refused("undeploy", "orders", "--as", "bob")
    shell.done("undeploy", "orders", "--terminate", "--as", "bob")

    acts = [(act.action, act.target, act.person, act.outcome) for act in agent.audit.list()]
    assert acts == [
        ("undeploy", "orders", "bob", "done"),
        ("undeploy", "orders", "bob", "refused"),
        ("deploy", "orders", "ada", "done"),
    ]


def test_terminate_and_keep_exclude_each_other(shell: Shell) -> None:
    assert "not both" in shell.refused("undeploy", "orders", "--terminate", "--keep")


def test_applications_are_listed(shell: Shell) -> None:
    shell.done("apply", str(shell.file))

    [row] = json.loads(shell.done("get", "applications", "-o", "json"))

    assert (row["name"], row["ports"], row["orchestrations"]) == ("orders", 1, 0)
