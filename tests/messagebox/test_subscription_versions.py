"""Versions of subscriptions: written with every change, as the router of that epoch had them, and kept while needed."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from box import deployment
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.version import SubscriptionVersion
from express import deploy, port, publish
from roles import Roles, roles
from server_clock import shift_clock

__all__ = ["roles"]


def filters(versions: list[SubscriptionVersion]) -> dict[str, str]:
    return {each.service: str(each.filter) for each in versions}


def test_every_epoch_has_the_filters_that_its_router_had(agent: Agent) -> None:
    known: dict[int, dict[str, str]] = {}

    def remember() -> None:
        names = {number: each.service for number, each in agent.router().subscriptions.items()}
        known[agent.epoch().number] = {names[number]: str(each) for number, each in agent.filters().items()}

    agent.subscriptions.deploy(deployment(A="Region = 'NO'", B="Amount > 5"))
    remember()
    agent.subscriptions.deploy(deployment(A="Region = 'SE'", B="Amount > 5", C="EXISTS(Region)"))
    remember()
    agent.subscriptions.unenlist("B")
    remember()
    agent.subscriptions.deploy(deployment(C="EXISTS(Region)"))
    remember()
    agent.subscriptions.deploy(deployment(A="Region = 'DK'", B="Amount > 5", C="EXISTS(Region)"))
    remember()

    assert {epoch: filters(agent.subscriptions.versions(epoch=epoch)) for epoch in known} == known
    assert filters(agent.subscriptions.versions()) == known[agent.epoch().number]


def test_service_that_is_stopped_or_started_matches_as_before_and_has_one_version(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    [before] = agent.subscriptions.versions()

    agent.subscriptions.stop("A")
    agent.subscriptions.start("A")

    assert agent.subscriptions.versions() == [before]
    assert agent.subscriptions.versions(epoch=before.from_epoch) == [before]


def test_port_that_is_enlisted_again_has_a_gap(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    enlisted = agent.epoch().number
    agent.subscriptions.unenlist("A")
    gone = agent.epoch().number
    agent.subscriptions.enlist("A")
    again = agent.epoch().number

    found = {epoch: filters(agent.subscriptions.versions(epoch=epoch)) for epoch in (enlisted, gone, again)}
    assert found == {enlisted: {"A": "Region = 'NO'"}, gone: {}, again: {"A": "Region = 'NO'"}}


def test_versions_are_found_by_time_too(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    [first] = agent.subscriptions.versions()
    shift_clock(database, timedelta(hours=1))
    agent.subscriptions.deploy(deployment(A="Region = 'SE'"))

    at = first.from_at + timedelta(minutes=30)
    assert filters(agent.subscriptions.versions(at=at)) == {"A": "Region = 'NO'"}
    assert filters(agent.subscriptions.versions(at=at + timedelta(hours=1))) == {"A": "Region = 'SE'"}


def test_version_has_the_address_of_its_port(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))

    [version] = agent.subscriptions.versions()
    assert str(version.address) == f"BTS.SPTransportID = '{agent.configuration.transport_id('A')}'"
    assert [str(group[0].property) for group in version.whole.groups] == ["BTS.SPTransportID", "Region"]


def forget_everything_published(database: str) -> None:
    with psycopg.connect(database) as connection:
        for table in ("track_few", "track_published", "message", "part", "suspended"):
            connection.execute(f"DELETE FROM crossdock.{table}".encode())


def test_versions_that_no_message_needs_are_forgotten(agent: Agent, database: str) -> None:
    for region in ("NO", "SE", "DK"):
        agent.subscriptions.deploy(deployment(A=f"Region = '{region}'"))
    epoch = agent.epoch().number

    before = agent.cleanup.forget_versions()
    shift_clock(database, timedelta(hours=2))
    after = agent.cleanup.forget_versions()

    assert (before, after) == (0, 2)
    assert agent.subscriptions.versions(epoch=epoch - 1) == []
    assert filters(agent.subscriptions.versions()) == {"A": "Region = 'DK'"}


def test_versions_are_kept_while_a_message_of_their_day_is_tracked_or_in_the_box(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(A="Region = 'NO'"))
    publish(agent, {"Region": "XX"})
    agent.subscriptions.deploy(deployment(A="Region = 'SE'"))
    shift_clock(database, timedelta(hours=2))

    kept = agent.cleanup.forget_versions()
    forget_everything_published(database)
    forgotten = agent.cleanup.forget_versions()

    assert (kept, forgotten) == (0, 1)


def test_role_of_a_host_cannot_write_versions(agent: Agent, roles: Roles) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    roles.create()

    acting = f"-crole={roles.names['Default']} -csearch_path=crossdock"
    with psycopg.connect(agent.database, options=acting) as connection:
        with pytest.raises(InsufficientPrivilege):
            connection.execute("DELETE FROM subscription_version")
        connection.rollback()
        with pytest.raises(InsufficientPrivilege):
            connection.execute("UPDATE subscription_version SET predicate = '[]'")
