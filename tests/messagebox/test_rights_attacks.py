"""Somebody with a right for one application, and `psql`, reaches nothing of another and does nothing unrecorded."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from box import PROPERTIES, an_orchestration
from crossdock.administration.messages import list_messages
from crossdock.errors import NotAllowedError
from crossdock.maintenance.tracking import PackTrack
from crossdock.message.message import Part
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.messages import HELD_BYTES
from express import a_message, at_ports, publish, rows
from people import MINE, THEIRS, User, roles, user

__all__ = ["roles", "user"]


def refused(database: str, query: str, *parameters: object) -> bool:
    try:
        rows(database, query + " RETURNING 1", *parameters)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def subscription(agent: Agent, name: str) -> int:
    [(number,)] = rows(
        agent.database,
        "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE service.name = %s",
        name,
    )
    return int(number)


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO subscription_removal SELECT %(theirs)s, epoch + 1 FROM box",
        "INSERT INTO epoch_history SELECT epoch + 1, epoch_token FROM box",
        "UPDATE box SET epoch = 9223372036854775807",
        "UPDATE box SET epoch_token = gen_random_uuid()",
        "UPDATE box SET location_token = gen_random_uuid()",
        "UPDATE subscription SET host_id = 2 WHERE id = %(mine)s",
        "DELETE FROM subscription WHERE id = %(mine)s",
        "INSERT INTO predicate VALUES (%(mine)s, 7, 0, 'NoSuch', 'text', '~~', '{{x}}', 1)",
        "DELETE FROM predicate WHERE subscription_id = %(mine)s",
    ],
)
def test_operator_does_not_write_what_everybody_routes_by(agent: Agent, user: User, change: str) -> None:
    places = {"mine": str(subscription(agent, "Mine")), "theirs": str(subscription(agent, "Theirs"))}
    query = change.replace("%(mine)s", places["mine"]).replace("%(theirs)s", places["theirs"])

    assert refused(user(("operator", "mine")), query.replace("{{", "{").replace("}}", "}"))

    publish(agent, MINE, THEIRS)
    assert at_ports(agent) == {"Mine": 1, "Theirs": 1}


@pytest.mark.parametrize(
    "call",
    [
        "enlist({service})",
        "insert_predicates({service})",
        "set_service_state({service}, 'stopped')",
        "unenlist('{{{service}}}')",
    ],
)
def test_functions_of_operators_leave_other_applications_alone(agent: Agent, user: User, call: str) -> None:
    [(theirs,)] = rows(agent.database, "SELECT id FROM service WHERE name = 'Theirs'")
    before = rows(agent.database, "SELECT * FROM subscription ORDER BY id")

    assert rows(user(("operator", "mine")), f"SELECT * FROM {call.format(service=theirs)}") == []

    assert rows(agent.database, "SELECT * FROM subscription ORDER BY id") == before
    publish(agent, THEIRS)
    assert at_ports(agent) == {"Theirs": 1}


def test_operator_of_one_application_still_changes_its_states(agent: Agent, user: User) -> None:
    with Agent(user(("operator", "mine"))) as ann:
        for change, ready in (("unenlist", {}), ("enlist", {}), ("start", {"Mine": 1}), ("stop", {"Mine": 1})):
            getattr(ann.subscriptions, change)("Mine")
            publish(agent, MINE)
            assert at_ports(agent) == ready if change != "start" else at_ports(agent)["Mine"] == 2, change
            if change == "start":
                rows(agent.database, "DELETE FROM queue WHERE sequence = (SELECT max(sequence) FROM queue) RETURNING 1")


def test_rights_that_an_older_version_gave_are_taken_back(agent: Agent, user: User) -> None:
    ann = user(("operator", "mine"), ("bodies", "mine"))
    [(role,)] = rows(agent.database, "SELECT access_role('operator', 'mine')")
    with psycopg.connect(agent.database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(f"GRANT UPDATE (epoch) ON box TO {role}".encode())
        connection.execute(f"GRANT INSERT ON predicate TO {role}".encode())
        connection.execute("SELECT renew_access_roles()")

    assert refused(ann, "UPDATE box SET epoch = 1")
    [(inserts,)] = rows(ann, "SELECT has_table_privilege('predicate', 'INSERT')")
    assert not inserts


@pytest.mark.parametrize("packed", [False, True])
def test_right_to_read_for_one_application_reads_no_track_of_others(agent: Agent, user: User, packed: bool) -> None:
    publish(agent, {**THEIRS, "Customer": "C17"})
    if packed:
        PackTrack(agent).run_once()
    one, all_ = user(("bodies", "mine")), user(("bodies", None))

    for query in (
        "SELECT bodies FROM track_few",
        "SELECT content FROM track_body",
        "SELECT content FROM track_personal",
    ):
        rows(all_, query)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            rows(one, query)
    with Agent(one) as ann, pytest.raises(NotAllowedError, match="for all applications"):
        list_messages(ann, where="Customer = 'C17'", personal=True)
    with Agent(all_) as bob:
        assert len(list_messages(bob, where="Customer = 'C17'", personal=True).messages) == 1


def test_histories_are_read_by_who_may_read_bodies_of_their_application(agent: Agent, user: User) -> None:
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    rows(agent.database, "INSERT INTO history SELECT host_id, id, 1, '\\x01' FROM instance RETURNING 1")

    assert rows(user(("bodies", "mine")), "SELECT record FROM history") == []
    assert rows(user(("bodies", "theirs")), "SELECT record FROM history") == [(b"\x01",)]
    assert rows(user(("bodies", None)), "SELECT record FROM history") == [(b"\x01",)]


def test_no_part_is_read_without_a_record(agent: Agent, user: User) -> None:
    large = b"x" * (HELD_BYTES + 1)
    message = a_message(agent, MINE, parts=[Part("body", large)])
    publish(agent, message)
    ann = user(("bodies", None))
    [(part,)] = rows(agent.database, "SELECT id FROM part")

    assert rows(ann, "SELECT * FROM read_piece(%s, %s, NULL)", message.id, part) == []
    with Agent(ann) as reader:
        read, _ = reader.messages.read([message.id], "save")
        assert read[message.id].body == large
    assert [(row.action, row.target) for row in agent.audit.list(limit=1)] == [("save", str(message.id))]


@pytest.mark.parametrize("verb", ["resume", "cancel"])
def test_instance_is_woken_in_the_audit_only(agent: Agent, user: User, verb: str) -> None:
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    [instance] = agent.instances.list()
    rows(agent.database, "UPDATE instance SET state = 'suspended', reason = 'x' RETURNING 1")

    rows(user(("operator", "theirs")), f"SELECT * FROM {verb}_instances(ARRAY[%s]::uuid[])", instance.id)

    [act] = agent.audit.list(limit=1)
    assert (act.action, act.target, act.application, act.outcome) == (verb, str(instance.id), "theirs", "done")


def test_suspended_message_is_not_given_to_an_instance_of_others(agent: Agent, user: User) -> None:
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    [theirs] = agent.instances.list()
    own = [an_orchestration("Own", "Region = 'OWN'")]
    agent.subscriptions.deploy(Deployment("own", PROPERTIES, [], [], {"Default": ()}, orchestrations=own))
    agent.subscriptions.stop("Own")
    publish(agent, {"Region": "OWN", "BTS.MessageType": "Order"})
    [row] = agent.suspended.messages(port="Own")

    assert _given(user(("operator", "own")), row, theirs.id) == 0

    assert rows(agent.database, "SELECT instance_id FROM suspended") == [(None,)]


def _given(database: str, row: Any, instance: UUID) -> int:
    given = f'[{{"host_id": {row.host_id}, "sequence": {row.sequence}, "instance_id": "{instance}"}}]'
    [(count,)] = rows(database, "SELECT * FROM begin_suspended('[]', '[]', %s)", given)
    return int(count)
