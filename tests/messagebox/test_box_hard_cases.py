"""What the model of the MessageBox found, each as the shortest story that shows it."""

from __future__ import annotations

from dataclasses import replace

import settling
from box import a_publication, count, deployment, ids, listed
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from interleave import living


def line(*, host: str = "Default", priority: int = 5, ordered: bool = True) -> Deployment:
    """An application with one port that keeps its messages in order, or did."""
    declared = deployment(Line="EXISTS(Region)")
    [port] = declared.ports
    return replace(declared, ports=[replace(port, host=host, priority=priority, ordered=ordered)])


def publish(agent: Agent, *names: str) -> None:
    for sequence in listed(agent, *names):
        agent.publish([a_publication(agent, sequence, {"Region": "NO"})])


def test_port_that_moves_and_no_longer_keeps_order_still_gets_what_waits_in_its_line(
    agent: Agent, database: str
) -> None:
    agent.subscriptions.deploy(line())
    publish(agent, "a", "b")

    agent.subscriptions.deploy(line(host="Sending", ordered=False))

    host = agent.configuration.hosts()["Sending"]
    with living(agent, host) as life:
        claimed = agent.queues.dequeue_ordered(host, life.instance, limit=9)
        assert len(claimed) == 2
        settled = settling.SubqueueOutcome([reference.sequence for reference in claimed])
        settling.settle_subqueue(agent, host, life.instance, claimed[0].service_id, settled)
    assert count(database, "queue") == 0


def test_line_keeps_its_order_when_the_priority_of_its_port_changes(agent: Agent) -> None:
    agent.subscriptions.deploy(line(priority=5))
    publish(agent, "a")
    agent.subscriptions.deploy(line(priority=2))
    publish(agent, "b")

    _, host = ids(agent)
    with living(agent, host) as life:
        claimed = agent.queues.dequeue_ordered(host, life.instance, limit=9)

    assert [reference.sequence for reference in claimed] == sorted(reference.sequence for reference in claimed)


def test_source_that_is_given_twice_in_one_call_is_published_once(agent: Agent, database: str) -> None:
    agent.subscriptions.deploy(deployment(All="EXISTS(Region)"))
    [sequence] = listed(agent, "a")
    publication = a_publication(agent, sequence, {"Region": "NO"})

    published = agent.publish([publication, publication])

    assert (published.publications, published.published) == (1, 1)
    assert count(database, "queue") == 1
