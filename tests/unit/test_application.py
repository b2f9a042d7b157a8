"""Application files: both forms deploy identically, and what is wrong is refused in one sentence that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import ApplicationError, CrossdockError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDERS = (EXAMPLES / "orders.yaml").read_text()


def deployed(path: Path) -> Deployment:
    return deployment_of(load_application(path), path, text_limit=256)


def written(folder: Path, text: str, name: str = "app.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_yaml_and_python_deploy_identically() -> None:
    assert deployed(EXAMPLES / "orders.yaml") == deployed(EXAMPLES / "orders.py")
    assert deployed(EXAMPLES / "orders.yaml").digest == deployed(EXAMPLES / "orders.py").digest


def test_location_is_named_after_port_and_adapter_and_addresses_are_relative_to_the_file(folder: Path) -> None:
    deployment = deployed(written(folder, ORDERS))

    [location] = deployment.locations
    assert location.name == "OrdersIn.file"
    assert location.definition["address"] == str(folder / "in/*.json")


def test_structured_groups_mean_the_same_as_text(folder: Path) -> None:
    structured = ORDERS.replace(
        "filter: MessageType = 'Order' AND Region = 'EU' AND Amount >= 1000",
        "filter: [[{property: MessageType, operator: '=', value: Order}, {property: Region, operator: '=', value: EU},"
        " {property: Amount, operator: '>=', value: 1000}]]",
    )

    assert deployed(written(folder, structured)).ports == deployed(written(folder, ORDERS, "text.yaml")).ports


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("filter: MessageType = 'Order' AND", "fitler: MessageType = 'Order' AND",
         "send_ports[0].fitler: unknown key 'fitler'; did you mean 'filter'?"),
        ("application: orders", "application: orders\napplication: again", "line 3, column 1: the key 'application' is there twice"),
        ("Amount >= 1000", "Amuont >= 1000", "send port 'EuropeLarge', filter (column 45): property 'Amuont' is not declared"),
        ("Amount >= 1000", "Amount >= 'much'", "property 'Amount' is decimal, and 'much' is not a decimal"),
        ("Amount >= 1000", "Amount >= ", "filter (column 54): a constant is missing at the end"),
        ("Amount: decimal", "Amount: money", "properties.Amount.type: input should be 'text', 'integer'"),
        ("name: Archive", "name: Archive\n    retry: 3", "send_ports[1].retry: this takes keys with values, as in {key: value}"),
        ("{OrderId: text, Region: text, Amount: decimal}", "[OrderId]", "properties: this takes keys with values"),
        ("Region: $.region", "Region: region", "schema 'Order': property 'Region': 'region' is not a path to one field"),
        ("Region: $.region", "Country: $.region", "schema 'Order': it promotes 'Country', which is not declared"),
        ("name: Archive", "name: EuropeLarge", "the name 'EuropeLarge' is used for more than one send port"),
        ("name: Archive", "name: All/EuropeLarge", "the name 'All/EuropeLarge' is used for more than one send port, port in a group"),
        ("name: Archive", "name: OrdersIn.response", "the name 'OrdersIn.response' is used for more than one send port, port in a group or response"),
        ("pipeline: json}", "pipeline: json, schema: Invoice}", "names the schema 'Invoice', which is not declared (declared: Order)"),
        ("pipeline: json}", "pipeline: jsn}", "there is no pipeline 'jsn' (there are: json, xml, flat, passthrough)"),
        ("adapter: file, address", "address", "receive_ports[0].locations[0].adapter: this key is missing"),
        ("schemas:", "schemas: [", "not readable as YAML: line"),
        ("filter: MessageType = 'Order'\n", "filter: [{property: Region, operator: exists}]\n", "send_ports[1].filter: a filter is text, or a list of groups"),
        ("filter: MessageType = 'Order'\n", "filter: [[{property: Region, operator: exists, value: 7}]]\n", "exists takes no value"),
        ("adapter: file, address", "adapter: 'nowhere:Notes', address", "receive location 'OrdersIn.Notes': module 'nowhere' cannot be imported"),
        ("adapter: file\n", "adapter: 'json:loads'\n", "send port 'EuropeLarge': adapter 'json:loads' cannot be made: JSONDecodeError"),
        ("adapter: file\n", "adapter: 'decimal:Decimal'\n    options: {context: 5, colour: 1}\n", "send port 'EuropeLarge': adapter 'decimal:Decimal' cannot be made with its address and options"),
        ("in/*.json", "in/**/*.json", "for the folders below there is the option `subfolders`"),
        ("{OrderId: text,", "{No: text, OrderId: text,", 'line 3, column 14: YAML reads the key No as the bool false, and a key is text; write "No" in quotes'),
        ("{OrderId: text,", "{On: text, OrderId: text,", "YAML reads the key On as the bool true"),
        ("{OrderId: text,", "{5: text, OrderId: text,", "YAML reads the key 5 as a value of type int"),
        ("{OrderId: text,", "{[a]: text, OrderId: text,", "a key is text"),
        ("pipeline: json}", "pipeline: json, labels: [No]}", "not False; YAML reads yes, no, on and off as true or false unless they are in quotes"),
        ("in/*.json", "*/x.json", "receive location 'OrdersIn.file': the address '*/x.json' is a folder without wildcards"),
        ("application: orders", "x: &a [1]\napplication: *a", "aliases (*name) are not supported"),
        ("  - {type: Order", "  - {type: Refund, format: json}\n  - {type: Order", "more than one schema of format 'json'; name one"),
    ],
)  # fmt: skip
def test_wrong_yaml_is_refused_with_its_place(folder: Path, old: str, new: str, sentence: str) -> None:
    assert old in ORDERS
    more = "send_port_groups:\n  - {name: All, ports: [EuropeLarge]}\n" if "All/" in new else ""
    two_way = (
        ORDERS.replace("name: OrdersIn\n", "name: OrdersIn\n    two_way: true\n") if ".response" in new else ORDERS
    )
    path = written(folder, two_way.replace(old, new, 1) + more)

    with pytest.raises(ApplicationError) as caught:
        deployed(path)

    assert str(caught.value).startswith((f"{path}: ", f"{path}, line "))
    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2


LONG = "x" * 201


def test_key_that_is_known_elsewhere_is_refused_without_suggesting_itself(folder: Path) -> None:
    with pytest.raises(ApplicationError) as caught:
        load_application(
            written(folder, ORDERS.replace("filter: MessageType", "two_way: true\n    filter: MessageType", 1))
        )

    assert "send_ports[0].two_way: unknown key 'two_way'" in str(caught.value)
    assert "did you mean 'two_way'" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("application: orders", f"application: {LONG}", "application: a name has 1 to 200 characters"),
        ("application: orders", 'application: "a\\0b"', "and none of them is a control character, not 'a\\x00b'"),
        ("name: OrdersIn", 'name: "In\\x85"', "receive_ports[0].name: a name has 1 to 200 characters"),
        ("name: EuropeLarge", f"name: {LONG}", "send_ports[0].name: a name has 1 to 200 characters"),
        ("name: EuropeLarge", 'name: "\\ud800"', "send_ports[0].name: '\\ud800' has a NUL or half of a surrogate pair"),
        ("name: EuropeLarge", f"name: EuropeLarge\n    host: {LONG}", "send_ports[0].host: a name has 1 to 200"),
        ("adapter: file, address", f"labels: [{LONG}], adapter: file, address", "locations[0].labels[0]: a name has"),
        ("Amount: decimal", f"Amount: decimal, {LONG}: text", "has a name of more than 200 characters"),
        ("in/*.json", "in/\\0.json", "receive_ports[0].locations[0].address: 'in/\\x00.json' has a NUL"),
        ("type: Order,", 'type: "Or\\0der",', "schemas[0].type: 'Or\\x00der' has a NUL"),
        ("pipeline: json}", 'pipeline: json, options: {archive: "\\ud800"}}', "options.archive: '\\ud800' has a NUL or half"),
        ("pipeline: json}", 'pipeline: json, options: {"\\0": 1}}', "a key of receive_ports[0].locations[0].options: '\\x00'"),
    ],
)  # fmt: skip
def test_text_that_postgresql_cannot_hold_or_index_is_refused_when_it_is_loaded(
    folder: Path, old: str, new: str, sentence: str
) -> None:
    assert old in ORDERS
    path = written(folder, ORDERS.replace(old, new, 1))

    with pytest.raises(ApplicationError) as caught:
        deployed(path)

    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2
    assert all(line.startswith(str(path)) for line in str(caught.value).splitlines())


def test_longest_names_can_be_deployed(agent: Agent, folder: Path) -> None:
    name = "\N{PILE OF POO}" * 200
    groups = f"send_port_groups:\n  - {{name: {name[1:]}a, ports: [{name}]}}\n"
    text = ORDERS.replace("application: orders", f"application: {name}").replace("name: EuropeLarge", f"name: {name}")

    agent.subscriptions.deploy(deployed(written(folder, text + groups)))

    assert len(agent.configuration.list_ports()[0].name) == 200


def test_adapters_of_ones_own_are_named_in_yaml_and_in_python_alike(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "class Notes:\n    def __init__(self, address, *, timeout=1): ...\n"
        "    def list(self): ...\n    def read(self, identity): ...\n"
        "    def acknowledge(self, identity): ...\n    def name(self, identity): ...\n"
        "class Letters:\n    def __init__(self, address, *, stamp=''): ...\n"
        "    def send(self, message, *, attempt): ...\n    def close(self): ...\n"
    )
    yaml = """
application: mine
receive_ports:
  - name: In
    locations:
      - {adapter: "mine:Notes", address: "notes://here", options: {timeout: 5}, pipeline: passthrough}
send_ports:
  - {name: Out, adapter: "mine:Letters", address: "letters://there", options: {stamp: red}}
"""
    python = """
from crossdock import Application
app = Application("mine")
app.receive_port("In").adapter("mine:Notes", "notes://here", options={"timeout": 5}, pipeline="passthrough")
app.send_port("Out").adapter("mine:Letters", "letters://there", stamp="red")
"""

    same = [deployed(written(folder, yaml)), deployed(written(folder, python, "app.py"))]

    assert same[0] == same[1]
    assert [location.name for location in same[0].locations] == ["In.Notes"]


def test_numbers_in_structured_filters_are_exact(folder: Path) -> None:
    structured = ORDERS.replace(
        "filter: MessageType = 'Order'\n",
        "filter: [[{property: Amount, operator: '>=', value: 999.9999999999999991}]]\n",
    )

    [_, archive] = deployed(written(folder, structured)).ports
    assert str(archive.filter) == "Amount >= 999.9999999999999991"


def test_python_application_that_prints_does_not_disturb_the_result(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_application(written(folder, "from crossdock import Application\nprint('hello')\na = Application('a')", "a.py"))

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("app = 5", "exactly one Application, not 0"),
        ("import sys; sys.exit(0)", "line 1: SystemExit: 0"),
        ("import nowhere", "line 1: ModuleNotFoundError"),
        ("from crossdock import Application\n\nx = (", "line 3: SyntaxError"),
        ("from crossdock import Application, P\na = Application('a')\nb = Application('b')", "not 2"),
        ("from crossdock import *\na = Application('a')\na.send_port('S', filter=P.Amount > 5).file('x')",
         "property 'Amount' is not declared"),
        ("from crossdock import *\na = Application('a')\na.send_port('S', filter=(P.A > 5) and (P.B > 5))",
         "line 3: a filter expression has no truth value"),
        ("from crossdock import *\na = Application('a')\na.send_port('S')", "a send port needs `adapter` and `address`"),
    ],
)  # fmt: skip
def test_wrong_python_is_refused_with_its_place(folder: Path, text: str, sentence: str) -> None:
    with pytest.raises(CrossdockError) as caught:
        deployed(written(folder, text, "app.py"))

    assert sentence in str(caught.value)
    assert caught.value.exit_code == 2


def test_file_that_is_missing_or_of_another_kind_is_wrong_usage(folder: Path) -> None:
    with pytest.raises(UsageError, match="There is no application file"):
        load_application(folder / "missing.yaml")
    with pytest.raises(UsageError, match=r"neither a \.yaml nor a \.py file"):
        load_application(written(folder, "", "app.json"))


WEB = """
application: web
receive_ports:
  - name: Told
    locations:
      - {adapter: http, address: "https://0.0.0.0:8443/told", pipeline: passthrough, options: {certificate: tls/us.pem}}
send_ports:
  - {name: Shop, adapter: http, address: "https://shop.example.org", options: {ca: tls/shop.pem, certificate: /etc/us.pem}}
  - {name: Any, dynamic: true, options: {http: {ca: tls/shop.pem}}}
"""


def test_certificates_are_found_beside_the_application(folder: Path) -> None:
    deployment = deployed(written(folder, WEB))

    [location] = deployment.locations
    shop, anyone = (port.definition["options"] for port in deployment.ports)
    assert location.definition["options"] == {"certificate": f"{folder}/tls/us.pem"}
    assert shop == {"ca": f"{folder}/tls/shop.pem", "certificate": "/etc/us.pem"}
    assert anyone == {"http": {"ca": f"{folder}/tls/shop.pem"}}
