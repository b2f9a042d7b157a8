"""Messages that name the send port or the group they are for: it surely gets them, or nobody does and they are kept."""

from __future__ import annotations

from uuid import uuid4

import pytest

from box import PROPERTIES
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from express import at_ports, deploy, kinds, port, publish, rows

NORWAY = {"Region": "NO"}


def test_transport_id_reaches_its_port_whatever_its_filter_says_and_others_may_match_too(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("Bound", "Region = 'SE'"), port("Filtered", "Region = 'NO'"), port("Neither"))
    [(transport,)] = rows(database, "SELECT transport_id::text FROM service WHERE name = 'Bound'")

    published = publish(agent, {"Region": "NO", "BTS.SPTransportID": transport.upper()})

    assert published.references == 2
    assert at_ports(agent) == {"Bound": 1, "Filtered": 1}
    deploy(agent, port("Bound", "Region = 'DK'"), port("Filtered", "Region = 'DK'"), port("Neither"))
    assert publish(agent, {"BTS.SPTransportID": transport}, {"BTS.SPTransportID": ""}).references == 1


def test_port_without_a_filter_gets_only_what_is_addressed_to_it(agent: Agent, database: str) -> None:
    deploy(agent, port("Bound"))
    [(transport,)] = rows(database, "SELECT transport_id::text FROM service")

    published = publish(agent, {}, NORWAY, {"BTS.SPTransportID": transport})

    assert (published.published, published.unrouted) == (1, 2)


@pytest.mark.parametrize("many", [1, 100])
def test_message_for_a_port_that_is_not_enlisted_is_kept_for_it_though_others_want_it(agent: Agent, many: int) -> None:
    deploy(agent, port("Bound"), port("Filtered", "Region = 'NO'"))
    transport = agent.configuration.transport_id("Bound")
    agent.subscriptions.unenlist("Bound")

    published = publish(agent, *[{**NORWAY, "BTS.SPTransportID": transport}] * many, NORWAY)

    assert (published.published, published.unrouted, at_ports(agent)) == (1, many, {"Filtered": 1})
    assert set(published.refused.values()) == {"The send port that BTS.SPTransportID names is not enlisted."}
    kept = agent.suspended.messages()
    assert {row.reason for row in kept} == set(published.refused.values())

    agent.subscriptions.enlist("Bound")
    agent.subscriptions.start("Bound")

    assert set(agent.route_again([row.id for row in kept]).values()) == {True}
    assert at_ports(agent) == {"Bound": many, "Filtered": 1 + many}
    assert kinds(agent) == []


def test_message_for_a_port_that_is_not_enlisted_is_not_given_to_an_instance_that_waits_for_it(agent: Agent) -> None:
    deploy(agent, port("Bound"), port("Process"))
    agent.subscriptions.subscribe_instance("Process", uuid4(), NORWAY)
    transport = agent.configuration.transport_id("Bound")
    agent.subscriptions.unenlist("Bound")

    published = publish(agent, {**NORWAY, "BTS.SPTransportID": transport})

    assert (published.unrouted, at_ports(agent), kinds(agent)) == (1, {}, [("unrouted", None)])


def test_message_for_a_group_that_is_not_enlisted_is_kept_for_it(agent: Agent) -> None:
    ports = [port("A"), port("All/A", group="All", port="A"), port("Filtered", "Region = 'NO'")]
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], ports, {"Default": ()}, ["All"]))
    group = agent.configuration.group_id("All")
    assert group is not None
    agent.subscriptions.unenlist("All")

    published = publish(agent, {**NORWAY, "BTS.SPGroupID": group})

    assert (published.unrouted, at_ports(agent)) == (1, {})
    assert list(published.refused.values()) == ["The send port group that BTS.SPGroupID names is not enlisted."]


def test_message_for_a_stopped_port_is_held_back_there_and_reaches_the_others(agent: Agent) -> None:
    deploy(agent, port("Bound"), port("Filtered", "Region = 'NO'"))
    agent.subscriptions.stop("Bound")

    publish(agent, {**NORWAY, "BTS.SPTransportID": agent.configuration.transport_id("Bound")})

    assert (at_ports(agent), kinds(agent)) == ({"Filtered": 1}, [("stopped", "Bound")])


def test_port_that_is_not_enlisted_cannot_be_named(agent: Agent) -> None:
    ports = [port("A"), port("B"), port("All/B", group="All", port="B")]
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], ports, {"Default": ()}, ["All"]))
    agent.subscriptions.unenlist("A")
    agent.subscriptions.unenlist("All")

    with pytest.raises(UsageError, match=r"Send port 'A' is not enlisted: .* Enlist it with: crossdock enlist A"):
        agent.configuration.transport_id("A")
    with pytest.raises(UsageError, match="Send port group 'All' is not enlisted"):
        agent.configuration.group_id("All")
