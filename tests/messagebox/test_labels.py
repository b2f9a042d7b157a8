"""Labels: a message that carries some is given only to hosts that have them all, and a refusal leaves its trace."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

import acting
from box import count
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import ApplicationError
from crossdock.maintenance.references import CleanReferences
from crossdock.message.publication import FromSource, Publication
from crossdock.messagebox.agent import Agent
from crossdock.receive.location import ReceiveLocation
from express import a_message, at_ports, delivered_now, deploy, kinds, port, publish, rows, unbalanced

NORWAY = {"Region": "NO"}
PORTS = (
    port("Open", "Region = 'NO'"),
    port("Half", "Region = 'NO'", host="Half"),
    port("Full", "Region = 'NO'", host="Full"),
)
HOSTS = {"Half": ["secret"], "Full": ["secret", "patients", "unused"]}


def test_message_with_labels_goes_only_to_hosts_that_have_them_all(agent: Agent, database: str) -> None:
    deploy(agent, *PORTS, hosts=HOSTS)
    labelled = a_message(agent, NORWAY, labels=["patients", "secret"])

    published = publish(agent, labelled, NORWAY)

    assert (published.published, published.references) == (2, 4)
    assert at_ports(agent) == {"Open": 1, "Half": 1, "Full": 2}
    refusals = rows(
        database,
        "SELECT service.name, host.name, refusal.labels FROM refusal JOIN service ON service.id = service_id"
        " JOIN host ON host.id = refusal.host_id WHERE message_id = %s ORDER BY service.id",
        labelled.id,
    )
    assert refusals == [("Open", "Default", ["patients", "secret"]), ("Half", "Half", ["patients"])]
    assert agent.messages.load([labelled.id])[labelled.id].context.labels == {"patients", "secret"}
    assert unbalanced(database) == []
    for host in agent.configuration.hosts():
        delivered_now(agent, host)
    CleanReferences(agent).run_once()
    assert (count(database, "message"), count(database, "refusal")) == (0, 0)


def test_large_batch_is_told_apart_message_by_message(agent: Agent, database: str) -> None:
    deploy(agent, *PORTS, hosts=HOSTS)
    labels = [[], ["secret"], ["patients"], ["nobody has it"]]
    messages = [a_message(agent, NORWAY, labels=labels[n % 4]) for n in range(100)]

    published = publish(agent, *messages)

    assert (published.published, published.unrouted) == (75, 25)
    assert at_ports(agent) == {"Open": 25, "Half": 50, "Full": 75}
    assert {row.id for row in agent.suspended.messages()} == {each.id for each in messages[3::4]}
    assert unbalanced(database) == []


@pytest.mark.parametrize("many", [1, 50])
def test_refusals_are_those_of_the_messages_that_are_published_and_not_of_those_left_out(
    agent: Agent, database: str, many: int
) -> None:
    deploy(agent, *PORTS, hosts=HOSTS)
    host = agent.configuration.hosts()["Default"]
    batches = [tuple(a_message(agent, NORWAY, labels=["secret"]) for _ in range(many)) for _ in range(2)]
    nobody = a_message(agent, NORWAY, labels=["nobody has it"])
    gone = Publication(host, batches[0], cause=FromSource(12345, 1, 0))  # its source is in the ledger no more

    agent.publish([gone, Publication(host, (*batches[1], nobody))])

    refused = rows(database, "SELECT message_id, count(*) FROM refusal GROUP BY message_id")
    assert dict(refused) == {**{message.id: 1 for message in batches[1]}, nobody.id: 3}
    [row] = agent.suspended.messages()
    assert row.reason == "No subscription matches: Full, Half, Open would, but the host lacks the label nobody has it."
    assert (at_ports(agent), unbalanced(database)) == ({"Half": many, "Full": many}, [])


def test_message_whose_only_match_is_refused_is_unrouted_until_the_host_has_the_label(
    agent: Agent, database: str
) -> None:
    open_port = port("Open", "Region = 'NO'")
    deploy(agent, open_port, port("Elsewhere", "Region = 'SE'"))
    labelled = a_message(agent, NORWAY, labels=["secret"])

    assert publish(agent, labelled).unrouted == 1
    [row] = agent.suspended.messages()
    assert row.reason == "No subscription matches: Open would, but the host lacks the label secret."
    assert count(database, "refusal") == 1
    assert acting.resume(agent, [str(labelled.id)])[0].result == "still nobody wants it"

    deploy(agent, open_port, hosts={"Default": ["secret"]})

    assert acting.resume(agent, [str(labelled.id)])[0].result == "routed"
    assert (at_ports(agent), kinds(agent)) == ({"Open": 1}, [])
    assert unbalanced(database) == []


def test_label_taken_from_a_host_is_respected_at_once_by_publishers_that_have_not_heard_of_it(
    agent: Agent, database: str
) -> None:
    deploy(agent, *PORTS, hosts=HOSTS)
    with Agent(database) as publisher:
        publish(publisher, a_message(publisher, NORWAY, labels=["secret"]))

        deploy(agent, *PORTS, hosts={"Half": [], "Full": ["secret"]})
        publish(publisher, a_message(publisher, NORWAY, labels=["secret"]))

    assert (at_ports(agent), kinds(agent)) == ({"Full": 2}, [("send", "Half")])


def test_stopped_port_of_a_host_without_the_label_is_not_given_the_message_either(agent: Agent) -> None:
    deploy(agent, *PORTS, hosts=HOSTS)
    agent.subscriptions.stop("Open")
    agent.subscriptions.stop("Full")

    publish(agent, a_message(agent, NORWAY, labels=["patients"]))

    assert kinds(agent) == [("stopped", "Full")]


def test_running_instance_at_a_host_without_the_label_is_not_given_the_message(agent: Agent, database: str) -> None:
    deploy(agent, port("Waiting"), port("Cleared", host="Full"), hosts=HOSTS)
    agent.subscriptions.subscribe_instance("Waiting", uuid4(), {"Region": "NO"})

    published = publish(agent, a_message(agent, NORWAY, labels=["patients"]))

    assert (published.references, published.unrouted) == (0, 1)
    agent.subscriptions.subscribe_instance("Cleared", uuid4(), {"Region": "NO"})
    publish(agent, a_message(agent, NORWAY, labels=["patients"]))
    assert at_ports(agent) == {"Cleared": 1}
    assert unbalanced(database) == []


def test_application_declares_hosts_and_labels_of_what_its_locations_receive(agent: Agent, folder: Path) -> None:
    path = folder / "clinic.yaml"
    path.write_text(
        """
application: clinic
hosts:
  - {name: Ward, labels: [patients]}
  - {name: Billing}
schemas:
  - {type: Record, format: json}
receive_ports:
  - name: Records
    locations:
      - {adapter: file, address: "in/*.json", pipeline: json, host: Ward, labels: [patients]}
send_ports:
  - {name: Archive, adapter: file, address: "out/%MessageID%", filter: MessageType = 'Record', host: Ward}
  - {name: Invoices, adapter: file, address: "bills/%MessageID%", filter: MessageType = 'Record', host: Billing}
"""
    )
    agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))
    assert {row.name: row.labels for row in agent.configuration.list_hosts()} == {
        "Ward": ["patients"],
        "Billing": [],
    }
    [(id_, host, definition)] = agent.configuration.locations()
    location = ReceiveLocation.from_definition(id_, host, definition)
    assert host == agent.configuration.hosts()["Ward"]
    agent.ledger.enter([(id_, f"1:2:3:{folder}/in/a.json".encode(), 2)])
    [item] = agent.ledger.read(0, 2**62)

    agent.publish([location.publication(item, b"{}")])

    assert at_ports(agent) == {"Archive": 1}
    path.write_text(path.read_text().replace("labels: [patients]", "labels: []"))
    agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))
    assert {row.name: row.labels for row in agent.configuration.list_hosts()} == {"Ward": [], "Billing": []}


WEB = """
application: web
hosts: [{name: Web, labels: [patients]}]
receive_ports:
  - name: Ask
    two_way: true
    locations:
      - {adapter: http, address: "http://127.0.0.1:8/ask", pipeline: passthrough, host: Web, labels: [patients, secret]}
"""
LACKS = "receive location 'Ask.http': it is two-way, and its host 'Web' lacks the label secret"


def test_two_way_location_whose_host_lacks_its_labels_is_refused(agent: Agent, folder: Path) -> None:
    path = folder / "web.yaml"
    path.write_text(WEB)
    with pytest.raises(ApplicationError, match=LACKS):
        deployment_of(load_application(path), path, text_limit=256)

    path.write_text(WEB.replace("labels: [patients]}", "labels: [secret, patients, more]}"))
    agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))
    assert agent.configuration.hosts().keys() == {"Web"}


def test_labels_of_a_host_that_another_application_declares_are_looked_up_when_it_is_deployed(
    agent: Agent, folder: Path
) -> None:
    path = folder / "web.yaml"
    path.write_text(WEB.replace("hosts: [{name: Web, labels: [patients]}]", ""))
    web = deployment_of(load_application(path), path, text_limit=256)
    hosts = {"Web": ["patients"]}
    deploy(agent, hosts=hosts)

    with pytest.raises(ApplicationError, match=LACKS):
        agent.subscriptions.deploy(web)
    assert agent.configuration.locations() == []

    deploy(agent, hosts={"Web": ["patients", "secret"]})
    agent.subscriptions.deploy(web)
    with pytest.raises(ApplicationError, match=LACKS):
        deploy(agent, hosts=hosts)
    assert {row.name: row.labels for row in agent.configuration.list_hosts()}["Web"] == ["patients", "secret"]
