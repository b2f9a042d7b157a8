"""Whoever has the role of one host, and psql: the instances of others can neither be read, forged nor destroyed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from crossdock.message.context import Context
from crossdock.messagebox.host_functions import declared
from crossdock.messagebox.instance_rows import new_instance_id
from crossdock.messagebox.statement import host_text, statements
from express import living, rows, unbalanced
from instance_attack import PER_HOST, InstanceAttack, attack
from role_attack import Publishing
from roles import roles
from running import engine, instances, message, publish
from walk import until

__all__ = ["attack", "roles"]
# Values of each type that mean something to others, or nothing.
FORGED: dict[str, Any] = {"integer": 1, "bigint": 1, "boolean": True, "interval": "1 second", "uuid": None}
VERBS = sorted(verb for verb in declared() if any(f"{{{table}}}" in statements()[verb] for table in PER_HOST[4:]))


def subscription(attack: InstanceAttack, orchestration: str) -> int:
    query = "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE service.name = %s"
    return int(rows(attack.database, query, orchestration)[0][0])


def begun(attack: InstanceAttack, publishing: Publishing, orchestration: str, instance: UUID) -> dict[str, Any]:
    """That the message of this call begins an instance."""
    return {
        "message_id": str(publishing.message),
        "subscription_id": subscription(attack, orchestration),
        "instance_id": str(instance),
    }


def correlation(attack: InstanceAttack, orchestration: str) -> int:
    query = "SELECT id FROM correlation WHERE service_id = %s"
    return int(rows(attack.database, query, attack.services[orchestration])[0][0])


# Reading


def test_instances_of_other_hosts_and_their_code_cannot_be_read(attack: InstanceAttack) -> None:
    for table in ("instance", "history", "held", "timer", "convoy", "orchestration_version"):
        attack.refused(f"SELECT FROM {table}")
    for table in ("instance", "history", "held", "timer"):
        attack.refused(f"SELECT FROM {table}_{attack.other}")

    seen = attack.connection.execute("SELECT digest FROM version_definition").fetchall()

    assert seen == [(attack.version("own"),)]


def test_message_is_given_to_the_instance_that_waits_and_tracked_so(attack: InstanceAttack) -> None:
    hash_ = attack.hash("wait", "theirs")
    [(_, waiting, *_)] = attack.connection.execute("SELECT * FROM find_instances(%s)", [[hash_]]).fetchall()
    publishing = Publishing(attack)
    row = {"message_id": str(publishing.message), "subscription_id": waiting, "hash": str(hash_)}

    forged = row | {"instance_id": str(attack.instances["collect"])}
    publishing.refused(exceptions=json.dumps({"queued": [forged]}))


def test_messages_that_others_hold_cannot_be_loaded(attack: InstanceAttack) -> None:
    with engine(attack.agent, "Other"):
        settled_at_other(attack)
    [(held,)] = rows(
        attack.database, f"SELECT message_id FROM held_{attack.other} WHERE instance_id = %s", attack.instances["wait"]
    )
    [(part,)] = rows(attack.database, "SELECT parts[1] FROM message WHERE id = %s", held)

    loaded = attack.call("load_held", list(attack.instances.values()), 1000)
    piece = attack.call("load_held_piece", list(attack.instances.values()), held, part, None)

    assert (loaded, piece) == ([], [])


# Forging and destroying


def test_functions_for_instances_do_nothing_to_those_of_others_whatever_they_are_given(attack: InstanceAttack) -> None:
    with engine(attack.agent, "Other"):
        settled_at_other(attack)
    theirs = [attack.instances["wait"], attack.instances["collect"]]
    sequences = [sequence for (sequence,) in rows(attack.database, f"SELECT sequence FROM held_{attack.other}")]
    held = [id_ for (id_,) in rows(attack.database, f"SELECT message_id FROM held_{attack.other}")]

    def forged(name: str, type_: str) -> object:
        values = held if "message" in name else theirs
        plain = type_.removesuffix("[]")
        if name in ("sequence", "claim"):
            values_ = sequences if name == "sequence" else [0] * len(sequences)
            return values_ if type_.endswith("[]") else values_[0]
        if plain == "uuid":
            return values if type_.endswith("[]") else values[0]
        one = FORGED.get(plain, b"x" if plain == "bytea" else "running")
        return [one] * len(theirs) if type_.endswith("[]") else one

    assert len(VERBS) > 10
    for verb in VERBS:
        takes = declared()[verb].takes
        values = [forged(name, type_) for name, type_ in takes]
        longer = [[*value, *value, None] if isinstance(value, list) else value for value in values]
        shorter = [value[:1] if isinstance(value, list) and n % 2 else value for n, value in enumerate(values)]
        for given in (
            values,
            longer,
            shorter,
            [None] * len(takes),
            [[None] if t.endswith("[]") else None for _, t in takes],
        ):
            places = ", ".join(f"%s::{type_}" for _, type_ in takes)
            attack.harmless(f"SELECT * FROM host_{attack.mine}_{verb}({places})".encode(), *given)
    assert unbalanced(attack.database) == []


def test_instance_has_the_id_of_one_of_another_host_by_no_means(attack: InstanceAttack) -> None:
    theirs, ours = attack.instances["collect"], attack.instances["own"]
    publishing = Publishing(attack)
    taken = new_instance_id()

    attack.write_instance(theirs)
    attack.call("pass_on", [ours], [theirs], [], [])
    publishing.refused(exceptions=json.dumps({"activated": [begun(attack, publishing, "own", theirs)]}))
    attack.write_instance(taken)
    publishing.refused(exceptions=json.dumps({"activated": [begun(attack, publishing, "collect", taken)]}))

    found = rows(attack.database, "SELECT id FROM instance WHERE host_id = %s", attack.mine)
    assert sorted(found) == sorted([(ours,), (taken,)])


def test_what_a_role_writes_of_an_instance_of_others_is_not_shown_with_it(attack: InstanceAttack) -> None:
    theirs = attack.instances["wait"]
    before = attack.agent.instances.describe(theirs)

    attack.call("write_history", [theirs], [1], [b"forged"])
    attack.call("change_timers", [], [], [theirs], [1], ["1 hour"])

    assert attack.agent.instances.describe(theirs) == before


def test_convoy_of_others_is_neither_closed_nor_taken_over(attack: InstanceAttack) -> None:
    theirs, ours = attack.instances["collect"], attack.instances["own"]
    hash_ = attack.hash("collect", "theirs")

    attack.harmless(b"SELECT close_convoys(%s)", [hash_])
    attack.harmless(b"SELECT open_convoys(%s, %s)", [hash_], [ours])
    attack.harmless(f"SELECT host_{attack.mine}_close_instances(%s)".encode(), [theirs])

    publish(attack.agent, message(attack.agent, "Line", "theirs", 7))
    assert rows(
        attack.database, f"SELECT DISTINCT instance_id FROM queue_{attack.other} WHERE instance_id = %s", theirs
    )
    assert rows(attack.database, "SELECT count(*) FROM convoy") == [(1,)]


def test_forged_convoy_keeps_no_message_from_the_instance_that_it_begins(attack: InstanceAttack) -> None:
    for order, instance in (
        ("a", attack.instances["own"]),
        ("b", attack.instances["collect"]),
        ("c", new_instance_id()),
    ):
        attack.connection.execute("SELECT open_convoys(%s, %s)", [[attack.hash("collect", order)], [instance]])

        publish(attack.agent, message(attack.agent, "Line", order))

    assert [name for name, _, _ in instances(attack.agent)].count("collect") == 4


def test_role_waits_by_no_values_of_others(attack: InstanceAttack) -> None:
    """Messages for a new instance of others would go to it instead."""
    service, mine = attack.services["own"], correlation(attack, "own")
    foreign, hash_ = correlation(attack, "collect"), attack.hash("collect", "victim")
    insert = (
        "INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)"
        f" VALUES ('{attack.instances['own']}', {service}, {attack.mine}, %s, '%s', '{{victim}}')"
    )
    awaited = {
        "instance_id": str(attack.instances["own"]), "service_id": service, "host_id": attack.mine,
        "value": ["victim"], "bound_to": None,
    }  # fmt: skip

    for number, hashed in ((mine, hash_), (foreign, hash_), (foreign, attack.hash("own", "victim"))):
        attack.refused(insert % (number, hashed))
        row = {**awaited, "correlation_id": number, "hash": str(hashed)}
        Publishing(attack).refused(exceptions=json.dumps({"awaited": [row]}))

    publish(attack.agent, message(attack.agent, "Line", "victim"))
    assert rows(attack.database, "SELECT host_id FROM convoy WHERE hash = %s", hash_) == [(attack.other,)]


def test_role_waits_by_values_of_its_own(attack: InstanceAttack) -> None:
    attack.connection.execute(
        "INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)"
        " VALUES (%s, %s, %s, %s, %s, '{other}')",
        [
            attack.instances["own"],
            attack.services["own"],
            attack.mine,
            correlation(attack, "own"),
            attack.hash("own", "o"),
        ],
    )

    published = publish(attack.agent, message(attack.agent, "Payment", "o"))

    assert published.references == 1


def test_instance_that_is_begun_waits_as_its_own_orchestration_does(attack: InstanceAttack) -> None:
    """One that is nowhere would be given the messages of others, and nobody would take them."""
    publishing = Publishing(attack)
    instance = new_instance_id()
    activated = begun(attack, publishing, "own", instance)
    waits = {"instance_id": str(instance), "value": ["victim"]}
    foreign = {
        **waits, "subscription_id": subscription(attack, "collect"), "correlation_id": correlation(attack, "collect"),
        "hash": str(attack.hash("collect", "victim")),
    }  # fmt: skip
    mixed = {**foreign, "subscription_id": activated["subscription_id"], "correlation_id": correlation(attack, "own")}

    for initialized in (foreign, mixed):
        publishing.refused(exceptions=json.dumps({"activated": [activated], "initialized": [initialized]}))


def test_role_runs_no_code_but_that_of_the_orchestration(attack: InstanceAttack) -> None:
    ours = attack.instances["own"]
    attack.write_instance(ours)

    for version in (attack.version("wait"), "none"):
        attack.write_instance(ours, version=version)

    [(version, step)] = rows(attack.database, "SELECT version, step FROM instance WHERE id = %s", ours)
    assert (version, step) == (attack.version("own"), 1)


@pytest.mark.parametrize("place", range(6, 11))
def test_instance_is_told_in_few_words(attack: InstanceAttack, place: int) -> None:
    """Everybody's lists hold its texts as a whole: what it waits for, its line, code, reason and traceback."""
    id_ = attack.instances["own"]
    told = [[id_], [attack.services["own"]], [attack.version("own")], [id_], [1], ["suspended"], *[["x"]] * 5]
    told[place] = ["x" * (128 * 1024 + 1)]

    with pytest.raises(psycopg.errors.CheckViolation):
        attack.call("write_instances", *told)


def test_service_of_another_host_gets_no_instance(attack: InstanceAttack) -> None:
    attack.write_instance(new_instance_id(), service="wait")

    assert len(attack.agent.instances.list()) == 3


@pytest.mark.parametrize("due", ["290000 years", "9000 years", "-5000 years"])
def test_timer_is_not_due_at_a_time_that_nobody_can_read(attack: InstanceAttack, due: str) -> None:
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.DatetimeFieldOverflow)):
        attack.call("change_timers", [], [], [attack.instances["own"]], [1], [due])


def test_claim_is_held_once_however_often_it_is_given(attack: InstanceAttack) -> None:
    theirs = attack.instances["wait"]
    with living(attack.agent, "Mine") as life:
        [claimed] = attack.agent.queues.dequeue(attack.mine, life.instance, limit=10, subqueue=-(2**31))
        twice: Sequence[int] = [claimed.sequence] * 2

        attack.call("hold", life.instance, twice, [0, 0], [theirs, attack.instances["own"]], [1, 2])

        assert len(rows(attack.database, "SELECT FROM held")) == 1
        assert unbalanced(attack.database) == []
        loaded = attack.call("load_held", [theirs], 1000)
        assert [row[0] for row in loaded] == [claimed.message.id]


def test_garbage_that_a_role_gives_to_an_orchestration_of_others_stops_nothing(attack: InstanceAttack) -> None:
    for context in ("{}", "[]", Context({"BTS.MessageType": "Other"}).to_json().decode(), '{"promoted": 7}'):
        publishing = Publishing(attack)
        publishing(references=[(publishing.message, subscription(attack, "wait"))], context=context)
        publishing = Publishing(attack)
        row = begun(attack, publishing, "collect", new_instance_id())
        publishing(exceptions=json.dumps({"activated": [row]}), context=context)

    publish(attack.agent, message(attack.agent, "Payment", "theirs"))
    with engine(attack.agent, "Other"):
        settled_at_other(attack)

    assert rows(attack.database, "SELECT count(*) FROM instance WHERE id = %s", attack.instances["wait"]) == [(0,)]
    assert unbalanced(attack.database) == []


def test_who_was_given_one_request_can_answer_no_other(attack: InstanceAttack) -> None:
    publish(attack.agent, message(attack.agent, "Order", "asks", 3))
    with engine(attack.agent, "Other"):
        settled_at_other(attack)
    [row] = [each for each in attack.agent.instances.list() if each.orchestration == "ask"]
    with living(attack.agent) as life:
        requests = attack.agent.queues.dequeue(attack.agent.configuration.hosts()["Default"], life.instance, limit=10)
    tokens = [str(each.message.context.get("BTS.EpmRRCorrelationToken")) for each in requests]
    known = [token.partition("RRUid:")[2] for token in tokens]

    # It is given to the instance by what everybody knows of it.
    [(waiting,)] = rows(
        attack.database, "SELECT id FROM instance_subscription WHERE hash = %s", attack.hash("ask", "asks")
    )
    for forged in (f"Request:2;RRUid:{known[0]}", f"Request:2;RRUid:{{{row.id}}}"):
        publishing = Publishing(attack)
        answer = {
            "message_id": str(publishing.message), "subscription_id": waiting, "hash": str(attack.hash("ask", "asks"))
        }  # fmt: skip
        context = Context({"BTS.MessageType": "Receipt", "BTS.EpmRRCorrelationToken": forged})
        publishing(exceptions=json.dumps({"queued": [answer]}), context=context.to_json().decode())
    with engine(attack.agent, "Other"):
        settled_at_other(attack)

    assert len(set(known)) == 2
    described = attack.agent.instances.describe(row.id)
    assert described is not None
    assert described.row.waiting_for == "response of Shop; response of Shop"


def settled_at_other(attack: InstanceAttack) -> None:
    """The messages of the attacker's own host stay."""
    until(
        lambda: (
            rows(
                attack.database,
                f"SELECT (SELECT count(*) FROM queue_{attack.other}) + (SELECT count(*) FROM claimed_{attack.other})"
                f" + (SELECT count(*) FROM scheduled_{attack.other})",
            )
            == [(0,)]
        ),
        30,
    )


def test_every_verb_for_instances_is_among_those_that_are_tried() -> None:
    per_host = [verb for verb in declared() if host_text(verb, 1) != host_text(verb, None)]

    assert {"hold", "pass_on", "write_instances", "write_history", "change_timers", "end_instances"} <= set(VERBS)
    assert set(VERBS) <= set(per_host)


def test_instance_that_runs_becomes_no_convoy(attack: InstanceAttack) -> None:
    """It would end as one: what waits by the values would go on to its successor."""
    theirs, hash_ = attack.instances["wait"], attack.hash("wait", "theirs")

    attack.harmless(b"SELECT open_convoys(%s, %s)", [hash_], [theirs])


def test_lists_hold_little_of_what_instances_wait_for(attack: InstanceAttack) -> None:
    """A megabyte of one letter is nothing in the database."""
    own, long = attack.instances["own"], "x" * 1_000_000
    attack.connection.execute(
        "INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)"
        " SELECT %s, %s, %s, %s, %s, ARRAY[%s] FROM generate_series(1, 120)",
        [own, attack.services["own"], attack.mine, correlation(attack, "own"), attack.hash("own", "o"), long],
    )

    listed = {row.id: row for row in attack.agent.instances.list()}
    paged = attack.agent.paged.instances(limit=10, after=None, state=None, orchestration=None)
    subscriptions = attack.agent.configuration.list_subscriptions()

    for rows_ in ([*listed.values()], paged):
        [found] = [row for row in rows_ if row.id == own]
        assert {len(value) for values in found.correlated.values() for value in values.values()} == {1_000}
    assert max(len(str(each)) for each in subscriptions) < 2_000


def test_list_of_instances_cuts_texts_that_one_of_them_has_in_full(attack: InstanceAttack) -> None:
    id_, long = attack.instances["own"], "x" * 100_000
    attack.call(
        "write_instances", [id_], [attack.services["own"]], [attack.version("own")], [id_], [1], ["suspended"], [long],
        [long], ["code"], [long], [long],
    )  # fmt: skip

    [listed] = [row for row in attack.agent.instances.list() if row.id == id_]
    paged = attack.agent.paged.instances(limit=10, after=None, state=None, orchestration=None)
    described = attack.agent.instances.describe(id_)

    assert described is not None
    for row, length in (
        (listed, 4_000),
        *((each, 4_000) for each in paged if each.id == id_),
        (described.row, 100_000),
    ):
        assert {len(text or "") for text in (row.waiting_for, row.line, row.reason, row.traceback)} == {length}
