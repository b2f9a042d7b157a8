"""A whole application is started, stopped, enlisted, unenlisted, enabled or disabled by its name, or nothing of it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from box import PROPERTIES, an_orchestration
from crossdock.cli.app import app
from crossdock.errors import CrossdockError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from express import deploy, port, publish, rows
from roles import Roles, roles

__all__ = ["roles"]

STATES = "SELECT name, state FROM service WHERE deployed UNION SELECT name, state FROM send_port_group ORDER BY 1"


@pytest.fixture
def orders(agent: Agent) -> Agent:
    """An application with everything, and another one with a port that has the name of the first."""
    agent.subscriptions.deploy(
        Deployment(
            "orders",
            PROPERTIES,
            [DeployedLocation("first.in", "Default", {}), DeployedLocation("second.in", "Default", {})],
            [port("Plain", "Region = 'NO'"), port("All/Plain", "Region = 'SE'", group="All", port="Plain")],
            {"Default": ()},
            ["All"],
            orchestrations=[an_orchestration("Flow", "Region = 'IN'")],
        )
    )
    deploy(agent, port("Other", "Region = 'NO'"), application="others")
    return agent


def run(agent: Agent | str, *words: str) -> tuple[int, Any]:
    """(exit code, the document or the sentence)."""
    database = agent if isinstance(agent, str) else agent.database
    done = CliRunner().invoke(app, [*words, "-o", "json", "--as", "ann", "--database", database])
    if isinstance(done.exception, CrossdockError):
        return done.exception.exit_code, str(done.exception)
    assert done.exit_code == 0, done.output
    return 0, json.loads(done.stdout)


def states(agent: Agent) -> dict[str, str]:
    return dict(rows(agent.database, STATES))


def test_application_is_stopped_and_started_with_a_row_for_each_artefact(orders: Agent) -> None:
    code, stopped = run(orders, "stop", "orders")
    held = publish(orders, {"Region": "SE"}, {"Region": "NO"}).suspended
    _, started = run(orders, "start", "orders")

    assert code == 0
    assert [(each["kind"], each["name"], each["before"], each["after"]) for each in stopped] == [
        ("port", "Plain", "started", "stopped"),
        ("orchestration", "Flow", "started", "stopped"),
        ("group", "All", "started", "stopped"),
    ]
    assert held == 0  # one is for Other too, and the others wait for who is stopped
    assert {each["name"]: (each["after"], each["resumed"]) for each in started} == {
        "Plain": ("started", 2),
        "Flow": ("started", 0),
        "All": ("started", 0),
    }
    assert set(states(orders).values()) == {"started"}


def test_application_is_unenlisted_and_enlisted_groups_in_the_right_order(orders: Agent) -> None:
    _, gone = run(orders, "unenlist", "orders")
    unenlisted = states(orders)
    _, back = run(orders, "enlist", "orders")

    assert [each["name"] for each in gone] == ["All", "Plain", "Flow"]
    assert {name for name, state in unenlisted.items() if state == "unenlisted"} == {
        "All",
        "Plain",
        "Flow",
        "All/Plain",
    }
    assert [(each["name"], each["after"]) for each in back] == [
        ("Plain", "stopped"),
        ("Flow", "stopped"),
        ("All", "stopped"),
    ]
    assert states(orders)["Other"] == "started"
    assert run(orders, "stop", "orders")[1][0]["after"] == "stopped"  # what is so already stays so


def test_locations_of_an_application_are_disabled_and_enabled(orders: Agent) -> None:
    orders.subscriptions.enable("second.in", enabled=False)
    _, disabled = run(orders, "disable", "orders")
    resting = [row.enabled for row in orders.configuration.list_locations()]
    _, enabled = run(orders, "enable", "orders")

    assert [(each["name"], each["before"], each["after"]) for each in disabled] == [
        ("first.in", "enabled", "disabled"),
        ("second.in", "disabled", "disabled"),
    ]
    assert resting == [False, False]
    assert [each["after"] for each in enabled] == ["enabled", "enabled"]
    assert [row.enabled for row in orders.configuration.list_locations()] == [True, True]


def test_every_artefact_is_in_the_audit(orders: Agent) -> None:
    orders.subscriptions.stop("Plain")
    run(orders, "stop", "orders", "--reason", "the move")
    run(orders, "disable", "orders")

    audit = [each for each in orders.audit.list() if each.person == "ann"]
    assert {(each.action, each.target, each.outcome, each.application) for each in audit} == {
        ("stop", "Plain", "unchanged", "orders"),
        ("stop", "Flow", "done", "orders"),
        ("stop", "All", "done", "orders"),
        ("disable", "first.in", "done", "orders"),
        ("disable", "second.in", "done", "orders"),
    }
    assert {each.reason for each in audit if each.action == "stop"} == {"the move"}
    assert next(each.after for each in audit if each.target == "Flow") == {"state": "stopped", "resumed": 0}


def test_name_of_an_application_and_of_a_port_means_the_port_unless_told_otherwise(orders: Agent) -> None:
    deploy(orders, port("orders", "Region = 'XX'"), application="namesakes")
    _, one = run(orders, "stop", "orders")
    before = states(orders)
    _, all_ = run(orders, "stop", "orders", "--application")

    assert one == [{"name": "orders", "before": "started", "after": "stopped", "resumed": 0}]
    assert (before["orders"], before["Plain"]) == ("stopped", "started")
    assert [each["name"] for each in all_] == ["Plain", "Flow", "All"]


def test_unknown_application_is_refused(orders: Agent) -> None:
    for verb in ("start", "stop", "enlist", "unenlist", "enable", "disable"):
        code, said = run(orders, verb, "Plain", "--application")
        assert (code, "There is no application 'Plain' deployed (there are: orders, others)" in said) == (2, True)


def test_what_cannot_be_done_to_one_is_done_to_none(orders: Agent) -> None:
    member = port("Theirs/Plain", group="Theirs", port="Plain")
    orders.subscriptions.deploy(Deployment("foreign", PROPERTIES, [], [port("Own"), member], {}, ["Theirs"]))
    orders.subscriptions.unenlist("All")
    before = states(orders), len(orders.audit.list(action="unenlist"))

    with pytest.raises(UsageError, match="'Plain' is the last enlisted port of group 'Theirs'"):
        orders.subscriptions.change_application("unenlist", "orders")

    assert (states(orders), len(orders.audit.list(action="unenlist"))) == before


def test_operator_of_one_application_changes_that_one_only(orders: Agent, roles: Roles) -> None:  # noqa: ARG001
    [(box,)] = rows(orders.database, "SELECT to_hex(number) FROM box")
    user = f"crossdock_{box}_user_ann"
    with psycopg.connect(orders.database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'".encode())
    orders.access.grant("operator", user, "orders")
    ann = make_conninfo(orders.database, user=user, password="secret")

    for verb in ("stop", "start", "unenlist", "enlist", "disable", "enable"):
        code, said = run(ann, verb, "orders")
        assert code == 0, said
        code, said = run(ann, verb, "others")
        assert (code, "of application 'others': you may not change it" in said) == (2, True), said

    assert {each.outcome for each in orders.audit.list() if each.target == "others"} == {"refused", "done"}
    assert states(orders)["Other"] == "started"
