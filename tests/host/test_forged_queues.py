"""Rows in the queues that cannot be, which the role of a host may forge: no host instance ends, and the others go on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from box import count
from crossdock.host.outcome import Complete, Outcome, Retry, Suspend
from crossdock.messagebox.agent import Agent
from express import deploy, port, publish, rows
from service import Partner, publish_named, running
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")

RETRY_AFTER = timedelta(hours=1)
# What each makes the host stumble over, when it looks for orphans, claims, brings back or records.
COLUMNS = "host_id, sequence, priority, message_id, subscription_id, service_id"
FORGERIES = {
    "a subqueue of nobody": f"INSERT INTO queue ({COLUMNS}, subqueue) SELECT {COLUMNS}, -2147483648 FROM queue",
    "one number twice": f"INSERT INTO queue ({COLUMNS}) SELECT host_id, sequence, 7, message_id, subscription_id,"
    " service_id FROM queue",
    "due with a number of the queue": f"INSERT INTO scheduled ({COLUMNS}, attempt, due_at, reason)"
    f" SELECT {COLUMNS}, 1, '1970-01-01Z', 'forged' FROM queue",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_row_keeps_no_other_reference_from_being_delivered(agent: Agent, database: str, forgery: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, {"Region": "NO"})
    rows(database, FORGERIES[forgery] + " RETURNING 1")
    partner = Partner()

    with running(agent, partner) as instance:
        publish_named(agent, "honest")
        until(lambda: "honest" in partner.got, 30)
        instance.check()


def test_outcome_that_cannot_be_recorded_keeps_no_other_from_being_recorded(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "bad", *(f"good {n}" for n in range(5)))
    rows(
        database,
        f"INSERT INTO suspended ({COLUMNS}, kind, code, reason)"
        f" SELECT {COLUMNS}, 'send', 'forged', 'forged' FROM queue ORDER BY sequence LIMIT 1 RETURNING 1",
    )

    def answer(name: str, _: int) -> Outcome:
        return Suspend("refused") if name == "bad" else Complete()

    partner = Partner(answer)
    with running(agent, partner) as instance:
        until(lambda: agent.statistics().delivered == 5, 30)
        instance.check()

    assert sorted(set(partner.got)) == [f"good {n}" for n in range(5)]
    assert count(database, "suspended") == 1


def test_retry_that_cannot_be_recorded_ends_no_instance(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "down")
    rows(
        database,
        f"INSERT INTO scheduled ({COLUMNS}, attempt, due_at, reason)"
        f" SELECT {COLUMNS}, 1, '9000-01-01Z', 'forged' FROM queue RETURNING 1",
    )
    partner = Partner(lambda name, _: Complete() if name == "honest" else Retry(RETRY_AFTER, "down"))

    with running(agent, partner) as instance:
        until(lambda: bool(partner.attempts), 30)
        publish_named(agent, "honest")
        until(lambda: "honest" in partner.got, 30)
        instance.check()
