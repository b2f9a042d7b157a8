"""Orchestrations in the MessageBox: deployed and listed, their states, their instances as an operator sees them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from crossdock.administration.service import Administration, DescribedInstance, Selection
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.cli.app import app
from crossdock.errors import ApplicationError, UsageError
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.messagebox.agent import Agent
from express import kinds, publish, rows

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def shop(agent: Agent, folder: Path) -> Path:
    """The shop of the examples, deployed."""
    for name in ("shop.py", "fulfilment.py"):
        (folder / name).write_bytes((EXAMPLES / name).read_bytes())
    deploy(agent, folder / "shop.py")
    return folder


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


def deploy(agent: Agent, application: Path) -> bool:
    return agent.subscriptions.deploy(deployment_of(load_application(application), application, text_limit=256))


def change(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def order(agent: Agent, id_: str = "A1", amount: int = 5) -> None:
    publish(agent, {"BTS.MessageType": "Order", "OrderId": id_, "Amount": Decimal(amount)})


def test_deployed_orchestration_is_listed_with_its_state_and_version(service: Administration) -> None:
    [fulfil] = service.orchestrations()

    assert (fulfil.name, fulfil.application, fulfil.host, fulfil.state) == ("fulfil", "shop", "Default", "started")
    assert len(fulfil.version) == 64
    assert [port.name for port in service.ports()] == ["Mail", "Stock"]


def test_comment_deploys_nothing_and_code_a_new_version_beside_the_old_one(
    shop: Path, agent: Agent, service: Administration, database: str
) -> None:
    [before] = service.orchestrations()
    order(agent)
    change(shop / "fulfilment.py", "# None: the time is over", "# it is over")
    again = deploy(agent, shop / "shop.py")
    change(shop / "fulfilment.py", "days=14", "days=15")
    changed = deploy(agent, shop / "shop.py")

    [after] = service.orchestrations()
    [instance] = agent.instances.list()
    assert (again, changed) == (False, True)
    assert before.version != after.version
    assert instance.version == before.version
    assert sorted(rows(database, "SELECT digest FROM orchestration_version")) == sorted(
        [(before.version,), (after.version,)]
    )


def test_orchestration_with_instances_stays_at_its_host(shop: Path, agent: Agent) -> None:
    order(agent)
    change(
        shop / "shop.py",
        'app.orchestration("fulfilment:fulfil",',
        'app.orchestration("fulfilment:fulfil", host="Other",',
    )

    with pytest.raises(ApplicationError, match="orchestration 'fulfil': it cannot move to host 'Other' while 1 of its"):
        deploy(agent, shop / "shop.py")


def test_orchestration_without_instances_moves(shop: Path, agent: Agent, service: Administration) -> None:
    change(
        shop / "shop.py",
        'app.orchestration("fulfilment:fulfil",',
        'app.orchestration("fulfilment:fulfil", host="Other",',
    )
    deploy(agent, shop / "shop.py")

    assert [each.host for each in service.orchestrations()] == ["Other"]


def test_stopped_orchestration_suspends_what_would_activate_it_until_it_is_started(
    agent: Agent, service: Administration
) -> None:
    stopped = service.stop("fulfil")
    order(agent)
    held = kinds(agent)
    started = service.start("fulfil")

    assert (stopped.before, stopped.after, started.resumed) == ("started", "stopped", 1)
    assert held == [("stopped", "fulfil")]
    assert kinds(agent) == []


def test_unenlisted_orchestration_is_activated_by_nothing(agent: Agent, service: Administration) -> None:
    service.unenlist("fulfil")
    order(agent)

    assert kinds(agent) == [("unrouted", None)]
    with pytest.raises(
        UsageError,
        match="Orchestration 'fulfil' is not enlisted: its state is unenlisted",
    ):
        service.stop("fulfil")
    assert service.enlist("fulfil").after == "stopped"


def test_orchestration_that_an_application_no_longer_names_is_unenlisted_and_listed_while_it_runs(
    shop: Path, agent: Agent, service: Administration
) -> None:
    order(agent)
    change(shop / "shop.py", "app.orchestration(", "(lambda *_, **__: 0)(")
    deploy(agent, shop / "shop.py")

    assert [each.state for each in service.orchestrations()] == ["unenlisted"]


def test_instances_are_found_by_state_and_by_what_their_message_promotes(agent: Agent, service: Administration) -> None:
    order(agent, "A1", 5)
    order(agent, "B2", 5000)

    assert len(service.instances()) == 2
    [large] = service.instances(where="Amount > 1000 AND OrderId = 'b2'")
    assert (large.orchestration, large.state, large.host) == ("fulfil", "running", "Default")
    assert len(large.version) == 12
    assert service.instances(state="suspended") == []
    assert [each.running for each in service.orchestrations()] == [2]
    assert agent.statistics().instances == 2
    with pytest.raises(
        UsageError, match=r"No instance is ever 'waiting'. Choose one of: running, suspended, cancelling"
    ):
        service.instances(state="waiting")
    with pytest.raises(UsageError, match="--where: property 'Amuont' is not declared; did you mean 'Amount'"):
        service.instances(where="Amuont > 3")


def test_ids_of_instances_and_of_messages_are_told_apart(agent: Agent, service: Administration) -> None:
    order(agent)
    [instance] = service.instances()

    [ended] = service.terminate(service.choose("terminate", Selection([instance.id])))

    assert (ended.id, ended.kind, ended.port, ended.done) == (instance.id, "instance", "fulfil", True)
    assert service.instances() == []
    with pytest.raises(UsageError, match=f"There is no instance {instance.id}"):
        list(service.resume(service.choose("resume", Selection([instance.id]))))
    with pytest.raises(UsageError, match="is not the id of an instance"):
        service.cancel([str(agent.message_id())])
    with pytest.raises(UsageError, match=r"No message .* is suspended"):
        service.choose("resume", Selection([str(agent.message_id())]))
    with pytest.raises(UsageError, match="There is no message"):
        service.describe(str(uuid4()))


def command(database: str, *arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--database", database, "-o", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_command_line_lists_and_describes(agent: Agent, database: str) -> None:
    order(agent)

    [orchestration] = command(database, "get", "orchestrations")
    [instance] = command(database, "get", "instances", "--where", "Amount < 6", "--state", "running")
    described = command(database, "describe", instance["id"])
    [cancelled] = command(database, "cancel", instance["id"])

    assert (orchestration["name"], orchestration["running"]) == ("fulfil", 1)
    assert (described["orchestration"], described["steps"], described["version"]) == (
        "fulfil",
        [],
        orchestration["version"],
    )
    assert cancelled["result"] == "is being cancelled"
    for arguments in (["get", "orchestrations"], ["get", "instances"], ["describe", instance["id"]]):
        shown = CliRunner().invoke(app, [*arguments, "--database", database], catch_exceptions=False)
        assert "fulfil" in shown.stdout


def test_instance_is_shown_with_the_values_by_which_it_is_correlated(agent: Agent, database: str) -> None:
    order(agent, "A1", 5)
    order(agent, "B2", 5000)

    [instance] = command(database, "get", "instances", "--where", "OrderId = 'A1'")
    described = command(database, "describe", instance["id"])
    tables = [
        CliRunner().invoke(app, [*arguments, "--database", database], catch_exceptions=False).stdout
        for arguments in (["get", "instances"], ["describe", instance["id"]])
    ]

    assert instance["correlated"] == described["correlated"] == {"case": {"OrderId": "A1"}}
    assert "OrderId=A1" in tables[0]
    assert "OrderId=B2" in tables[0]
    assert "case: OrderId=A1" in tables[1]


def test_personal_values_by_which_an_instance_is_correlated_are_masked(
    agent: Agent, database: str, service: Administration
) -> None:
    order(agent)
    rows(database, "UPDATE property SET personal = true WHERE name = 'OrderId' RETURNING 1")

    [instance] = service.instances()
    described = service.describe(instance.id)

    assert isinstance(described, DescribedInstance)
    assert instance.correlated == described.correlated == {"case": {"OrderId": "***"}}


def test_values_that_a_role_made_up_are_shown_as_they_are(agent: Agent, database: str, service: Administration) -> None:
    order(agent)
    rows(database, "UPDATE instance_subscription SET value = '{}' RETURNING 1")

    [instance] = service.instances()

    assert instance.correlated == {"case": {}}


def test_message_that_no_instance_waits_for_names_the_correlation_that_it_missed(
    agent: Agent, service: Administration
) -> None:
    publish(agent, {"BTS.MessageType": "Payment", "OrderId": "A1"}, {"BTS.MessageType": "Cancellation"})

    ReportRoutingFailures(agent).run_once()

    misses = [row.nearest_misses[0] for row in service.suspended() if row.nearest_misses]
    assert [(miss["service"], miss["failing"]) for miss in misses] == [
        ("fulfil", ["correlation case: no instance waits for OrderId=A1"]),
        ("fulfil", ["correlation case: OrderId is absent"]),
    ]


def test_where_and_state_are_for_instances(database: str) -> None:
    with pytest.raises(UsageError, match="--state is for: crossdock get instances"):
        CliRunner().invoke(app, ["get", "ports", "--state", "x", "--database", database], catch_exceptions=False)


def test_value_that_text_does_not_hold_begins_an_instance_all_the_same(agent: Agent, database: str) -> None:
    order(agent, "A\0", 5)

    [instance] = command(database, "get", "instances")

    assert instance["correlated"]["case"]["OrderId"] == "A\\0"
