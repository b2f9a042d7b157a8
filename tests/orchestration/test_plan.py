"""What a deployment would change, told without changing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crossdock.administration.plan import EQUAL, Plan, plan, plan_with
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.cli.app import app
from crossdock.errors import ApplicationError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.settings import Settings
from express import rows
from running import IMPORTS, deploy, instances, message, publish, run

ORDERS = """
application: orders
properties: {Region: text, Amount: integer}
send_ports:
  - {name: Europe, adapter: file, address: "europe/%MessageID%", filter: "Region = 'EU'"}
  - {name: Web, adapter: http, address: "https://me:hidden-one@shop.example/in", options: {password: hidden-two, user: me}}
"""
FLOW = """
out = Port("Out")
case = Correlation("OrderId", types=["Payment"])

@orchestration(Receive("Order", initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", order.json()))
    payment = await process.receive(case)
"""
EVERYTHING = (
    "SELECT (SELECT array_agg(service ORDER BY id) FROM service)::text, (SELECT array_agg(box) FROM box)::text,"
    " (SELECT array_agg(instance ORDER BY id) FROM instance)::text, (SELECT count(*) FROM history),"
    " (SELECT count(*) FROM orchestration_version), (SELECT count(*) FROM message), (SELECT count(*) FROM queue)"
)


def loaded(folder: Path, text: str) -> Deployment:
    path = folder / "orders.yaml"
    path.write_text(text)
    return deployment_of(load_application(path), path, text_limit=256)


def planned(agent: Agent, deployment: Deployment) -> Plan:
    """The plan, after which everything is as it was."""
    before = rows(agent.database, EVERYTHING)
    made = plan_with(agent, deployment)
    assert rows(agent.database, EVERYTHING) == before
    return made


def planned_code(agent: Agent, folder: Path, code: str) -> Plan:
    (folder / "flows.py").write_text(IMPORTS + code)
    path = folder / "shop.yaml"
    return planned(agent, deployment_of(load_application(path), path, text_limit=256))


def test_a_deployment_that_is_there_already_changes_nothing(agent: Agent, folder: Path) -> None:
    deployment = loaded(folder, ORDERS)
    agent.subscriptions.deploy(deployment)

    made = planned(agent, deployment)

    assert made == Plan("nothing changes; 2 subscriptions", "orders", [], [], [])


def test_a_changed_filter_is_shown_before_and_after(agent: Agent, folder: Path) -> None:
    agent.subscriptions.deploy(loaded(folder, ORDERS))

    made = planned(agent, loaded(folder, ORDERS.replace("Region = 'EU'", "Region = 'EU' AND Amount > 5")))

    assert made.summary == "1 port changed; 2 subscriptions: 1 changed"
    [port], [subscription] = made.artefacts, made.subscriptions
    assert (port.name, port.change, port.keys) == ("Europe", "changed", ["filter"])
    assert (subscription.before, subscription.after) == ("Region = 'EU'", "Region = 'EU' AND Amount > 5")


def test_a_changed_filter_is_printed_once(agent: Agent, folder: Path) -> None:
    agent.subscriptions.deploy(loaded(folder, ORDERS))
    changed = ORDERS.replace("Region = 'EU'\"", "Region = 'US'\", priority: 2")
    loaded(folder, changed)

    done = CliRunner().invoke(app, ["plan", str(folder / "orders.yaml"), "--database", agent.database])

    assert done.exit_code == 0, done.output
    assert done.output.count("Region = 'EU'") == done.output.count("Region = 'US'") == 1
    assert "priority: 5 -> 2" in done.output


def test_what_differs_is_shown_with_its_values(agent: Agent, folder: Path) -> None:
    agent.subscriptions.deploy(loaded(folder, ORDERS))
    other = ORDERS.replace("filter: \"Region = 'EU'\"", "filter: \"Region = 'US'\", priority: 2, retry: {count: 7}")

    [port] = planned(agent, loaded(folder, other)).artefacts

    assert {each.key: (each.before, each.after) for each in port.differences} == {
        "priority": ("5", "2"),
        "filter": ("Region = 'EU'", "Region = 'US'"),
        "retry_count": ("3", "7"),
    }


def test_a_removed_port_says_how_many_messages_wait_for_it(agent: Agent, folder: Path) -> None:
    agent.subscriptions.deploy(loaded(folder, ORDERS))
    publish(agent, *(message(agent, "Order", "a", Region="EU") for _ in range(3)))
    without = "\n".join(line for line in ORDERS.splitlines() if "Europe" not in line)

    made = planned(agent, loaded(folder, without))

    assert [(each.kind, each.name, each.change, each.waiting) for each in made.artefacts] == [
        ("port", "Europe", "removed", 3)
    ]
    assert [(each.name, each.change, each.after) for each in made.subscriptions] == [("Europe", "removed", None)]


def test_groups_hosts_and_locations_are_compared(agent: Agent, folder: Path) -> None:
    agent.subscriptions.deploy(loaded(folder, ORDERS))
    more = ORDERS + (
        "hosts: [{name: Fast, labels: [secret]}]\n"
        "send_port_groups: [{name: Both, ports: [Europe, Web], filter: Amount > 1}]\n"
        'receive_ports: [{name: In, locations: [{adapter: file, address: "in/*", host: Fast, pipeline: passthrough}]}]\n'
    )

    added = planned(agent, loaded(folder, more))
    agent.subscriptions.deploy(loaded(folder, more))
    less = more.replace("[secret]", "[]").replace("[Europe, Web]", "[Web]").replace("in/*", "inbox/*")
    changed = planned(agent, loaded(folder, less))

    assert {(each.kind, each.name, each.change) for each in added.artefacts} == {
        ("host", "Fast", "added"),
        ("group", "Both", "added"),
        ("receive location", "In.file", "added"),
    }
    assert {(each.kind, each.change, *each.keys) for each in changed.artefacts} == {
        ("host", "changed", "labels"),
        ("group", "changed", "ports"),
        ("receive location", "changed", "address"),
    }
    assert [(each.name, each.change) for each in changed.subscriptions] == [("Both/Europe", "removed")]


def test_secrets_are_not_printed(agent: Agent, folder: Path) -> None:
    agent.subscriptions.deploy(loaded(folder, ORDERS))
    other = ORDERS.replace("hidden-one@shop", "hidden-three@store").replace("hidden-two", "hidden-four")
    (folder / "orders.yaml").write_text(other)

    for output in ("table", "json"):
        result = CliRunner().invoke(
            app, ["plan", str(folder / "orders.yaml"), "--database", agent.database, "-o", output]
        )

        assert result.exit_code == 0, result.output
        assert "hidden" not in result.output
    [port] = json.loads(result.stdout)["artefacts"]
    assert port["keys"] == ["address", "options.password"]
    assert port["differences"][1] == {"key": "options.password", "before": None, "after": None}
    assert "shop.example" in port["address"]
    assert "store.example" in port["address"]


def test_everything_is_added_where_there_is_no_messagebox(tmp_path: Path, empty_database: str) -> None:
    deployment, home = loaded(tmp_path, ORDERS), tmp_path / "home"

    nowhere = plan(deployment, Settings(home=home))
    empty = plan(deployment, Settings(home=home, database=empty_database))

    assert nowhere == empty
    assert nowhere.summary == "2 properties added, 1 host added, 2 ports added; 2 subscriptions: 2 added"
    assert not home.exists()


def test_what_a_deployment_would_be_refused_for_is_said(agent: Agent, folder: Path) -> None:
    agent.subscriptions.deploy(loaded(folder, ORDERS))

    with pytest.raises(ApplicationError, match="already belongs to application 'orders'"):
        plan_with(agent, loaded(folder, ORDERS.replace("application: orders", "application: others")))


def test_a_new_version_that_does_the_same_so_far_replays_equal(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, FLOW, "fulfil")
    publish(agent, *(message(agent, "Order", f"{number}") for number in range(5)))
    run(agent)
    [old] = {each.version for each in agent.instances.list()}

    made = planned_code(agent, folder, FLOW + "    await process.send(out, process.message('Note', payment.json()))\n")

    [change] = made.orchestrations
    assert (change.before, [(each.version, each.instances) for each in change.living]) == (old, [(old, 5)])
    [shape] = change.shapes
    assert (shape.result, shape.instances, shape.replayed) == (EQUAL, 5, 3)
    assert "send Out" in shape.shape
    assert made.summary == f"1 orchestration changed; 3 subscriptions; 5 instances stay on version {old[:12]} of fulfil"
    assert instances(agent) == [("fulfil", "running", 1)] * 5


def test_a_new_version_that_does_something_else_is_told_by_step_and_line(agent: Agent, folder: Path) -> None:
    deploy(agent, folder, FLOW, "fulfil")
    publish(agent, message(agent, "Order", "a"))
    run(agent)

    begin = "    await process.send"
    made = planned_code(agent, folder, FLOW.replace(begin, f"    await process.delay(timedelta(hours=1))\n{begin}"))

    [shape] = made.orchestrations[0].shapes
    assert (shape.step, shape.expected) == (1, "send Out")
    assert shape.found is not None
    assert shape.found.startswith("timer")
    assert shape.line is not None
    assert shape.line.startswith("flows.py:")
    assert "does something else in step 1" in shape.result
