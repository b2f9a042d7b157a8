"""Orchestrations in an application: YAML and Python give the same, and a deployment holds what a host needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crossdock.administration.dry_run import explained, route_files
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.cli.app import app
from crossdock.errors import ApplicationError
from crossdock.messagebox.deployment import DeployedOrchestration, Deployment

EXAMPLES = Path(__file__).parents[2] / "examples"
FULFILMENT = (EXAMPLES / "fulfilment.py").read_text()
SHOP = (EXAMPLES / "shop.py").read_text()
YAML = """
application: shop
properties: {OrderId: text, Amount: decimal}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id, Amount: $.amount}}
  - {type: Payment, format: json, promote: {OrderId: $.id}}
  - {type: Cancellation, format: json, promote: {OrderId: $.id}}
  - {type: Invoice, format: json, promote: {OrderId: $.id}}
  - {type: Closed, format: json, promote: {OrderId: $.id}}
  - {type: Ship, format: json, promote: {OrderId: $.id}}
receive_ports:
  - name: Orders
    locations: [{adapter: file, address: "in/orders/*.json", pipeline: json, schema: Order}]
  - name: Payments
    locations: [{adapter: file, address: "in/payments/*.json", pipeline: json, schema: Payment}]
send_ports:
  - {name: Mail, adapter: file, address: "out/mail/%MessageID%.json"}
  - {name: Stock, adapter: file, address: "out/stock/%MessageID%.json"}
orchestrations: [{function: "fulfilment:fulfil", bind: {Warehouse: Stock, Customer: Mail}}]
"""


def deployed(path: Path) -> Deployment:
    return deployment_of(load_application(path), path, text_limit=256)


def shop(folder: Path, *, application: str = YAML, fulfilment: str = FULFILMENT) -> DeployedOrchestration:
    (folder / "fulfilment.py").write_text(fulfilment)
    (folder / "shop.yaml").write_text(application)
    [orchestration] = deployed(folder / "shop.yaml").orchestrations
    return orchestration


def test_yaml_and_python_give_the_same_orchestrations(folder: Path) -> None:
    (folder / "fulfilment.py").write_text(FULFILMENT)
    (folder / "shop.py").write_text(SHOP)
    (folder / "shop.yaml").write_text(YAML)

    assert deployed(folder / "shop.yaml") == deployed(folder / "shop.py")
    assert deployed(folder / "shop.yaml").digest == deployed(folder / "shop.py").digest


def test_deployment_has_the_filter_the_correlations_and_the_bindings(folder: Path) -> None:
    fulfil = shop(folder)

    assert (fulfil.name, fulfil.host) == ("fulfil", "Default")
    assert str(fulfil.filter) == "BTS.MessageType = 'Order' AND Amount > 0"
    assert fulfil.correlations == {"case": (("OrderId",), ("Cancellation", "Payment"))}
    assert fulfil.definition["function"] == "fulfilment:fulfil"
    assert fulfil.definition["version"] == fulfil.version.digest
    assert fulfil.definition["receives"] == [
        {"type": "Order", "filter": "Amount > 0", "initializes": ["case"], "convoy": False}
    ]
    assert fulfil.definition["bind"] == {
        "Warehouse": {"kind": "port", "name": "Stock"},
        "Customer": {"kind": "port", "name": "Mail"},
    }
    assert sorted(fulfil.definition["schemas"]) == ["Cancellation", "Closed", "Invoice", "Order", "Payment", "Ship"]
    assert fulfil.version.packages["crossdock"]


def test_name_and_host_can_be_given(folder: Path) -> None:
    named = YAML.replace('"fulfilment:fulfil",', '"fulfilment:fulfil", name: Fulfilment, host: Processes,')

    fulfil = shop(folder, application=named)

    assert (fulfil.name, fulfil.host) == ("Fulfilment", "Processes")


def test_port_is_bound_to_a_group_an_orchestration_whoever_subscribes_or_a_dynamic_port(folder: Path) -> None:
    application = YAML.replace(
        "orchestrations: [",
        """send_port_groups: [{name: All, ports: [Mail, Stock]}]
orchestrations:
  - {function: "fulfilment:fulfil", name: Other, bind: {Warehouse: direct, Customer: All}}
  - {function: "second:fulfil", bind: {Warehouse: Other, Customer: Anywhere}}
#""",
    ).replace("send_ports:\n", "send_ports:\n  - {name: Anywhere, dynamic: true}\n")
    (folder / "fulfilment.py").write_text(FULFILMENT)
    (folder / "second.py").write_text(FULFILMENT)
    (folder / "shop.yaml").write_text(application)

    first, second = deployed(folder / "shop.yaml").orchestrations

    assert first.definition["bind"] == {"Warehouse": {"kind": "direct"}, "Customer": {"kind": "group", "name": "All"}}
    assert second.definition["bind"] == {
        "Warehouse": {"kind": "orchestration", "name": "Other"},
        "Customer": {"kind": "dynamic", "name": "Anywhere"},
    }


def test_receives_of_one_orchestration_are_groups_of_one_filter(folder: Path) -> None:
    both = FULFILMENT.replace(
        "@orchestration(", "@orchestration(Receive(\"Ship\", \"OrderId = 'A' OR OrderId = 'B'\", initializes=case), "
    )

    fulfil = shop(folder, fulfilment=both)

    assert str(fulfil.filter) == (
        "BTS.MessageType = 'Ship' AND OrderId = 'A' OR BTS.MessageType = 'Ship' AND OrderId = 'B' "
        "OR BTS.MessageType = 'Order' AND Amount > 0"
    )


def test_activating_type_that_follows_its_own_set_makes_a_convoy(folder: Path) -> None:
    convoy = FULFILMENT.replace('types=["Payment"', 'types=["Order", "Payment"')

    assert shop(folder, fulfilment=convoy).definition["receives"][0]["convoy"] is True


@pytest.mark.parametrize(
    ("application", "sentence"),
    [
        (YAML.replace("fulfilment:fulfil", "fulfilment:fulfill"), "module 'fulfilment' has no function 'fulfill'"),
        (YAML.replace("fulfilment:fulfil", "fulfilment:timedelta"), "does not decorate with @orchestration its function 'timedelta'"),
        (YAML.replace("fulfilment:fulfil", "elsewhere:fulfil"), "there is no module 'elsewhere' beside the application"),
        (YAML.replace("fulfilment:fulfil", "fulfil"), "'fulfil' does not name an orchestration; write it as module:function"),
        (YAML.replace("Warehouse: Stock", "Warehouse: Stok"), "port 'Warehouse' is bound to 'Stok', which is no send port, group or orchestration; did you mean 'Stock'?"),
        (YAML.replace('fulfil",', 'fulfil", name: Mail,'), "the name 'Mail' is used for more than one send port, group or orchestration"),
        (YAML.replace("bind:", "binds:"), "orchestrations[0].binds: unknown key 'binds'; did you mean 'bind'?"),
    ],
)  # fmt: skip
def test_wrong_orchestration_is_refused_in_one_sentence(folder: Path, application: str, sentence: str) -> None:
    with pytest.raises(ApplicationError) as refused:
        shop(folder, application=application)

    assert sentence in str(refused.value)


def test_correlation_of_another_orchestration_is_refused(folder: Path) -> None:
    two = YAML.replace("orchestrations: [", 'orchestrations: [{function: "fulfilment:again", bind: {Customer: Mail}}, ')
    again = (
        '\n@orchestration(Receive("Ship"))\n'
        "async def again(process: Process, ship: Message) -> None:\n    await process.send(customer, ship, initializes=case)\n"
    )

    with pytest.raises(
        ApplicationError, match="it uses the correlation 'case' of 'again', and a correlation belongs to one"
    ):
        shop(folder, application=two, fulfilment=FULFILMENT + again)


def test_one_function_may_be_deployed_under_two_names(folder: Path) -> None:
    twice = YAML.replace(
        "orchestrations: [", 'orchestrations: [{function: "fulfilment:fulfil", name: Again, bind: {Warehouse: Stock, Customer: Mail}}, '
    )  # fmt: skip
    (folder / "fulfilment.py").write_text(FULFILMENT)
    (folder / "shop.yaml").write_text(twice)

    assert [each.name for each in deployed(folder / "shop.yaml").orchestrations] == ["Again", "fulfil"]


def test_orchestrations_that_a_message_would_start_or_join_are_named(folder: Path) -> None:
    deployment = deployed(EXAMPLES / "shop.py")
    order, payment = folder / "order.json", folder / "payment.json"
    order.write_text('{"id": "A1", "amount": 3}')
    payment.write_text('{"id": "A1"}')

    [started] = route_files(deployment, [order], "Orders.file")
    [joined] = route_files(deployment, [payment], "Payments.file")

    assert (started.activates, started.entry()["activates"], started.joins) == (("fulfil",), ["fulfil"], {})
    assert (joined.matches, joined.entry()["joins"]) == ((), {"fulfil": "OrderId=A1"})
    assert explained(deployment, started)["fulfil"][0] == "matches"
    assert explained(deployment, started)["fulfil"][-1].endswith("messages of this type do not follow it")
    assert explained(deployment, joined)["fulfil"][-1].strip().startswith("joins an instance that waits for OrderId=A1")


CONVOY = """
from crossdock import Correlation, Message, Process, Receive, orchestration

lot = Correlation("Customer", types=["Line"])

@orchestration(Receive("Line", initializes=lot))
async def collect(process: Process, first: Message) -> None:
    await process.receive(lot)
"""
CONVOY_APPLICATION = """
application: lines
properties: {Customer: text}
schemas: [{type: Line, format: json, promote: {Customer: $.customer}}]
receive_ports: [{name: Lines, locations: [{adapter: file, address: "in/*.json", pipeline: json}]}]
send_ports: [{name: Archive, adapter: file, address: "out/%MessageID%", filter: "MessageType = 'Line'"}]
orchestrations: [{function: "flows.lines:collect"}]
"""


def test_match_says_that_an_orchestration_in_a_folder_beside_the_application_would_be_activated(folder: Path) -> None:
    (folder / "flows").mkdir()
    (folder / "flows" / "lines.py").write_text(CONVOY)
    (folder / "lines.yaml").write_text(CONVOY_APPLICATION)
    (folder / "line.json").write_text('{"customer": "C1"}')
    arguments = ["match", str(folder / "lines.yaml"), str(folder / "line.json")]

    shown = CliRunner(env={"COLUMNS": "400"}).invoke(app, arguments, catch_exceptions=False).stdout
    [entry] = json.loads(CliRunner().invoke(app, [*arguments, "-o", "json"], catch_exceptions=False).stdout)

    assert " ".join(shown.split()).endswith("Archive, the instance of collect that waits for Customer=C1, or a new one")
    assert entry["matches"] == ["Archive", "collect"]
    assert (entry["activates"], entry["joins"]) == (["collect"], {"collect": "Customer=C1"})
