"""Labels in contexts that PostgreSQL stores and cannot read: the role of a host may write them, and they stop nobody."""

from __future__ import annotations

import json

import psycopg
import pytest

from box import PROPERTIES
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from express import at_ports, publish, rows
from role_attack import NORWAY, Attack, Publishing, attack
from roles import roles

__all__ = ["attack", "roles"]

# PostgreSQL stores these as JSON, and cannot read them.
UNREADABLE = [
    '{"labels": ["secret"], "promoted": {"Region": "\\ud800"}, "written": {}}',
    '{"labels": ["\\ud800"], "promoted": {}, "written": {}}',
]


def stopped(attack: Attack, publishing: Publishing) -> str:
    """That the message of this call waits for a stopped port of another host."""
    query = (
        "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE service.name = 'Other'"
    )
    [(subscription,)] = rows(attack.database, query)
    row = {"message_id": str(publishing.message), "subscription_id": subscription, "code": "x", "reason": "x"}
    return json.dumps({"stopped": [row]})


@pytest.mark.parametrize("context", UNREADABLE)
@pytest.mark.parametrize("labels", [(), ("secret",)])
def test_message_whose_labels_cannot_be_read_stops_nobody(
    attack: Attack, agent: Agent, context: str, labels: tuple[str, ...]
) -> None:
    agent.subscriptions.deploy(Deployment("labels", PROPERTIES, [], [], {"Other": labels}))
    agent.subscriptions.stop("Other")
    publish(agent, NORWAY)
    publishing = Publishing(attack)
    publishing(exceptions=stopped(attack, publishing), context=context)
    held = agent.suspended.messages(port="Other")

    assert agent.suspended.withheld([row.delivery for row in held]) == {}
    assert agent.subscriptions.start("Other").resumed == 2
    assert at_ports(agent)["Other"] == 5


def test_message_with_very_many_labels_says_why_it_stays_in_a_sentence(attack: Attack, agent: Agent) -> None:
    agent.subscriptions.stop("Other")
    publishing = Publishing(attack)
    context = json.dumps({"promoted": {}, "written": {}, "labels": ["x" * 100 + str(n) for n in range(5_000)]})
    publishing(exceptions=stopped(attack, publishing), context=context)
    [row] = agent.suspended.messages(ids=[publishing.message])

    [why] = agent.suspended.withheld([row.delivery]).values()

    assert why.startswith("The host Other lacks the label ")
    assert len(why) < 2_000


def test_context_of_more_levels_than_the_server_has_room_for_stops_nobody(attack: Attack, agent: Agent) -> None:
    """As deep as it can be stored, which is nearly as deep as it can be read."""
    agent.subscriptions.stop("Other")
    low, high = 100, 200_000
    while high - low > 1:
        depth = (low + high) // 2
        publishing = Publishing(attack)
        context = f'{{"labels": ["secret"], "x": {"[" * depth}{"]" * depth}}}'
        try:
            publishing(exceptions=stopped(attack, publishing), context=context)
        except psycopg.errors.StatementTooComplex:
            high = depth
        else:
            low = depth

    held = agent.suspended.messages(port="Other")

    agent.suspended.withheld([row.delivery for row in held])
    assert agent.subscriptions.start("Other").resumed == len(held)
