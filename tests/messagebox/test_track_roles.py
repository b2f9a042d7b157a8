"""The track is guarded as the MessageBox is: the role of a host neither reads it nor writes about others."""

from __future__ import annotations

import json
from time import process_time
from typing import Any
from uuid import UUID, uuid4

import pytest

from crossdock.administration.messages import list_messages
from crossdock.errors import UnavailableError
from crossdock.maintenance.references import CleanReferences
from crossdock.maintenance.tracking import KeepTrack, PackTrack
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.messagebox.settle import Complete
from crossdock.settings import KEEP_TRACK
from crossdock.subscription.expression import P
from express import a_message, claim, delivered_now, deploy, living, port, publish, rows
from role_attack import NORWAY, Attack, Publishing, attack
from roles import Roles, roles

__all__ = ["attack", "roles"]

TRACK = ("track_published", "track_personal", "track_body", "track_few", "track_settled")


def forge(attack: Attack, origins: Any = None, exceptions: Any = None, *, message: UUID | None = None) -> UUID:
    """Publish a message of the attacker's own, saying this about it."""
    message = message or uuid4()
    [(epoch,)] = attack.connection.execute("SELECT epoch_token FROM box").fetchall()
    written = [
        None if each is None else each if isinstance(each, str) else json.dumps(each) for each in (exceptions, origins)
    ]
    attack.connection.execute(
        "SELECT publish_few(%s, %s::json[], %s, %s, '{body}', %s, '{}', '{}', '{}', '{}', %s, %s, %s, NULL, %s)",
        [[message], ['{"promoted":{"Region":"NO"},"written":{}}'], [message], [message], [b"x"], written[0], SUBSCRIPTION_LOCK,
         epoch, written[1]],
    )  # fmt: skip
    return message


def test_role_of_a_host_cannot_touch_the_track(attack: Attack, agent: Agent) -> None:
    KeepTrack(agent, KEEP_TRACK, KEEP_TRACK).run_once()
    publish(agent, *[NORWAY] * 40)
    partitions = [
        name for (name,) in rows(attack.database, "SELECT relname FROM pg_class WHERE relname ~ '^track_.*[0-9]{8}$'")
    ]

    for table in (*TRACK, *partitions, *(f"{name}_rest" for name in TRACK if name != "track_few")):
        attack.refused(f"SELECT FROM {table}")
        attack.refused(f"INSERT INTO {table} DEFAULT VALUES")
        attack.refused(f"DELETE FROM {table}")
        attack.refused(f"TRUNCATE {table}")
    attack.refused("SELECT make_track_partitions('track_settled', 9)")
    attack.refused("SELECT drop_track_partitions('track_settled', '0')")
    assert len(partitions) == 12


@pytest.mark.parametrize("packed", [False, True])
def test_what_a_role_says_about_others_is_not_believed(attack: Attack, agent: Agent, packed: bool) -> None:
    [(location,)] = rows(attack.database, "SELECT id FROM receive_location WHERE name = 'Other.in'")
    [(service,)] = rows(attack.database, "SELECT id FROM service WHERE name = 'Other'")
    [theirs, *_] = delivered_now(agent, "Other")

    forged = forge(
        attack,
        [
            {
                "messages": 1,
                "location": location,
                "service": service,
                "instance": str(uuid4()),
                "settled": [theirs.sequence],
            }
        ],
    )
    if packed:
        PackTrack(agent).run_once()

    [each] = agent.track.find([forged])
    assert (each.application, each.location, each.parents) == (None, None, ())
    assert agent.track.children(theirs.message.id) == []


@pytest.mark.parametrize("packed", [False, True])
def test_what_a_role_says_about_its_own_is_believed(attack: Attack, agent: Agent, packed: bool) -> None:
    [(location,)] = rows(attack.database, "SELECT id FROM receive_location WHERE name = 'Mine.in'")

    told = forge(attack, [{"messages": 1, "location": location}])
    if packed:
        PackTrack(agent).run_once()

    [each] = agent.track.find([told])
    assert (each.application, each.location) == ("orders", "Mine.in")


@pytest.mark.parametrize(
    "origins",
    [
        5,
        [5],
        [{"messages": "many"}],
        [{"messages": 10**9, "settled": "all"}],
        [{"messages": -1, "instance": "me"}],
        [{"messages": 10**9}],
        [{"messages": 1, "location": 2**31}],
        [{"messages": 1, "service": 10**30}],
        [{"messages": 1, "settled": [2**63]}],
        [{"messages": 1, "settled": list(range(1_001))}],
        '[{"messages": 1, "more": ' + "[" * 3000 + "]" * 3000 + "}]",
    ],
)
def test_nonsense_about_itself_stops_nobody(attack: Attack, agent: Agent, origins: Any) -> None:
    told = forge(attack, origins)

    assert PackTrack(agent).run_once() > 0

    assert [each.id for each in agent.track.find([told])] == [told]
    assert told in {each.id for each in agent.track.search(P.Region == "NO").messages}


def test_messages_that_are_said_to_have_settled_very_much_are_found_as_soon_as_others(
    attack: Attack, agent: Agent
) -> None:
    count = 2_000
    ids = [uuid4() for _ in range(count)]
    [(epoch,)] = attack.connection.execute("SELECT epoch_token FROM box").fetchall()
    attack.connection.execute(
        "SELECT publish_few(%s, %s::json[], %s, %s, %s, %s, '{}', '{}', '{}', '{}', NULL, %s, %s, NULL, %s)",
        [ids, [CONTEXT] * count, ids, ids, ["body"] * count, [b"x"] * count, SUBSCRIPTION_LOCK, epoch,
         json.dumps([{"messages": count, "settled": [1] * 20_000}])],
    )  # fmt: skip
    began = process_time()

    found = agent.track.search(None, limit=count).messages

    assert len(found) == count
    assert process_time() - began < 4  # 18 s where each message was asked for all of it


def test_label_that_no_column_holds_stops_nobody(attack: Attack, agent: Agent) -> None:
    publishing = Publishing(attack)

    publishing(context='{"promoted":{},"written":{},"labels":["\\u0000"]}')

    assert PackTrack(agent).run_once() > 0
    assert [each.id for each in agent.track.find([publishing.message])] == [publishing.message]


@pytest.mark.parametrize("packed", [False, True])
def test_references_to_no_subscription_stop_nobody(attack: Attack, agent: Agent, packed: bool) -> None:
    publishing = Publishing(attack)
    nowhere: Any = None

    publishing(
        references=[(publishing.message, nowhere), (publishing.message, 5)], context='{"promoted":{},"written":{}}'
    )
    if packed:
        assert PackTrack(agent).run_once() > 0

    assert [each.id for each in agent.track.find([publishing.message])] == [publishing.message]
    assert publishing.message in {each.id for each in agent.track.search(None).messages}


DEEP = "[" * 3000 + "]" * 3000
CONTEXT = '{"promoted":{"Region":"NO"},"written":{}}'


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("context", "kind", "row"),
    [
        (f'{{"promoted":{{}},"written":{{}},"more":{DEEP}}}', None, {}),
        (CONTEXT, "queued", {}),
        (CONTEXT, "queued", {"subscription_id": None}),
        (CONTEXT, "queued", {"subscription_id": 2**63 - 1}),
        (CONTEXT, "refused", {"subscription_id": 0, "service_id": 1, "host_id": 1, "labels": ["a"]}),
        (CONTEXT, "refused", {"subscription_id": 1, "service_id": 1, "host_id": 1, "labels": []}),
    ],
)
def test_what_nobody_expects_in_a_message_stops_nobody(
    attack: Attack, agent: Agent, context: str, kind: str | None, row: dict[str, Any], packed: bool
) -> None:
    publishing = Publishing(attack)
    noted = None if kind is None else json.dumps({kind: [{"message_id": str(publishing.message), **row}]})

    publishing(context=context, exceptions=noted)
    if packed:
        assert PackTrack(agent).run_once() > 0

    assert [each.id for each in agent.track.find([publishing.message])] == [publishing.message]
    assert publishing.message in {each.id for each in agent.track.search(None).messages}
    assert str(publishing.message) in {each.id for each in list_messages(agent).messages}
    agent.track.erase([publishing.message], "one message")
    assert publishing.message in {each.id for each in agent.track.search(None).messages}


def test_who_takes_the_id_of_a_message_that_is_gone_says_nothing_about_it(attack: Attack, agent: Agent) -> None:
    [first, *_] = agent.track.search(None).messages
    for host in ("Mine", "Other"):
        delivered_now(agent, host)
    rows(attack.database, "DELETE FROM queue RETURNING 1")
    rows(attack.database, "DELETE FROM message RETURNING 1")
    rows(attack.database, "DELETE FROM part RETURNING 1")

    forge(attack, message=first.id)

    assert agent.track.find([first.id]) == [first]


def test_role_of_a_host_is_tracked_in_what_it_publishes_and_settles(agent: Agent, roles: Roles) -> None:
    deploy(agent, port("Mine", "Region = 'NO'", host="Mine"), hosts={"Mine": ()})
    roles.create()
    mine = agent.configuration.hosts()["Mine"]
    acting = roles.acting_as("Mine")
    messages = [a_message(acting, NORWAY) for _ in range(40)]
    publish(acting, *messages)
    with living(acting, "Mine") as life:
        acting.settle(life.instance, [Complete(each) for each in claim(acting, life, "Mine")])

    tracked = agent.track.find([each.id for each in messages])
    assert len(tracked) == 40
    assert [(event.event, event.host_id) for event in agent.track.events(tracked)] == [("delivered", mine)] * 40
    with pytest.raises(UnavailableError, match="permission denied for table track"):
        acting.track.find([messages[0].id])


def test_track_outlives_the_messages(agent: Agent) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    message = a_message(agent, NORWAY)
    publish(agent, message)
    delivered_now(agent)
    for _ in range(3):
        CleanReferences(agent).run_once()

    assert rows(agent.database, "SELECT count(*) FROM message") == [(0,)]
    assert [each.id for each in agent.track.find([message.id])] == [message.id]
