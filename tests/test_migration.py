"""A MessageBox that was made by an older version and has messages in it: nothing is lost by bringing it up to date."""

from __future__ import annotations

import psycopg

from box import an_interchange, count, deployment, listed
from crossdock.maintenance.references import CleanReferences
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.migrate import migrations

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


def test_old_messagebox_with_messages_is_brought_up_to_date(empty_database: str) -> None:
    old = dict(list(migrations().items())[:2])
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA crossdock")
        connection.execute("SET search_path TO crossdock")
        connection.execute("CREATE TABLE migration (name text PRIMARY KEY, applied_at timestamptz DEFAULT now())")
        for name, text in old.items():
            connection.execute(text)
            connection.execute("INSERT INTO migration (name) VALUES (%s)", [name])
        connection.execute(_OLD_ROWS)

    with Agent(empty_database) as agent:
        assert agent.create() == list(migrations())[2:]
        states = {row["name"]: row["state"] for row in agent.list_ports()}
        filters = {agent.router().subscriptions[number].service: str(each) for number, each in agent.filters().items()}
        CleanReferences(agent).run_once()
        CleanReferences(agent).run_once()
        messages = agent.messages([row.id for row in agent.suspended()])
        resumed = agent.start("Stopped").resumed
        agent.deploy(deployment(Kept="Region = 'SE'"))
        [sequence] = listed(agent, "new")
        published = agent.publish([an_interchange(agent, sequence, {"Region": "SE"})])

    assert states == {"Kept": "started", "Stopped": "stopped", "Gone": "unenlisted"}
    assert filters == {"Kept": "Region = 'NO' OR Amount > 5", "Stopped": "Region = 'NO'"}
    assert count(empty_database, "message") == 3 + 1  # the fourth of the old ones had no reference left
    assert count(empty_database, "part") == 6 + 1
    assert {tuple(part.name for part in message.parts) for message in messages.values()} == {("part 0", "part 1")}
    assert (resumed, published.references) == (1, 1)
