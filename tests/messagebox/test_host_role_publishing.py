"""Whoever has the role of one host publishes and settles by functions: they take nothing on trust."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

import role_attack
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.messagebox.store import PART_LIMIT_BYTES
from express import rows, unbalanced
from role_attack import Attack, Publishing, attack
from roles import roles

__all__ = ["attack", "roles"]


def test_reference_is_to_a_message_of_the_same_call_and_goes_where_its_subscription_says(attack: Attack) -> None:
    [(theirs,), *_] = rows(attack.database, f"SELECT message_id FROM queue_{attack.other}")
    [(subscription, host)] = rows(
        attack.database,
        "SELECT subscription.id, subscription.host_id FROM subscription JOIN service ON service.id = service_id"
        " WHERE service.name = 'Other'",
    )
    before = rows(attack.database, "SELECT count(*) FROM queue WHERE message_id = %s", theirs)
    publishing = Publishing(attack)

    publishing(references=[(theirs, subscription), (publishing.message, subscription), (publishing.message, 999_999)])

    assert rows(attack.database, "SELECT count(*) FROM queue WHERE message_id = %s", theirs) == before
    found = "SELECT host_id, subscription_id FROM queue WHERE message_id = %s"
    assert rows(attack.database, found, publishing.message) == [(host, subscription)]


def test_message_of_others_can_be_neither_replaced_nor_grown(attack: Attack) -> None:
    [(theirs,), *_] = rows(attack.database, f"SELECT message_id FROM queue_{attack.other}")
    publishing = Publishing(attack)
    publishing.message = theirs
    before = attack.everything()

    with pytest.raises(psycopg.errors.UniqueViolation):
        publishing()
    with pytest.raises(InsufficientPrivilege):
        attack.connection.execute("SELECT insert_fragment(%s, 0, 'evil')", [theirs])

    assert attack.everything() == before


def test_nothing_is_suspended_nor_waits_at_other_hosts(attack: Attack) -> None:
    publishing = Publishing(attack)
    theirs = {
        "host_id": attack.other,
        "kind": "receive",
        "code": "x",
        "message_id": str(publishing.message),
        "reason": "x",
    }
    [(message,), *_] = rows(attack.database, f"SELECT message_id FROM queue_{attack.other}")
    [(service, subscription)] = rows(
        attack.database,
        "SELECT service.id, subscription.id FROM subscription JOIN service ON service.id = service_id"
        " WHERE service.name = 'Other'",
    )
    waiting = {
        "instance_id": str(uuid4()), "service_id": service, "host_id": attack.other, "correlation_id": 1,
        "hash": str(uuid4()), "value": ["x"], "bound_to": None,
    }  # fmt: skip
    stopped = {"message_id": str(publishing.message), "subscription_id": subscription, "code": "x", "reason": "x"}

    publishing.refused(exceptions=json.dumps({"suspended": [theirs]}))
    publishing.refused(
        exceptions=json.dumps({"suspended": [theirs | {"host_id": attack.mine, "message_id": str(message)}]})
    )
    publishing.refused(exceptions=json.dumps({"awaited": [waiting]}))
    publishing.refused(exceptions=json.dumps({"awaited": [waiting | {"host_id": attack.mine}]}))
    publishing.refused(exceptions=json.dumps({"stopped": [stopped]}))


def test_running_instance_is_given_a_message_only_by_whoever_knows_what_it_waits_for(attack: Attack) -> None:
    [(waiting, hash_)] = rows(attack.database, "SELECT id, hash FROM instance_subscription")
    publishing = Publishing(attack)
    guessed = {"message_id": str(publishing.message), "subscription_id": waiting, "hash": str(uuid4())}

    attack.refused("SELECT hash FROM instance_subscription")
    seen = attack.connection.execute("SELECT id FROM instance_subscription").fetchall()
    publishing(exceptions=json.dumps({"queued": [guessed]}))
    count = "SELECT count(*) FROM queue WHERE instance_id IS NOT NULL"
    assert rows(attack.database, count) == [(0,)]

    publishing.message = uuid4()
    known = guessed | {"message_id": str(publishing.message), "hash": str(hash_)}
    publishing(exceptions=json.dumps({"queued": [known]}))
    assert rows(attack.database, count) == [(1,)]
    assert seen == []


def test_host_is_not_given_a_message_whose_labels_it_lacks(attack: Attack) -> None:
    [(subscription,)] = rows(
        attack.database,
        "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE service.name = 'Other'",
    )
    publishing = Publishing(attack)

    publishing.refused(references=[(publishing.message, subscription)], context='{"labels": ["patients"]}')


def test_number_of_references_is_counted_not_told(attack: Attack) -> None:
    subscriptions = [number for (number,) in rows(attack.database, "SELECT id FROM subscription")]
    publishing = Publishing(attack)

    publishing(references=[(publishing.message, number) for number in subscriptions])

    told = "SELECT reference_count FROM message WHERE id = %s"
    assert rows(attack.database, told, publishing.message) == [(len(subscriptions),)]


def test_reference_to_a_message_of_others_is_refused_whatever_the_call_says_of_its_own_messages(attack: Attack) -> None:
    [(theirs,), *_] = rows(attack.database, f"SELECT message_id FROM queue_{attack.other}")
    [(epoch,)] = attack.connection.execute("SELECT epoch_token FROM box").fetchall()
    suspended = {"host_id": attack.mine, "kind": "receive", "code": "x", "message_id": str(theirs), "reason": "x"}
    exceptions = json.dumps({"suspended": [suspended]})
    before = attack.everything()

    for ids in ("NULL", "'{}'::uuid[]", "ARRAY[NULL]::uuid[]"):
        with pytest.raises((InsufficientPrivilege, psycopg.errors.NotNullViolation)):
            attack.connection.execute(
                f"SELECT publish_few({ids}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, %s, %s, %s, NULL)".encode(),
                [exceptions, SUBSCRIPTION_LOCK, epoch],
            )

    assert attack.everything() == before


@pytest.mark.parametrize("becomes", [["delivered"] * 3, ["delivered", "queued", "suspended"], ["nonsense"] * 3])
def test_reference_that_is_settled_several_times_in_one_call_is_settled_once(
    attack: Attack, agent: Agent, becomes: list[str]
) -> None:
    host = f"host_{attack.mine}"
    scan = "1, '{0}', '{5}', '{0}', '{}', false, 1"
    [claimed] = attack.connection.execute(f"SELECT sequence FROM {host}_dequeue({scan})".encode()).fetchall()
    times = len(becomes)

    attack.connection.execute(
        f"SELECT * FROM {host}_settle(1, %s::bigint[], %s::bigint[], %s::text[], %s::interval[], %s::boolean[],"
        " %s::text[], %s::text[], %s::text[])".encode(),
        [[*claimed] * times, [0] * times, becomes, *([each] * times for each in ("1s", True, "send", "x", "x"))],
    )

    assert unbalanced(agent.database) == []


def test_id_of_a_message_does_not_tell_the_next_one(agent: Agent) -> None:
    bits = {agent.message_id().int & (2**38 - 1) for _ in range(20)}

    assert len(bits) == 20


def test_size_of_a_body_is_not_what_its_publisher_says(attack: Attack) -> None:
    [(epoch,)] = attack.connection.execute("SELECT epoch_token FROM box").fetchall()
    id_, body = uuid4(), b"x" * 1_000_000

    attack.connection.execute(
        "SELECT publish_few(%s, %s::json[], %s, %s, '{body}', %s, '{1}', '{0}', '{}', '{}', NULL, %s, %s, NULL)",
        [[id_], ["{}"], [id_], [id_], [body], SUBSCRIPTION_LOCK, epoch],
    )

    assert rows(attack.database, "SELECT size FROM part WHERE id = %s", id_) == [(1_000_000,)]


@pytest.mark.parametrize(("name", "body"), [("n" * 1025, b"x"), ("body", b"x" * (PART_LIMIT_BYTES + 1))])
def test_part_that_nobody_could_hold_is_refused(attack: Attack, name: str, body: bytes) -> None:
    [(epoch,)] = attack.connection.execute("SELECT epoch_token FROM box").fetchall()
    id_ = uuid4()

    with pytest.raises(psycopg.errors.CheckViolation):
        attack.connection.execute(
            "SELECT publish_few(%s, %s::json[], %s, %s, %s, %s, '{1}', '{0}', '{}', '{}', NULL, %s, %s, NULL)",
            [[id_], ["{}"], [id_], [id_], [name], [body], SUBSCRIPTION_LOCK, epoch],
        )


def test_fragment_that_nobody_could_hold_is_refused(attack: Attack) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        attack.connection.execute(
            "SELECT insert_fragment(%s, 0, %s)", [uuid4(), b"x" * (PART_LIMIT_BYTES + 1)], binary=True
        )


def test_context_that_nobody_could_hold_is_refused(attack: Attack) -> None:
    before = attack.everything()

    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="more than 1,048,576 bytes"):
        Publishing(attack)(context=json.dumps({"promoted": {"Region": "x" * 1_048_576}, "written": {}}))

    assert attack.everything() == before


def test_role_publishes_by_the_subscriptions_of_now(attack: Attack, agent: Agent) -> None:
    """One that is gone would be given messages for as long as a transaction of the role lasts."""
    [(gone,)] = rows(
        attack.database,
        "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE service.name = 'Other'",
    )
    attack.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    publishing = Publishing(attack)
    agent.subscriptions.unenlist("Other")

    with pytest.raises(InsufficientPrivilege):
        publishing(references=[(publishing.message, gone)])


def test_role_publishes_nothing_while_subscriptions_change(
    attack: Attack, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing = Publishing(attack)
    monkeypatch.setattr(role_attack, "SUBSCRIPTION_LOCK", SUBSCRIPTION_LOCK + 1)

    with psycopg.connect(agent.database, options="-csearch_path=crossdock") as changing:
        changing.execute("SELECT * FROM move_epoch()")
        publishing.refused()


def test_references_that_nobody_was_given_are_not_tracked(attack: Attack) -> None:
    """Millions of them compress to nothing, and take gigabytes where the track is packed or read."""
    [(subscription,)] = rows(
        attack.database,
        "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE service.name = 'Other'",
    )
    publishing = Publishing(attack)
    given = (publishing.message, subscription)

    publishing(references=[(uuid4(), subscription), given, *[(publishing.message, 999_999)] * 1_000])

    query = "SELECT references_to, subscriptions FROM track_few WHERE %s = ANY (message_ids)"
    assert rows(attack.database, query, publishing.message) == [([publishing.message], [subscription])]
