"""A viewer of a console that owns the MessageBox: no route and no page shows a body, a personal value, a token, a secret."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from box import PROPERTIES, an_orchestration
from crossdock.api.app import API
from crossdock.console.pages import install
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.maintenance.tracking import PackTrack
from crossdock.message.message import Part
from crossdock.message.property import PropertyType
from crossdock.message.publication import Awaited, Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from express import a_message, delivered_now, port, publish, rows
from served import Served, served

BODY, PERSONAL, TOKEN, PASSWORD, STEP = "body-f00d", "person-cafe", "token-beef", "password-dead", "step-feed"
HIDDEN = (BODY, PERSONAL, TOKEN, PASSWORD, STEP)
QUERIES = ("", "?filters=now&every=true&whole=true", "?every=true")


@pytest.fixture
def filled(agent: Agent) -> Agent:
    definition = {
        "name": "In",
        "adapter": "sql",
        "address": f"postgresql://me:{PASSWORD}@shop/orders",
        "options": {"password": PASSWORD},
    }
    flows = [
        an_orchestration("Flow", "Region = 'IN'"),
        replace(an_orchestration("Known", "Region = 'BY'"), correlations={"case": (("Customer",), ("Payment",))}),
    ]
    agent.subscriptions.deploy(
        Deployment(
            "orders",
            {**PROPERTIES, "Customer": PropertyType.TEXT},
            [DeployedLocation("In", "Default", definition)],
            [
                replace(port("Plain", "Region = 'NO'", track="bodies"), definition=definition),
                port("Stopped", "Region = 'Stopped'", track="bodies"),
            ],
            {"Default": ()},
            orchestrations=flows,
            personal=["Customer"],
        )
    )
    agent.subscriptions.stop("Stopped")
    for region in ("NO", "Stopped", "nobody", "IN", "BY"):
        promoted = {"Region": region, "Customer": PERSONAL, "BTS.MessageType": "Order"}
        parts = [Part("body", BODY.encode())]
        publish(agent, a_message(agent, promoted, written={"BTS.EpmRRCorrelationToken": TOKEN}, parts=parts))
    _ask(agent)
    ReportRoutingFailures(agent).run_once()
    rows(agent.database, f"INSERT INTO history SELECT host_id, id, 1, '{STEP}'::bytea FROM instance RETURNING 1")
    return agent


def _ask(agent: Agent) -> None:
    agent.subscriptions.correlate(["BTS.EpmRRCorrelationToken"])
    [(service, host)] = rows(agent.database, "SELECT id, host_id FROM service WHERE name = 'Stopped'")
    awaits = Awaited(uuid4(), service, host, {"BTS.EpmRRCorrelationToken": TOKEN})
    asking = a_message(agent, {"Region": "Stopped"}, written={"BTS.EpmRRCorrelationToken": TOKEN})
    agent.publish([Publication(host, (asking,), awaits=awaits)])
    agent.subscriptions.subscribe_instance("Flow", uuid4(), {"BTS.EpmRRCorrelationToken": TOKEN})
    agent.subscriptions.subscribe_instance("Flow", uuid4(), {"Customer": PERSONAL})


@pytest.fixture
def console(filled: Agent) -> Iterator[Served]:
    with served(filled.database, install=install) as made:
        yield made


def addresses(made: Served, agent: Agent) -> Iterator[str]:
    """Every address that can be read, of everything that there is."""
    messages = [str(id_) for (id_,) in rows(agent.database, "SELECT id FROM message")]
    instances = [str(row.id) for row in agent.instances.list()]
    for route in iter_route_contexts(made.app.routes):
        path = str(route.path)
        if "GET" not in (route.methods or ()) or path.endswith("/live") or "{path" in path:
            continue
        things = instances if "/instances/" in path else messages if "{id" in path else [""]
        for thing in things:
            made_path = path.replace("{id}", thing).replace("{id_}", thing).replace("{name:path}", "body")
            yield from (f"{made_path}{query}" for query in QUERIES)


@pytest.mark.parametrize("packed", [False, True])
def test_viewer_is_shown_nothing_that_takes_another_right(console: Served, filled: Agent, packed: bool) -> None:
    if packed:
        delivered_now(filled)
        PackTrack(filled).run_once()
    answered, found = 0, []
    with console.as_role("viewer") as viewer:
        for address in addresses(console, filled):
            answer = viewer.get(address)
            answered += answer.status_code == 200
            found += [(address, hidden) for hidden in HIDDEN if hidden in shown(answer)]

    assert answered > 50
    assert found == []


def shown(answer: httpx.Response) -> str:
    """Also what its headers say."""
    return f"{answer.headers} {answer.text}"


def test_whoever_may_read_bodies_is_shown_them(console: Served, filled: Agent) -> None:
    """So that the test above looks where they would be."""
    with console.as_role("viewer", "bodies") as reader:
        texts = " ".join(shown(reader.get(address)) for address in addresses(console, filled))
        searched = reader.get(f"{API}/messages", params={"where": f"Customer = '{PERSONAL}'", "personal": True}).json()

    assert BODY in texts
    assert len(searched["items"]) == 5
