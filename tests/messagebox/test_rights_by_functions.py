"""Somebody with a right and `psql` neither stops publishers and hosts, nor reads without a record, nor guesses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from box import PROPERTIES, a_publication, an_orchestration, deployment, listed
from crossdock.message.context import CONTEXT_LIMIT_BYTES
from crossdock.message.message import message_id
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.messagebox.rows import SuspendedMessage
from crossdock.messagebox.statement import statement
from express import a_message, at_ports, publish, rows, unbalanced
from people import MINE, THEIRS, User, roles, user

__all__ = ["roles", "user"]

EDIT = """
SELECT * FROM edit_delivery(%s, %s, %s, %s::json, %s::uuid[], ARRAY['body'], ARRAY['x'::bytea], ARRAY[NULL]::bigint[],
                            ARRAY[NULL]::integer[], '{}')
"""


def service(agent: Agent, name: str) -> int:
    [(number,)] = rows(agent.database, "SELECT id FROM service WHERE name = %s", name)
    return int(number)


def number_of_mine(agent: Agent) -> int:
    return service(agent, "Mine")


@pytest.mark.parametrize(
    "call",
    [
        "unenlist(ARRAY[%s])",
        "enlist(%s)",
        "set_service_state(%s, 'stopped')",
    ],
)
def test_nothing_is_changed_unless_the_epoch_moves_with_it(agent: Agent, user: User, call: str) -> None:
    publish(agent, MINE)  # by a router that goes on by what it knows

    assert rows(user(("operator", "mine")), f"SELECT * FROM {call}", number_of_mine(agent)) == []

    publish(agent, MINE, THEIRS)
    assert at_ports(agent) == {"Mine": 2, "Theirs": 1}
    assert unbalanced(agent.database) == []


@pytest.mark.parametrize("table", ["service", "send_port_group", "receive_location"])
def test_operators_change_no_table(user: User, table: str) -> None:
    ann = user(("operator", "mine"), ("edit", None), ("operator", None))

    query = "SELECT has_any_column_privilege(%s, 'INSERT') OR has_any_column_privilege(%s, 'UPDATE')"
    assert rows(ann, query, table, table) == [(False,)]


def test_state_that_routers_have_not_heard_of_stops_no_publisher(agent: Agent, user: User) -> None:
    agent.subscriptions.stop("Mine")
    publish(agent, MINE, THEIRS)
    with psycopg.connect(user(("operator", "mine")), options="-csearch_path=crossdock") as ann:
        ann.execute("SELECT move_epoch()")
        ann.execute("SELECT set_service_state(%s, 'started')", [number_of_mine(agent)])

    publish(agent, MINE, THEIRS)

    assert at_ports(agent) == {"Mine": 1, "Theirs": 2}


def test_epoch_moves_only_while_nobody_publishes(agent: Agent, user: User) -> None:
    """As SUBSCRIPTION_LOCK in the statement says."""
    with psycopg.connect(user(("operator", "mine")), options="-csearch_path=crossdock") as ann:
        ann.execute("SELECT move_epoch()")
        held = rows(
            agent.database,
            "SELECT count(*) FROM pg_locks WHERE objid = %s AND mode = 'ExclusiveLock'",
            SUBSCRIPTION_LOCK,
        )

    assert held == [(1,)]
    assert str(SUBSCRIPTION_LOCK) in statement("move_epoch")


def a_suspended(agent: Agent, **message: Any) -> SuspendedMessage:
    agent.subscriptions.stop("Mine")
    publish(agent, a_message(agent, MINE, **message))
    [row] = agent.suspended.messages(port="Mine")
    return row


def test_edited_message_takes_no_id_of_a_source_that_waits(agent: Agent, user: User) -> None:
    agent.subscriptions.deploy(deployment("bulk", Bulk="Region = 'B'"))
    row, ann = a_suspended(agent), user(("edit", "mine"))
    [source] = listed(agent, "a file")
    [(bits,)] = rows(agent.database, "SELECT random_bits FROM intake")
    id_ = message_id(bits, source, 0)
    context = '{"promoted":{},"written":{}}'

    assert rows(ann, EDIT, row.host_id, row.sequence, id_, context, [uuid4()]) == []
    assert rows(ann, EDIT, row.host_id, row.sequence, uuid4(), context, [id_]) == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(ann, "SELECT insert_fragment(%s, 0, 'x')", id_)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(ann, "SELECT random_bits FROM intake")

    agent.publish([a_publication(agent, source, {"Region": "B"})])
    assert at_ports(agent) == {"Bulk": 1}


@pytest.mark.parametrize(
    "context", ['{"promoted":{},"written":{}}', '{"labels":["other"]}', "5", '{"labels":"secret"}']
)
def test_edited_message_keeps_its_labels(agent: Agent, user: User, context: str) -> None:
    agent.subscriptions.stop("Mine")
    rows(agent.database, "UPDATE host SET labels = '{secret}', labelled = true RETURNING 1")
    agent.subscriptions.correlate(["Region"])  # so that routers read the host anew
    row, ann = a_suspended_with_labels(agent), user(("edit", "mine"))

    assert rows(ann, EDIT, row.host_id, row.sequence, uuid4(), context, [uuid4()]) == []

    kept = '{"promoted":{},"written":{},"labels":["secret"]}'
    assert len(rows(ann, EDIT, row.host_id, row.sequence, uuid4(), kept, [uuid4()])) == 1


def a_suspended_with_labels(agent: Agent) -> SuspendedMessage:
    publish(agent, a_message(agent, MINE))
    [row] = agent.suspended.messages(port="Mine")
    labelled = '{"promoted":{"Region":"Mine"},"written":{},"labels":["secret"]}'
    rows(agent.database, "UPDATE message SET context = %s WHERE id = %s RETURNING 1", labelled, row.id)
    return row


def test_instance_is_begun_under_no_id_that_another_host_has(agent: Agent, user: User) -> None:
    own = [replace(an_orchestration("Own", "Region = 'OWN'"), host="Other")]
    hosts = {"Default": (), "Other": ()}
    agent.subscriptions.deploy(Deployment("own", PROPERTIES, [], [], hosts, orchestrations=own))
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    [theirs] = agent.instances.list()
    agent.subscriptions.stop("Own")
    publish(agent, {"Region": "OWN", "BTS.MessageType": "Order"})
    [row] = agent.suspended.messages(port="Own")

    begin(user(("operator", "own")), service(agent, "Own"), theirs.id, row.id)

    assert [(each.id, each.orchestration) for each in agent.instances.list()] == [(theirs.id, "Flow")]


def test_instance_is_begun_by_what_is_suspended_for_its_orchestration_only(agent: Agent, user: User) -> None:
    row, ann = a_suspended(agent), user(("operator", "mine"), ("operator", "theirs"))

    begin(ann, number_of_mine(agent), uuid4(), row.id)
    begin(ann, service(agent, "Flow"), uuid4(), row.id)

    assert agent.instances.list() == []


def begin(database: str, number: int, instance: UUID, activation: UUID) -> None:
    made = json.dumps([{"id": str(instance), "service_id": number, "activation": str(activation)}])
    rows(database, "SELECT * FROM begin_suspended(%s, '[]', '[]')", made)


def test_record_of_a_read_body_is_not_rolled_back(agent: Agent, user: User) -> None:
    message = a_message(agent, MINE)
    publish(agent, message)
    with psycopg.connect(user(("bodies", None)), options="-csearch_path=crossdock") as ann:
        ann.execute("SELECT record_reads(%s, 'read')", [[message.id]])
        ann.execute("SAVEPOINT later")
        assert ann.execute("SELECT * FROM read_messages(%s, 100::bigint)", [[message.id]]).fetchall() == []
        assert ann.execute("SELECT * FROM read_piece(%s, %s, NULL)", [message.id, message.id]).fetchall() == []
        ann.commit()

        assert len(ann.execute("SELECT * FROM read_messages(%s, 100::bigint)", [[message.id]]).fetchall()) == 1
    assert [row.action for row in agent.audit.list(limit=1)] == ["read"]


def test_record_of_somebody_else_lets_nobody_read(agent: Agent, user: User) -> None:
    message = a_message(agent, MINE)
    publish(agent, message)
    rows(user(("bodies", None)), "SELECT record_reads(%s, 'read')", [message.id])

    assert rows(user(("bodies", None)), "SELECT * FROM read_messages(%s, 100::bigint)", [message.id]) == []


def test_saved_views_of_others_are_opened_by_their_id_only(user: User) -> None:
    bob, ann = user(("viewer", None)), user(("viewer", None))
    [(id_,)] = rows(bob, "INSERT INTO saved_view (person, name, query) VALUES ('bob', 'mine', 'q=x') RETURNING id")

    assert rows(ann, "SELECT * FROM saved_view") == []
    with Agent(ann) as reader:
        found = reader.console.find_view(id_)
    assert found is not None
    assert found.query == "q=x"


@pytest.mark.parametrize(
    "query", ["SELECT hash FROM convoy", "SELECT filter FROM track_personal", "SELECT context FROM message"]
)
def test_viewers_and_operators_of_one_application_cannot_guess_personal_values(user: User, query: str) -> None:
    for rights in ([("viewer", None)], [("operator", "mine")], [("bodies", "mine"), ("edit", "mine")]):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            rows(user(*rights), query)


def test_operator_reads_contexts_of_what_it_may_resume_only(agent: Agent, user: User) -> None:
    agent.subscriptions.stop("Flow")
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order", "Customer": "C17"})
    [row] = agent.suspended.messages(port="Flow")
    query = "SELECT context FROM list_contexts(ARRAY[%s]::smallint[], ARRAY[%s]::bigint[])"

    assert rows(user(("operator", "mine")), query, row.host_id, row.sequence) == []
    assert len(rows(user(("operator", "theirs")), query, row.host_id, row.sequence)) == 1


def test_viewer_is_shown_an_instance_without_its_steps(agent: Agent, user: User) -> None:
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    [instance] = agent.instances.list()
    rows(agent.database, "INSERT INTO history SELECT host_id, id, 1, '\\x01' FROM instance RETURNING 1")

    shown = []
    for right in (("viewer", None), ("bodies", "theirs")):
        with Agent(user(right)) as ann:
            found = ann.instances.describe(instance.id)
            assert found is not None
            shown.append(len(found.records))

    assert shown == [0, 1]


def test_edited_message_has_no_larger_context_than_any(agent: Agent, user: User) -> None:
    row, ann = a_suspended(agent), user(("edit", "mine"))
    large = json.dumps({"promoted": {"Region": "x" * CONTEXT_LIMIT_BYTES}, "written": {}})

    assert rows(ann, EDIT, row.host_id, row.sequence, uuid4(), large, [uuid4()]) == []


@pytest.mark.parametrize("recorded", ["audit('note', %(text)s, NULL, NULL, 'done')", "record_reads(%(ids)s, 'look')"])
def test_record_of_another_act_lets_nobody_read(agent: Agent, user: User, recorded: str) -> None:
    message, ann = a_message(agent, MINE), user(("bodies", None))
    publish(agent, message)
    with psycopg.connect(ann, autocommit=True, options="-csearch_path=crossdock") as reader:
        reader.execute(f"SELECT {recorded}".encode(), {"text": str(message.id), "ids": [message.id]})

        assert reader.execute("SELECT * FROM read_messages(%s, 100::bigint)", [[message.id]]).fetchall() == []
        assert reader.execute("SELECT * FROM read_piece(%s, %s, NULL)", [message.id, message.id]).fetchall() == []


def test_edited_body_is_as_large_as_it_is(agent: Agent, user: User) -> None:
    row, ann = a_suspended(agent), user(("edit", "mine"))
    query = EDIT.replace("'x'::bytea", "convert_to(repeat('x', 100000), 'UTF8')").replace(
        "ARRAY[NULL]::b", "ARRAY[1]::b"
    )

    assert len(rows(ann, query, row.host_id, row.sequence, uuid4(), '{"promoted":{},"written":{}}', [uuid4()])) == 1

    assert (100_000,) in rows(agent.database, "SELECT size FROM part")


@pytest.mark.parametrize(("application", "opened"), [("mine", 0), ("theirs", 1)])
def test_operator_opens_convoys_of_its_orchestrations_only(
    agent: Agent, user: User, application: str, opened: int
) -> None:
    [(hash_,)] = rows(
        agent.database,
        "SELECT (lpad(to_hex(id), 8, '0') || repeat('0', 24))::uuid FROM correlation WHERE name = 'case'",
    )

    found = rows(user(("operator", application)), "SELECT * FROM open_convoys(%s, %s)", [hash_], [uuid4()])

    assert (len(found), len(rows(agent.database, "SELECT * FROM convoy"))) == (opened, opened)


@pytest.mark.parametrize("act", ["resume_deliveries", "resume_stopped", "edit_delivery"])
def test_nothing_is_resumed_by_what_was_so_before(agent: Agent, user: User, act: str) -> None:
    """Else what an undeployed application left would be delivered, or a host be given what it lacks the label of."""
    agent.subscriptions.stop("Mine")
    publish(agent, MINE)
    [(service,)] = rows(agent.database, "SELECT id FROM service WHERE name = 'Mine'")
    [(host, sequence)] = rows(agent.database, "SELECT host_id, sequence FROM suspended")
    calls = {
        "resume_deliveries": f"resume_deliveries('{{{host}}}', '{{{sequence}}}')",
        "resume_stopped": f"resume_stopped({service})",
        "edit_delivery": f"edit_delivery({host}::smallint, {sequence}, '{uuid4()}', '{{}}', '{{{uuid4()}}}', '{{body}}',"
        " '{x}', '{1}', '{NULL}', '{}')",
    }
    if act == "resume_stopped":
        rows(agent.database, "UPDATE service SET state = 'started' WHERE name = 'Mine' RETURNING 1")

    with psycopg.connect(user(("operator", "mine"), ("edit", "mine")), autocommit=True) as connection:
        connection.execute("SET search_path TO crossdock")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT FROM box")
        agent.subscriptions.undeploy("mine", "keep")
        connection.execute(f"SELECT * FROM {calls[act]}".encode())
        connection.execute("COMMIT")

    assert rows(agent.database, "SELECT sequence FROM suspended") == [(sequence,)]


def test_predicates_come_with_the_epoch_only(agent: Agent, user: User) -> None:
    """Publishers that know the subscription without any would not hear of them."""
    [(mine,)] = rows(agent.database, "SELECT id FROM service WHERE name = 'Mine'")
    ann = user(("operator", "mine"))
    with psycopg.connect(ann, options="-csearch_path=crossdock") as connection:
        connection.execute("SELECT * FROM move_epoch()")
        connection.execute("SELECT * FROM enlist(%s)", [mine])

    assert rows(ann, f"SELECT * FROM insert_predicates({mine})") == []
