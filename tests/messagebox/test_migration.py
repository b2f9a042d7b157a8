"""A MessageBox that was made by an older version and has messages in it: nothing is lost by bringing it up to date."""

from __future__ import annotations

from string import Template

import psycopg
import pytest

from box import a_publication, count, deployment, listed
from crossdock.maintenance.references import CleanReferences
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.migrate import migrations
from crossdock.messagebox.settle import Complete
from express import claim, living, unbalanced

_OLD_ROWS = """
INSERT INTO box (number, case_sensitive) VALUES (5, false);
SELECT create_host('Default');
INSERT INTO application (name, digest) VALUES ('orders', 'old');
INSERT INTO property (name, type) VALUES ('Region', 'text'), ('Amount', 'decimal');
INSERT INTO receive_location (name, application, host_id, definition) VALUES ('orders.in', 'orders', 1, '{}');
INSERT INTO service (name, application, host_id, definition)
VALUES ('Kept', 'orders', 1, '{}'), ('Stopped', 'orders', 1, '{}'), ('Gone', 'orders', 1, '{}');
INSERT INTO subscription (service_id, host_id, state, priority, epoch)
VALUES (1, 1, 'started', 3, 1), (2, 1, 'stopped', 5, 1);
INSERT INTO predicate VALUES
    (1, 0, 0, 'Region', 'text', '=', '{NO}', 1), (1, 1, 0, 'Amount', 'decimal', '>', '{5}', 2),
    (2, 0, 0, 'Region', 'text', '=', '{NO}', 1);
INSERT INTO intake (location_id, identity, size) VALUES (1, 'listed before', 10);
INSERT INTO message (id, context, part_count)
SELECT ('00000000-0000-8000-8000-00000000000' || n)::uuid, '{"promoted": {"Region": "SE"}, "written": {}}', 2
  FROM generate_series(1, 4) AS n;
INSERT INTO part (message_id, number, name, body)
SELECT id, n, 'part ' || n, ('body ' || n)::bytea FROM message, generate_series(0, 1) AS n;
INSERT INTO queue (host_id, priority, message_id, subscription_id, service_id)
VALUES (1, 5, '00000000-0000-8000-8000-000000000001', 1, 1), (1, 5, '00000000-0000-8000-8000-000000000001', 2, 2);
INSERT INTO suspended (host_id, kind, message_id, reason)
VALUES (1, 'unrouted', '00000000-0000-8000-8000-000000000002', 'nobody');
INSERT INTO suspended (host_id, kind, message_id, subscription_id, service_id, reason)
VALUES (1, 'stopped', '00000000-0000-8000-8000-000000000003', 2, 2, 'stopped');
"""

# A message in every state: the last digit of its id is its body. $line, $given and $lease have had two names.
_EVERY_STATE = Template("""
INSERT INTO box (number, case_sensitive) VALUES (5, false);
SELECT create_host('Default');
INSERT INTO application (name, digest) VALUES ('orders', 'old');
INSERT INTO property (name, type) VALUES ('Region', 'text');
INSERT INTO receive_location (name, application, host_id, definition) VALUES ('orders.in', 'orders', 1, '{}');
INSERT INTO intake (location_id, identity, size$bits) VALUES (1, 'listed before', 10$five);
INSERT INTO service (name, application, host_id, definition, ordered, state)
VALUES ('Free', 'orders', 1, '{}', false, 'started'), ('InOrder', 'orders', 1, '{}', true, 'started'),
       ('Stopped', 'orders', 1, '{}', false, 'stopped');
INSERT INTO subscription (service_id, host_id) VALUES (1, 1), (2, 1), (3, 1);
INSERT INTO message (id, context, part_count, parts, $given)
SELECT id, '{"promoted": {"Region": "NO"}, "written": {}}', 1, ARRAY[id], 1
  FROM generate_series(1, 11) AS n,
       LATERAL (SELECT ('00000000-0000-8000-8000-00000000000' || to_hex(n))::uuid AS id) AS made;
INSERT INTO part (id, name, body, size) SELECT id, 'body', right(id::text, 1)::bytea, 1 FROM message;
INSERT INTO host_instance (id, host_id, machine, process) OVERRIDING SYSTEM VALUE VALUES (7, 1, 'gone', 1);
INSERT INTO queue (host_id, priority, message_id, subscription_id, service_id, $line)
VALUES (1, 5, '00000000-0000-8000-8000-000000000001', 1, 1, 0), (1, 5, '00000000-0000-8000-8000-000000000002', 2, 2, 2);
INSERT INTO claimed (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, claimed_by, claimed_at, $line)
VALUES (1, nextval('reference_sequence'), 5, '00000000-0000-8000-8000-000000000003', 1, 1, 0, 7, now(), 0),
       (1, nextval('reference_sequence'), 5, '00000000-0000-8000-8000-000000000004', 2, 2, 0, 7, now(), 2);
INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, due_at, reason)
VALUES (1, nextval('reference_sequence'), 5, '00000000-0000-8000-8000-000000000005', 1, 1, 1, now(), 'down');
INSERT INTO $lease (service_id, host_id, held_by, held_at) VALUES (2, 1, 7, now());
$suspended
""")
# (kind, last digit, service, number of its line, code)
_SUSPENDED = [
    ("send", "6", 2, 2, "delivery-failed"),
    ("unrouted", "7", None, 0, "no-subscriber"),
    ("stopped", "8", 3, 0, "port-stopped"),
    ("receive", "9", None, 0, "document-invalid"),
    ("response", "a", 1, -1, "nobody-waits"),
    ("discarded", "b", 1, 0, "instance-ended"),
]


def every_state(last: str) -> str:
    """The rows as they were after this migration."""
    new = last >= "0020"
    line, given, lease = ("subqueue", "reference_count", "subqueue_lease") if new else ("line", "given", "ordered_line")
    bits, five = (", random_bits", ", 5") if last >= "0014" else ("", "")
    suspended = [_suspended(line, *row, coded=last >= "0018") for row in _SUSPENDED]
    return _EVERY_STATE.substitute(
        line=line, given=given, lease=lease, bits=bits, five=five, suspended="\n".join(suspended)
    )


def _suspended(line: str, kind: str, digit: str, service: int | None, number: int, code: str, *, coded: bool) -> str:
    columns, values = (", code", f", '{code}'") if coded else ("", "")
    service_id = "NULL" if service is None else service
    return (
        f"INSERT INTO suspended (host_id, kind, message_id, service_id, subscription_id, reason, {line}{columns}) VALUES"
        f" (1, '{kind}', '00000000-0000-8000-8000-00000000000{digit}', {service_id}, {service_id}, 'why', {number}{values});"
    )


def migrated(database: str, count: int, filled: str) -> None:
    """A MessageBox with so many migrations, and these rows."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA crossdock")
        connection.execute("SET search_path TO crossdock")
        connection.execute("CREATE TABLE migration (name text PRIMARY KEY, applied_at timestamptz DEFAULT now())")
        for name, text in list(migrations().items())[:count]:
            connection.execute(text.encode())
            connection.execute("INSERT INTO migration (name) VALUES (%s)", [name])
        connection.execute(filled.encode())


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("last", ["0011", "0014", "0017", "0019", "0021"])
def test_messages_of_every_state_come_over(empty_database: str, last: str) -> None:
    known = [name for name in migrations() if name[:4] <= last]
    migrated(empty_database, len(known), every_state(last))

    with Agent(empty_database) as agent:
        assert agent.box.create() == list(migrations())[len(known) :]
        [waiting] = agent.ledger.read(0, 2**62)
        kept = agent.suspended.messages()
        bodies = {each.kind: agent.messages.load([each.id])[each.id].body.decode() for each in kept}
        host = agent.configuration.hosts()["Default"]
        freed, due = agent.queues.release_dead(host), agent.queues.requeue_due(host)
        resumed = agent.suspended.resume([row.id for row in kept if row.kind == "send"])
        started = agent.subscriptions.start("Stopped").resumed
        with living(agent) as life:
            free = claim(agent, life)
            agent.settle(life.instance, [Complete(each) for each in free])
            in_order = agent.queues.dequeue_ordered(host, life.instance, limit=10)
            agent.settle(life.instance, [Complete(each) for each in in_order], lease=in_order[0])
        left = {each.kind for each in agent.suspended.messages()}

    assert (waiting.identity, waiting.random_bits) == (b"listed before", 5)
    assert {(each.kind, each.code) for each in kept} == {(kind, code) for kind, *_, code in _SUSPENDED}
    assert bodies == {kind: digit for kind, digit, *_ in _SUSPENDED}
    assert (freed, due, list(resumed.values()), started) == (2, 1, [1], 1)
    assert [each.message.body for each in free] == [b"1", b"3", b"5", b"8"]
    assert [each.message.body for each in in_order] == [b"2", b"4", b"6"]
    assert left == {"unrouted", "receive", "response", "discarded"}
    assert count(empty_database, "claimed") + count(empty_database, "queue") == 0
    assert unbalanced(empty_database) == []


def test_old_messagebox_with_messages_is_brought_up_to_date(empty_database: str) -> None:
    migrated(empty_database, 2, _OLD_ROWS)

    with Agent(empty_database) as agent:
        assert agent.box.create() == list(migrations())[2:]
        [waiting] = agent.ledger.read(0, 2**62)
        states = {row.name: row.state for row in agent.configuration.list_ports()}
        filters = {agent.router().subscriptions[number].service: str(each) for number, each in agent.filters().items()}
        CleanReferences(agent).run_once()
        CleanReferences(agent).run_once()
        messages = agent.messages.load([row.id for row in agent.suspended.messages()])
        resumed = agent.subscriptions.start("Stopped").resumed
        agent.subscriptions.deploy(deployment(Kept="Region = 'SE'"))
        [sequence] = listed(agent, "new")
        published = agent.publish([a_publication(agent, sequence, {"Region": "SE"})])

    assert waiting.random_bits == 5  # it may be half published, under ids with the number of the box
    assert states == {"Kept": "started", "Stopped": "stopped"}  # one that is gone, with nothing waiting, is not listed
    assert filters == {"Kept": "Region = 'NO' OR Amount > 5", "Stopped": "Region = 'NO'"}
    assert count(empty_database, "message") == 3 + 1  # the fourth of the old ones had no reference left
    assert count(empty_database, "part") == 6 + 1
    assert {tuple(part.name for part in message.parts) for message in messages.values()} == {("part 0", "part 1")}
    assert (resumed, published.references) == (1, 1)
