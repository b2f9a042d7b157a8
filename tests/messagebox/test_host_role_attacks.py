"""Whoever has the role of one host, and psql: what is others' can neither be read, forged nor destroyed.

What such a user can still do is written down in `docs/how-to/your-own-postgresql.md`.
"""

from __future__ import annotations

import psycopg
import pytest

from box import PROPERTIES
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.settle import Complete
from express import living, port, publish, rows
from role_attack import NORWAY, SECRET, Attack, attack
from roles import Roles, roles

__all__ = ["attack", "roles"]


def test_definitions_of_other_hosts_and_their_secrets_cannot_be_read(attack: Attack) -> None:
    attack.refused("SELECT definition FROM service")
    attack.refused("SELECT * FROM service")
    attack.refused("SELECT definition FROM receive_location")
    attack.refused("SELECT * FROM application")

    services = attack.connection.execute("SELECT host_id, definition::text FROM service_definition").fetchall()
    locations = attack.connection.execute("SELECT host_id, definition::text FROM location_definition").fetchall()

    assert {host for host, definition in services if definition is not None} == {attack.mine}
    assert {host for host, _ in locations} == {attack.mine}


def test_a_cheap_function_of_the_attacker_does_not_see_definitions_before_they_are_left_out(attack: Attack) -> None:
    attack.connection.execute(
        "CREATE FUNCTION pg_temp.shown(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
        " $$ BEGIN RAISE WARNING '%', $1; RETURN true; END $$"
    )
    noticed: list[str] = []
    attack.connection.add_notice_handler(lambda notice: noticed.append(str(notice.message_primary)))

    attack.connection.execute("SELECT FROM service_definition WHERE pg_temp.shown(definition::text)")
    attack.connection.execute("SELECT FROM location_definition WHERE pg_temp.shown(definition::text)")

    assert noticed
    assert all(SECRET not in each for each in noticed)


def test_names_of_the_attacker_do_not_change_what_is_its_own(attack: Attack) -> None:
    attack.connection.execute("CREATE TEMPORARY TABLE box AS SELECT * FROM crossdock.box")
    attack.connection.execute("CREATE TEMPORARY TABLE host AS SELECT * FROM crossdock.host")
    attack.connection.execute("UPDATE pg_temp.host SET id = %s", [attack.mine])
    attack.connection.execute("SET search_path TO pg_temp, crossdock")

    own = attack.connection.execute("SELECT crossdock.own_hosts(current_user)").fetchone()

    assert own == ([attack.mine],)


def test_the_queues_of_other_hosts_cannot_be_read(attack: Attack) -> None:
    for table in ("queue", "claimed", "scheduled", "suspended"):
        attack.refused(f"SELECT FROM {table}")
        attack.refused(f"SELECT FROM {table}_{attack.other}")


def test_what_nobody_told_a_host_cannot_be_read(attack: Attack) -> None:
    for table in (
        "intake", "publication", "publication_total", "delivery", "delivery_total", "message_ref_log_1", "message_ref_log_2",
        "part_ref_log_1", "part_ref_log_2", "message_ref_total", "part_ref_total", "routing_failure", "refusal",
    ):  # fmt: skip
        attack.refused(f"SELECT FROM {table}")
    attack.refused("SELECT value FROM instance_subscription")
    attack.refused("SELECT machine, process FROM host_instance")


def test_the_ledger_and_publications_cannot_be_forged(attack: Attack) -> None:
    columns = "(intake_sequence, range_start, location_id, received, published, unrouted, suspended)"
    attack.refused("INSERT INTO intake (location_id, identity, size) VALUES (1, 'elsewhere/passwd', 1)")
    attack.refused("UPDATE intake SET location_id = 1")
    attack.refused("UPDATE intake SET identity = 'elsewhere/passwd'")
    attack.refused("UPDATE intake SET attempts = 100")
    attack.refused("DELETE FROM intake")
    attack.refused(f"INSERT INTO publication {columns} VALUES (1, 0, 1, 0, 0, 0, 0)")
    attack.refused(f"INSERT INTO publication {columns} VALUES (-9, 0, 1, 0, 0, 0, 0)")
    attack.refused("UPDATE publication SET last = true")
    attack.refused("DELETE FROM publication")

    foreign = rows(attack.database, "SELECT id FROM receive_location WHERE name = 'Other.in'")[0][0]
    attack.changes_nothing(f"SELECT count_express('{{{foreign}}}', '{{1}}', '{{1}}', '{{0}}', '{{0}}')")


def test_reference_logs_cannot_be_emptied_nor_swapped(attack: Attack) -> None:
    for table in ("message_ref_log_1", "message_ref_log_2", "part_ref_log_1", "part_ref_log_2", "message_ref_total"):
        attack.refused(f"DELETE FROM {table}")
        attack.refused(f"TRUNCATE {table}")
        attack.refused(f"UPDATE {table} SET {'living' if 'total' in table else 'delta'} = 0")
    attack.refused("INSERT INTO part_ref_log_1 VALUES (gen_random_uuid(), -1)")
    attack.refused("UPDATE reference_log SET message = 3 - message")


def test_messages_cannot_be_read_but_by_a_claim(attack: Attack) -> None:
    for table in ("message", "part", "fragment"):
        attack.refused(f"SELECT FROM {table}")
    theirs = rows(attack.database, f"SELECT sequence, message_id FROM queue_{attack.other}")
    mine = rows(attack.database, f"SELECT sequence FROM queue_{attack.mine}")
    numbers = [sequence for sequence, _ in theirs] + [sequence for (sequence,) in mine]

    loaded = attack.connection.execute(f"SELECT * FROM host_{attack.mine}_load_claimed(%s, 1000)", [numbers]).fetchall()
    for sequence, message in theirs:
        query = f"SELECT * FROM host_{attack.mine}_load_claimed_piece(%s, %s, NULL)"
        assert attack.connection.execute(query, [sequence, message]).fetchall() == []

    assert theirs
    assert loaded == []


def test_functions_of_other_hosts_and_those_of_the_owner_cannot_be_called(attack: Attack) -> None:
    callable_ = attack.connection.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'crossdock'::regnamespace AND prosecdef"
        " AND has_function_privilege(oid, 'EXECUTE') AND NOT starts_with(proname, %s)",
        [f"host_{attack.mine}_"],
    ).fetchall()

    shared = [
        "audit",
        "close_convoys",
        "find_instances",
        "insert_fragment",
        "lock_subscriptions",
        "open_convoys",
        "publish_few",
        "subqueue_may_go_on",
    ]
    assert sorted(name for (name,) in callable_) == shared
    attack.refused(f"SELECT * FROM host_{attack.other}_requeue_due()")
    attack.refused(f"SELECT * FROM host_{attack.other}_complete(1, '{{1}}', '{{}}')")


def test_what_is_not_claimed_by_its_host_cannot_be_settled(attack: Attack) -> None:
    theirs = [sequence for (sequence,) in rows(attack.database, f"SELECT sequence FROM queue_{attack.other}")]
    for instance in (0, 1, *(each for (each,) in rows(attack.database, "SELECT id FROM host_instance"))):
        attack.changes_nothing(f"SELECT * FROM host_{attack.mine}_complete({instance}, '{set(theirs)}', '{{}}')")


def test_messages_cannot_be_changed_nor_deleted(attack: Attack) -> None:
    for table, column in (("message", "context"), ("part", "body"), ("fragment", "body")):
        attack.refused(f"UPDATE {table} SET {column} = {column}")
        attack.refused(f"DELETE FROM {table}")
        attack.refused(f"TRUNCATE {table}")


def test_instances_lines_and_subscriptions_of_other_hosts_cannot_be_changed(attack: Attack) -> None:
    for statement in (
        "UPDATE host_instance SET state = 'lost'",
        "UPDATE host_instance SET seen_at = '-infinity'",
        "DELETE FROM host_instance",
        f"INSERT INTO host_instance (id, host_id, machine, process) VALUES (7, {attack.other}, 'evil', 1)",
        "UPDATE host_instance SET host_id = 1",
        "UPDATE subqueue_lease SET held_by = 1",
        "UPDATE subqueue_lease SET blocked_until = 'infinity'",
        "UPDATE subqueue_lease SET host_id = 1",
        "DELETE FROM subqueue_lease",
        "INSERT INTO subqueue_lease (service_id, host_id) VALUES (1, 1)",
        "UPDATE instance_subscription SET created_at = now()",
        "UPDATE instance_subscription SET host_id = 1",
        "DELETE FROM instance_subscription",
        "INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)"
        f" SELECT gen_random_uuid(), 1, {attack.other}, 1, gen_random_uuid(), '{{NO}}'",
        "DELETE FROM subscription",
        "UPDATE subscription SET host_id = 1",
        "DELETE FROM predicate",
        "UPDATE service SET host_id = 1",
        "UPDATE host SET labels = '{secret}'",
        "UPDATE box SET epoch = epoch + 1",
        "INSERT INTO correlation (property) VALUES ('{Region}')",
        "INSERT INTO property VALUES ('New', 'text')",
        "DELETE FROM migration",
    ):
        attack.changes_nothing(statement)
    assert rows(attack.database, "SELECT count(*) FROM host_instance") == [(1,)]


def test_sequences_can_be_drawn_from_where_publishing_does_and_set_nowhere(attack: Attack) -> None:
    sequences = [name for (name,) in rows(attack.database, "SELECT sequencename FROM pg_sequences")]

    for name in sequences:
        attack.refused(f"SELECT setval('{name}', 1)")
        attack.refused(f"ALTER SEQUENCE {name} RESTART")
    may = "SELECT sequencename FROM pg_sequences WHERE has_sequence_privilege(sequencename, 'USAGE') ORDER BY 1"
    drawn = attack.connection.execute(may.encode()).fetchall()
    assert drawn == [("intake_sequence_seq",)]


def test_nothing_can_be_made_or_taken_over(attack: Attack) -> None:
    for statement in (
        "CREATE TABLE crossdock.evil (id integer)",
        "CREATE SCHEMA evil",
        "CREATE FUNCTION crossdock.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
        "CREATE TRIGGER evil AFTER INSERT ON message EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "ALTER TABLE host_instance DISABLE ROW LEVEL SECURITY",
        "CREATE POLICY evil ON host_instance USING (true)",
        "SELECT create_host('Evil')",
        "SELECT create_host_role('Other')",
        f"BEGIN; LOCK TABLE queue_{attack.other} IN ACCESS EXCLUSIVE MODE",
    ):
        attack.refused(statement)
        attack.connection.rollback()


@pytest.mark.parametrize(
    ("right", "where"),
    [
        ("UPDATE", ["host_instance", "instance_subscription", "subqueue_lease"]),
        ("INSERT", ["host_instance", "instance_subscription"]),
    ],
)
def test_all_that_a_role_may_change_is_in_three_tables(
    agent: Agent, attack: Attack, right: str, where: list[str]
) -> None:
    granted = attack.connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'crossdock'::regnamespace AND relkind IN ('r', 'p')"
        " AND has_any_column_privilege(oid, %s)",
        [right],
    ).fetchall()

    assert sorted(name for (name,) in granted) == where
    with Agent(agent.database) as owner:
        assert owner.box.own_hosts() == set(agent.configuration.hosts().values())


def test_function_with_the_rights_of_the_owner_looks_nothing_up_by_the_path_of_its_caller(agent: Agent) -> None:
    with psycopg.connect(agent.database) as connection:
        functions = connection.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE prosecdef AND pronamespace = 'crossdock'::regnamespace"
        ).fetchall()
        [(bound,)] = connection.execute("SELECT prosqlbody IS NOT NULL FROM pg_proc WHERE proname = 'clock'").fetchall()

    pinned = ["search_path=pg_catalog, crossdock, pg_temp"]
    assert [name for name, settings in functions if settings != pinned] == []
    assert functions
    assert bound  # in the default of a column it runs with those rights too


@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 BC", "290000-01-01"])
def test_instance_is_not_seen_at_a_time_that_nobody_can_read(attack: Attack, agent: Agent, time: str) -> None:
    host = agent.configuration.hosts()["Mine"]
    insert = "INSERT INTO host_instance (id, host_id, machine, process) VALUES (7, %s, 'x', 1)"
    attack.connection.execute(insert, [host])

    with pytest.raises(psycopg.errors.CheckViolation):
        attack.connection.execute(f"UPDATE host_instance SET seen_at = '{time}' WHERE id = 7".encode())


def test_functions_that_a_restore_has_opened_to_everybody_are_closed_again(attack: Attack, agent: Agent) -> None:
    opened = f"host_{attack.other}_requeue_due()"
    with psycopg.connect(agent.database, options="-csearch_path=crossdock") as owner:
        owner.execute(f"GRANT EXECUTE ON FUNCTION {opened} TO PUBLIC".encode())
    attack.connection.execute(f"SELECT * FROM {opened}".encode())

    agent.box.create_host_roles()

    attack.refused(f"SELECT * FROM {opened}")


@pytest.mark.parametrize("after", ["9000 years", "-3000 years"])
def test_time_that_nobody_can_read_is_refused(attack: Attack, agent: Agent, after: str) -> None:
    attack.connection.execute(
        "INSERT INTO host_instance (id, host_id, machine, process) VALUES (7, %s, 'mine', 1)", [attack.mine]
    )
    dequeue = f"SELECT sequence FROM host_{attack.mine}_dequeue(7, '{{0}}', '{{5}}', '{{0}}', '{{}}', false, 1)"
    [(sequence,)] = attack.connection.execute(dequeue.encode()).fetchall()
    settle = (
        f"SELECT * FROM host_{attack.mine}_settle(7, %s, NULL, '{{scheduled}}', %s::interval[], '{{true}}', '{{NULL}}',"
        " '{NULL}', '{later}')"
    )

    with pytest.raises(psycopg.errors.CheckViolation):
        attack.connection.execute(settle.encode(), [[sequence], [after]])

    attack.connection.execute(settle.encode(), [[sequence], ["900 years"]])
    assert [each.reason for each in agent.configuration.list_waiting()] == ["later"]


def test_port_is_blocked_until_a_time_that_everybody_can_read(attack: Attack, agent: Agent) -> None:
    agent.subscriptions.deploy(
        Deployment(
            "line", PROPERTIES, [], [port("Mine.line", "Region = 'NO'", host="Mine", ordered=True)], {"Mine": ()}
        )
    )

    for time in ("infinity", "20000-01-01Z"):
        with pytest.raises(psycopg.errors.CheckViolation):
            attack.connection.execute("UPDATE subqueue_lease SET blocked_until = %s", [time])


@pytest.mark.parametrize(
    "facts", ["1e5000", '{"a":' * 3000 + "1" + "}" * 3000, '{"a":' * 300 + "1" + "}" * 300, '"' + "x" * 1_000_000 + '"']
)
def test_act_that_nobody_could_read_is_listed_with_the_text_of_its_facts(
    attack: Attack, agent: Agent, facts: str
) -> None:
    attack.connection.execute("SELECT audit('forged', 'this', %s, NULL, 'done')", [facts])

    [act] = agent.audit.list(action="forged")
    assert (act.target, act.after) == ("this", None)
    assert isinstance(act.before, str)
    assert len(act.before) <= 100_000


def test_texts_of_an_act_are_cut_in_lists(attack: Attack, agent: Agent) -> None:
    attack.connection.execute("SELECT audit('forged', %s, NULL, '{\"a\": [1]}', %s)", ["t" * 100_000, "o" * 100_000])

    [act] = agent.audit.list(action="forged")
    assert (len(act.target), act.after, len(act.outcome)) == (10_000, {"a": [1]}, 1000)


def test_role_does_not_say_when_it_took_a_lease(attack: Attack) -> None:
    """It goes with the port to another host, whose instances would find no later time."""
    attack.refused("UPDATE subqueue_lease SET held_at = '294276-12-31 23:59:59.999999Z'")
    attack.refused("UPDATE subqueue_lease SET claim = 1")


def test_lease_that_a_role_took_goes_to_another_host(agent: Agent, roles: Roles) -> None:
    hosts = {"Default": (), "Mine": (), "Other": ()}
    lines = [(port("Line", "Region = 'NO'", host=host, ordered=True),) for host in ("Mine", "Other")]
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], lines[0], hosts))
    roles.create()
    numbers, acting = agent.configuration.hosts(), roles.acting_as("Mine")
    publish(agent, NORWAY, NORWAY)
    with living(acting, "Mine") as life:
        [first] = acting.queues.dequeue_ordered(numbers["Mine"], life.instance, limit=1)
        acting.queues.settle(life.instance, [Complete(first)], lease=first)
    agent.subscriptions.deploy(Deployment("orders", PROPERTIES, [], lines[1], hosts))

    with living(agent, "Other") as life:
        second = agent.queues.dequeue_ordered(numbers["Other"], life.instance, limit=10)

    assert [each.sequence > first.sequence for each in second] == [True]
