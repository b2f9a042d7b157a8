"""Promoted values that their property cannot have: the role of a host may write them, and they concern nobody else."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

import acting
from box import PROPERTIES, an_orchestration
from crossdock.administration.erase import erase_messages
from crossdock.administration.messages import list_messages
from crossdock.administration.routes import read_routes
from crossdock.administration.suspended import Selection, list_suspended
from crossdock.administration.try_filter import try_filter
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.maintenance.tracking import PackTrack
from crossdock.message.message import Part
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedOrchestration, DeployedPort, Deployment
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter
from crossdock.subscription.text import parse_filter
from express import a_message, publish, rows

TYPES = {**PROPERTIES, "Number": PropertyType.INTEGER, "At": PropertyType.DATETIME}
ASKED = "Amount >= 1000 OR Region LIKE 'N%' OR Number & 4 OR At < '2026-01-01'"
WRONG = [
    '{"Amount": "lots"}',
    '{"Amount": {"decimal": "1E37"}}',
    '{"Region": {"integer": "5"}}',
    '{"Number": "four"}',
    '{"Number": {"datetime": "2026-01-01T00:00:00Z"}}',
    '{"At": {"boolean": "true"}}',
]


def filter_() -> Filter:
    return parse_filter(PropertyRegistry(TYPES), ASKED)


def deploy(agent: Agent, *orchestrations: DeployedOrchestration) -> None:
    ports = [DeployedPort("Asks", "Default", 5, filter_(), {})]
    agent.subscriptions.deploy(Deployment("orders", TYPES, [], ports, {"Default": ()}, orchestrations=orchestrations))


def forge(agent: Agent, promoted: str) -> None:
    """What is stored and tracked of the message with this body, as its publisher may have written it."""
    context = f'{{"promoted": {promoted}, "written": {{}}}}'
    parts = "SELECT id FROM part WHERE body = 'wrong'"
    rows(agent.database, f"UPDATE message SET context = %s::json WHERE parts && ARRAY({parts}) RETURNING 1", context)
    rows(
        agent.database,
        f"UPDATE track_few SET contexts = ARRAY[%s::json] WHERE message_ids && ARRAY({parts}) RETURNING 1",
        context,
    )


@pytest.mark.parametrize("value", ["x", 5, True, Decimal(5)])
@pytest.mark.parametrize("asked", ASKED.split(" OR "))
def test_predicate_does_not_hold_for_a_value_that_cannot_be_compared(value: str | int | Decimal, asked: str) -> None:
    [[predicate]] = parse_filter(PropertyRegistry(TYPES), asked).groups

    assert Matcher().holds(predicate, value) in (True, False)


@pytest.mark.parametrize("wrong", WRONG)
def test_unrouted_message_with_a_wrong_value_keeps_no_other_from_being_reported_found_and_routed(
    agent: Agent, wrong: str
) -> None:
    deploy(agent)
    publish(agent, a_message(agent, {"Region": "SE"}, parts=[Part("body", b"wrong")]))
    publish(agent, {"Region": "DK"})
    forge(agent, wrong)

    assert ReportRoutingFailures(agent).run_once() == 2
    assert len(list_suspended(agent, Selection(where="NOT (Amount >= 1000 OR Region LIKE 'N%')"))) >= 0
    assert list_messages(agent, where=ASKED).messages is not None
    assert erase_messages(agent, ASKED, preview=True).erased == 0
    assert try_filter(agent, ASKED, port="Asks").looked_at == 2
    told = [row.result for row in acting.resume(agent, [str(row.id) for row in agent.suspended.messages()])]
    assert told == ["still nobody wants it"] * 2


def test_orchestration_starts_though_a_message_with_a_wrong_value_waits_for_it(agent: Agent) -> None:
    receives = [
        {"type": "Order", "filter": "Amount >= 1000", "initializes": ["case"], "convoy": False},
        {"type": "Order", "filter": None, "initializes": ["case"], "convoy": False},
    ]
    flow = an_orchestration("Flow", "Region = 'IN'")
    deploy(agent, replace(flow, definition={**flow.definition, "receives": receives}))
    agent.subscriptions.stop("Flow")
    order = {"Region": "IN", "BTS.MessageType": "Order"}
    publish(agent, a_message(agent, order, parts=[Part("body", b"wrong")]))
    publish(agent, order)
    forge(agent, '{"Region": "IN", "BTS.MessageType": "Order", "Amount": "lots"}')

    assert agent.subscriptions.start("Flow").resumed == 2


@pytest.mark.parametrize("packed", [False, True])
def test_place_and_source_that_are_no_texts_keep_nobody_from_the_routes(agent: Agent, packed: bool) -> None:
    deploy(agent)
    publish(agent, a_message(agent, {"Region": "NO"}, parts=[Part("body", b"wrong")]))
    odd = '{"integer": "7"}'
    written = f'{{"BTS.ReceiveLocationName": {odd}, "FILE.ReceivedFileName": {odd}, "BTS.MessageType": {odd}}}'
    rows(
        agent.database,
        "UPDATE track_few SET contexts = ARRAY[%s::json] RETURNING 1",
        f'{{"promoted": {{}}, "written": {written}}}',
    )
    if packed:
        PackTrack(agent).run_once()

    [row] = list_messages(agent).messages

    assert (row.location, row.source) == ("7", "7")
    assert read_routes(agent).looked_at == 1
