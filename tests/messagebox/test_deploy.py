"""Deployment into the MessageBox: what changes, what stays, what is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from box import PROPERTIES, a_publication, deployment, listed
from crossdock.errors import ApplicationError, PropertyError
from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.subscription.text import parse_filter


def test_deploying_the_same_application_again_changes_nothing(agent: Agent) -> None:
    assert agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    epoch = agent.epoch()

    assert not agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    assert agent.epoch() == epoch


@pytest.mark.parametrize("few", [0, 1_000])
def test_few_subscriptions_are_loaded_as_many_are(agent: Agent, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossdock.messagebox.load._FEW_PREDICATES", few)
    agent.subscriptions.deploy(
        deployment(A="Region IN ('NO', 'SE') AND Amount >= 10.5", B="NOT EXISTS(Amount) OR Region = 'DE'")
    )

    router = agent.router()

    messages: list[dict[str, Value]]
    messages = [{"Region": "no", "Amount": Decimal(11)}, {"Region": "NO", "Amount": Decimal(10)}, {"Region": "SE"}]
    assert [[each.service for each in router.route(message)] for message in messages] == [["A"], [], ["B"]]


def test_changed_filter_takes_effect_and_keeps_the_subscription(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    [before] = agent.router().subscriptions

    agent.subscriptions.deploy(deployment(A="Region IN ('SE', 'DK') OR Amount >= 12.50"))

    [after] = agent.router().subscriptions
    assert after == before
    assert str(agent.filters()[after]) == "Region IN ('SE', 'DK') OR Amount >= 12.50"


def test_only_what_differs_is_touched(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region IN ('SE', 'DK')", C="EXISTS(Amount)"))
    agent.router()

    agent.subscriptions.deploy(
        deployment(A="Region = 'NO'", B="Region IN ('SE', 'FI')", C="EXISTS(Amount)", D="Amount > 5")
    )

    assert agent.router().index.delta_size == 2


def test_index_files_are_made_anew_when_they_are_broken_or_of_another_history(database: str, folder: Path) -> None:
    with Agent(database, index_folder=folder) as first:
        first.subscriptions.deploy(deployment(A="Region = 'NO'"))
        assert [each.service for each in first.router().route({"Region": "NO"})] == ["A"]
    for path in folder.rglob("*.npy"):
        path.write_bytes(b"")
    with Agent(database, index_folder=folder) as second:
        assert [each.service for each in second.router().route({"Region": "NO"})] == ["A"]
    with psycopg.connect(database, autocommit=True) as connection:  # as if a backup had been restored
        connection.execute("UPDATE crossdock.box SET epoch = epoch - 1")
        connection.execute("DELETE FROM crossdock.epoch_history WHERE epoch > (SELECT epoch FROM crossdock.box)")
    with Agent(database, index_folder=folder) as third:
        third.subscriptions.deploy(deployment(A="Region = 'SE'"))
        assert third.router().route({"Region": "NO"}) == []


def test_port_that_is_no_longer_declared_is_unenlisted(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'NO'"))
    agent.subscriptions.deploy(deployment(B="Region = 'NO'"))
    [sequence] = listed(agent, "a")

    assert agent.publish([a_publication(agent, sequence, {"Region": "NO"})]).references == 1
    assert {port.name: port.state for port in agent.configuration.list_ports()} == {"B": "started"}


def test_port_that_is_gone_is_listed_as_long_as_something_waits_for_it(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Region = 'NO'"))
    [sequence] = listed(agent, "a")
    agent.publish([a_publication(agent, sequence, {"Region": "NO"})])
    agent.subscriptions.deploy(deployment(B="Region = 'NO'"))

    assert {port.name: port.state for port in agent.configuration.list_ports()} == {
        "A": "unenlisted",
        "B": "started",
    }


def test_name_of_another_application_is_refused(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment("one", A="Region = 'NO'"))

    with pytest.raises(ApplicationError, match="Send port 'A' already belongs to application 'one'"):
        agent.subscriptions.deploy(deployment("two", A="Region = 'NO'"))
    assert [port.application for port in agent.configuration.list_ports()] == ["one"]


def test_property_of_another_type_in_another_application_is_refused(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment("one"))

    with pytest.raises(PropertyError, match="'Amount' is already declared as decimal"):
        agent.subscriptions.deploy(Deployment("two", {"Amount": PropertyType.TEXT}, [], []))


@pytest.mark.parametrize(
    "text",
    [
        "Region = 'O''Hara' AND Amount != 99999999999999999999.123456789012345678",
        "NOT EXISTS(Region) OR EXISTS(Amount)",
        "Region LIKE 'New %' AND Region NOT LIKE 'New Y%'",
        "BTS.LastInterchangeMessage = TRUE AND BTS.InterchangeSequenceNumber & 3 AND NOT InterchangeSequenceNumber & 4",
    ],
)
def test_filter_survives_the_store(agent: Agent, text: str) -> None:
    agent.subscriptions.deploy(deployment(A=text))

    [filter_] = agent.filters().values()
    assert filter_ == parse_filter(PropertyRegistry(PROPERTIES), text)
