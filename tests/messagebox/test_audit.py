"""Who did what: every act of a person is recorded in its transaction, and nobody changes the record."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from box import an_orchestration, deployment
from crossdock.administration.service import Administration, Selection
from crossdock.cli.app import app
from crossdock.errors import CrossdockError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.audit import Act, record_act
from crossdock.messagebox.database import Actor
from crossdock.messagebox.deployment import Deployment
from express import deploy, port, publish, rows
from roles import Roles, roles
from server_clock import shift_clock

__all__ = ["roles"]

NORWAY = {"Region": "NO"}


def acts(agent: Agent) -> list[tuple[str, str, str]]:
    """(action, target, outcome) of everything that was recorded, the oldest first, without deployments."""
    found = [(row.action, row.target, row.outcome) for row in agent.audit.list()]
    return [each for each in reversed(found) if each[0] != "deploy"]


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent.acting_for(Actor("ann", "a drill")), text_limit=256)


def test_row_says_who_did_what_to_what_and_why(agent: Agent, service: Administration) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))

    service.stop("Shipping")

    row, deployed = agent.audit.list()
    assert (row.person, row.reason, row.action, row.target) == ("ann", "a drill", "stop", "Shipping")
    assert (row.application, row.before, row.outcome) == ("orders", {"state": "started"}, "done")
    assert row.after == {"state": "stopped", "resumed": 0}
    assert row.database_user == psycopg.conninfo.conninfo_to_dict(agent.database)["user"]
    assert (deployed.action, deployed.target, deployed.before) == ("deploy", "orders", None)


def test_connection_acts_for_whoever_uses_it(agent: Agent) -> None:
    with Agent(agent.database, connections=1, actor=Actor("ann")) as ann:
        bob = ann.acting_for(Actor("bob", "his turn"))
        for each in (ann, bob, ann):
            each.audit.record([Act("test", "x")])

    assert [(row.person, row.reason) for row in agent.audit.list()] == [
        ("ann", None),
        ("bob", "his turn"),
        ("ann", None),
    ]


def test_states_of_ports_and_locations_are_in_the_audit_also_where_nothing_changes(
    agent: Agent, service: Administration
) -> None:
    agent.subscriptions.deploy(deployment(Shipping="Region = 'NO'"))

    service.start("Shipping")
    service.unenlist("Shipping")
    service.enlist("Shipping")
    service.disable("orders.in")
    service.disable("orders.in")
    service.enable("orders.in")

    assert acts(agent) == [
        ("start", "Shipping", "unchanged"),
        ("unenlist", "Shipping", "done"),
        ("enlist", "Shipping", "done"),
        ("disable", "orders.in", "done"),
        ("disable", "orders.in", "unchanged"),
        ("enable", "orders.in", "done"),
    ]


def test_acts_on_instances_are_in_the_audit_with_their_application(agent: Agent, service: Administration) -> None:
    made = Deployment(
        "orders",
        deployment().properties,
        [],
        [],
        {"Default": ()},
        orchestrations=[an_orchestration("Flow", "Region = 'NO'")],
    )
    agent.subscriptions.deploy(made)
    publish(agent, *({"Region": "NO", "BTS.MessageType": "Order"} for _ in range(2)))
    first, second = (str(row.id) for row in agent.instances.list())

    service.cancel([first])
    list(service.terminate(service.choose("terminate", Selection([second]))))

    assert acts(agent) == [("cancel", first, "done"), ("terminate", second, "done")]
    assert {row.application for row in agent.audit.list()} == {"orders"}


def test_refused_act_is_recorded_though_its_transaction_is_undone(agent: Agent, service: Administration) -> None:
    with pytest.raises(UsageError):
        service.stop("Nowhere")

    [row] = agent.audit.list()
    assert (row.action, row.target, row.outcome, row.person) == ("stop", "Nowhere", "refused", "ann")
    assert "There is no send port" in row.after["reason"]


def test_act_that_is_rolled_back_is_not_recorded(agent: Agent) -> None:
    with psycopg.connect(agent.database, options="-csearch_path=crossdock") as connection:
        record_act(connection, "test", "x")
        connection.rollback()

    assert agent.audit.list() == []


def test_text_that_no_jsonb_holds_is_recorded_as_it_can_be(agent: Agent) -> None:
    agent.audit.record([Act("test", "a\0b", {"why": ["\0", {"\ud800": 1}]})])

    [row] = agent.audit.list()
    assert (row.target, row.before) == ("a\\0b", {"why": ["\\0", {"\\ud800": 1}]})


@pytest.mark.parametrize("change", ["UPDATE audit SET person = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
def test_nobody_changes_or_deletes_a_row(agent: Agent, database: str, change: str) -> None:
    agent.audit.record([Act("test", "x")])

    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="neither changed nor deleted"):
        rows(database, change)
    assert len(agent.audit.list()) == 1


def test_list_is_by_person_action_and_time_and_goes_on_where_it_ended(agent: Agent, database: str) -> None:
    for person, action in (("ann", "stop"), ("bob", "start"), ("ann", "start")):
        agent.acting_for(Actor(person)).audit.record([Act(action, "x")])
    shift_clock(database, timedelta(hours=2))
    agent.acting_for(Actor("ann")).audit.record([Act("resume", "x")])

    def found(**wanted: object) -> list[tuple[str, str]]:
        return [(row.person, row.action) for row in agent.audit.list(**wanted)]  # type: ignore[arg-type]

    assert found(person="bob") == [("bob", "start")]
    assert found(action="start") == [("ann", "start"), ("bob", "start")]
    assert found(since=timedelta(hours=1)) == [("ann", "resume")]
    first = agent.audit.list(limit=3)
    assert found(before=first[-1].number) == [("ann", "stop")]


def test_command_line_records_the_person_and_lists_the_audit(agent: Agent, database: str, folder: Path) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'"))
    (folder / "order.json").write_text("{}")
    run = CliRunner()

    def command(*words: str) -> str:
        done = run.invoke(app, [*words, "--database", database])
        assert done.exit_code == 0, done.output
        return done.stdout

    command("stop", "Shipping", "--as", "ann", "--reason", "partner moves")
    command("publish", str(folder / "order.json"), "-p", "Region=NO", "--as", "bob")
    [published] = json.loads(command("get", "audit", "--person", "bob", "-o", "json"))
    shown = command("get", "audit", "--since", "1h")

    assert (published["action"], published["after"]["published"]) == ("publish", 1)
    assert published["target"].endswith("order.json")
    assert "partner moves" in shown
    assert run.invoke(app, ["get", "audit", "--since", "soon", "--database", database]).exception is not None
    assert run.invoke(app, ["get", "ports", "--since", "1h", "--database", database]).exception is not None


def test_role_of_a_host_records_what_it_publishes_and_reads_nothing(agent: Agent, roles: Roles, folder: Path) -> None:
    deploy(agent, port("Shipping", "Region = 'NO'", host="Mine"), hosts={"Mine": ()})
    roles.create()
    (folder / "order.json").write_text("{}")
    mine = roles.acting_as("Mine")

    [made] = Administration(mine, text_limit=256).publish(
        [folder / "order.json"], location=None, to=None, properties=["Region=NO"]
    )

    assert made.result == "published"
    assert acts(agent) == [("publish", str(folder / "order.json"), "done")]
    with pytest.raises(CrossdockError, match="may not do this"):
        mine.audit.list()
