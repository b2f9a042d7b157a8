"""A reference whose message is gone from the MessageBox: it is suspended and shown, not dropped."""

from __future__ import annotations

import psycopg
import pytest

import settling
from acting import resume, terminate
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.messages import MESSAGE_GONE
from express import deploy, kinds, port, rows
from service import BatchPartner, Partner, publish_named, running, settled
from walk import until


def lose(database: str, *names: str) -> None:
    """As a fault of the disk or a mistake of an administrator may."""
    with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "DELETE FROM message WHERE parts && ARRAY(SELECT id FROM part WHERE body = ANY(%s))",
            [[name.encode() for name in names]],
        )


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", [Partner, BatchPartner])
@pytest.mark.parametrize("lost", [["2"], ["1", "2", "3"]])
def test_reference_whose_message_is_gone_is_suspended_and_the_others_are_delivered(
    agent: Agent, database: str, ordered: bool, kind: type[Partner], lost: list[str]
) -> None:
    deploy(agent, port("Out", "Region = 'NO'", ordered=ordered))
    publish_named(agent, "1", "2", "3")
    lose(database, *lost)
    partner = kind()

    with running(agent, partner):
        until(lambda: settled(agent))
        publish_named(agent, "4")
        until(lambda: "4" in partner.got)

    assert sorted(partner.got) == [name for name in ("1", "2", "3", "4") if name not in lost]
    assert kinds(agent) == [("send", "Out")] * len(lost)
    assert {row.reason for row in agent.suspended.messages()} == {MESSAGE_GONE}
    assert rows(database, "SELECT FROM subqueue_lease WHERE held_by IS NOT NULL") == []
    gone = [str(row.id) for row in agent.suspended.messages()]
    assert {row.result for row in resume(agent, gone)} == {"cannot be resumed: the message is gone"}
    assert len(terminate(agent, gone)) == len(lost)
    assert kinds(agent) == []


def test_instance_that_was_taken_for_dead_suspends_nothing_of_what_others_are_done_with(
    agent: Agent, database: str
) -> None:
    """Its claim is gone with the message: there is nothing to settle."""
    deploy(agent, port("Out", "Region = 'NO'"))
    publish_named(agent, "1")
    lose(database, "1")
    host = agent.configuration.hosts()["Default"]
    life = agent.queues.lifeline(host)
    life.hold()
    try:
        [reference] = agent.queues.dequeue(host, life.instance, limit=10)
        with psycopg.connect(database, autocommit=True, options="-csearch_path=crossdock") as connection:
            connection.execute("DELETE FROM claimed")

        settling.suspend(agent, host, life.instance, [(reference.sequence, MESSAGE_GONE)])
    finally:
        life.end()

    assert (str(reference.undeliverable), kinds(agent)) == (MESSAGE_GONE, [])
