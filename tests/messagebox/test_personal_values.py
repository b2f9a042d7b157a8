"""What a viewer with plain SQL does not see: personal values in the box and in reports, and tokens of requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from box import PROPERTIES, an_orchestration
from crossdock.cli.app import app
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.message.publication import Awaited, Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.track_segment import decompress
from crossdock.subscription.text import parse_filter
from express import a_message, port, publish, rows
from roles import Roles, roles

__all__ = ["roles"]

SECRET, TOKEN = 'Ann "the \\ bold", Oslo', "7b0e5f0c-token"
DECLARED = {**PROPERTIES, "Customer": PropertyType.TEXT, "Born.Year": PropertyType.INTEGER}
YEAR = 1987
NEAR = "Region = 'XX' AND Customer = 'Bob' AND Born.Year = 7"


def deployment(*personal: str) -> Deployment:
    return Deployment(
        "orders",
        DECLARED,
        [],
        [
            port("Stopped", "Region = 'NO'"),
            replace(port("Near"), filter=parse_filter(PropertyRegistry(DECLARED), NEAR)),
        ],
        {"Default": ()},
        orchestrations=[
            an_orchestration("Flow", "Region = 'IN'"),
            replace(an_orchestration("Known", "Region = 'BY'"), correlations={"case": (("Customer",), ("Payment",))}),
        ],
        personal=personal,
    )


@pytest.fixture
def box(agent: Agent, roles: Roles) -> Agent:  # noqa: ARG001
    """Messages with personal values that are suspended, unrouted, and held back, and an instance that waits by one."""
    agent.subscriptions.deploy(deployment("Customer", "Born.Year"))
    agent.subscriptions.stop("Stopped")
    personal: dict[str, Value] = {"Customer": SECRET, "Born.Year": YEAR}
    publish(agent, {"Region": "NO", **personal}, {"Region": "XX", **personal})
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order", **personal})
    publish(agent, {"Region": "BY", "BTS.MessageType": "Order", **personal})  # which begins one that waits by them
    request(agent)
    agent.subscriptions.subscribe_instance("Flow", uuid4(), {"Customer": SECRET})
    agent.subscriptions.subscribe_instance("Flow", uuid4(), {"BTS.EpmRRCorrelationToken": TOKEN})
    agent.subscriptions.subscribe_instance("Flow", uuid4(), {"Region": "Lofoten"})
    ReportRoutingFailures(agent).run_once()
    return agent


def request(agent: Agent) -> None:
    """Somebody waits for the answer to it."""
    agent.subscriptions.correlate(["BTS.EpmRRCorrelationToken"])
    host = agent.configuration.hosts()["Default"]
    [(service,)] = rows(agent.database, "SELECT id FROM service WHERE name = 'Stopped'")
    awaits = Awaited(uuid4(), service, host, {"BTS.EpmRRCorrelationToken": TOKEN})
    message = a_message(
        agent, {"Region": "BY", "BTS.MessageType": "Order"}, written={"BTS.EpmRRCorrelationToken": TOKEN}
    )
    agent.publish([Publication(host, (message,), awaits=awaits)])


def user(agent: Agent, *rights: tuple[str, str | None]) -> str:
    """The connection string of somebody who was given these rights."""
    [(number,)] = rows(agent.database, "SELECT to_hex(number) FROM box")
    name = f"crossdock_{number}_user_{rights[0][0]}_{(rights[0][1] or 'all').lower()}"
    with psycopg.connect(agent.database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
    for right, application in rights:
        agent.access.grant(right, name, application)
    return make_conninfo(agent.database, user=name, password="secret")


def everything(database: str) -> Iterator[tuple[str, str]]:
    """(table or view and column, all of its text) of whatever somebody may read with plain SQL."""
    with psycopg.connect(database, autocommit=True) as connection:
        readable = connection.execute(
            "SELECT relname, quote_ident(attname) FROM pg_attribute JOIN pg_class ON oid = attrelid"
            " WHERE relnamespace = 'crossdock'::regnamespace AND relkind IN ('r', 'p', 'v', 'm') AND attnum > 0"
            " AND NOT attisdropped AND has_column_privilege(attrelid, attnum, 'SELECT')"
        ).fetchall()
        for table, column in readable:
            found = connection.execute(
                f"SELECT string_agg({column}::text, ' ') FROM crossdock.{table}".encode()
            ).fetchone()
            assert found is not None
            yield f"{table}.{column}", str(found[0])


def places(database: str, *texts: str) -> set[str]:
    return {place for place, text in everything(database) if any(each in text for each in texts)}


def test_viewer_reads_no_personal_value_and_no_token_by_any_column_or_view(box: Agent) -> None:
    viewer = user(box, ("viewer", None))
    owned = places(box.database, "the \\\\ bold", TOKEN, str(YEAR))

    assert {"message.context", "track_few.contexts", "instance_subscription.value"} <= owned
    assert places(viewer, "bold", TOKEN, str(YEAR)) == set()
    assert places(viewer, "Lofoten") == {"shown_waiting.value"}
    for member in ('"Customer":"***"', '"Born.Year":"***"'):
        in_array = member.replace('"', '\\"')
        assert {"shown_message.context", "shown_few.contexts"} <= places(viewer, member, in_array)


@pytest.mark.parametrize("personal", [(), ("Customer", "Born.Year")])
def test_packed_track_keeps_tokens_of_requests_apart(
    agent: Agent,
    roles: Roles,  # noqa: ARG001
    personal: tuple[str, ...],
) -> None:
    agent.subscriptions.deploy(deployment(*personal))
    agent.subscriptions.stop("Stopped")
    request(agent)
    viewer, reader = user(agent, ("viewer", None)), user(agent, ("bodies", None))
    agent.cleanup.pack_track()

    packed = "SELECT content FROM crossdock.track_published"
    assert [TOKEN.encode() in decompress(content) for (content,) in rows(viewer, packed)] == [False]
    apart = "SELECT content FROM crossdock.track_personal"
    assert [TOKEN.encode() in decompress(content) for (content,) in rows(reader, apart)] == [True]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(viewer, apart)


def test_whoever_has_the_right_bodies_sees_them_in_the_views(box: Agent) -> None:
    reader, of_one = user(box, ("bodies", None)), user(box, ("bodies", "orders"))

    assert {"shown_message.context", "shown_few.contexts"} <= places(reader, "bold")
    assert "shown_waiting.value" not in places(reader, "bold", TOKEN)
    assert places(of_one, "bold", TOKEN) == set()


def test_other_columns_are_as_they_were_and_lists_work_and_mask(box: Agent) -> None:
    viewer = user(box, ("viewer", None))

    for what in ("suspended", "instances", "subscriptions", "messages"):
        for database in (viewer, box.database):
            done = CliRunner().invoke(app, ["get", what, "-o", "json", "--database", database])
            assert done.exit_code == 0, done.exception
            assert json.loads(done.stdout)
            assert "bold" not in done.stdout, what
            assert TOKEN not in done.stdout, what
            assert str(YEAR) not in done.stdout, what
    [contexts] = [text for place, text in everything(viewer) if place == "shown_message.context"]
    assert '"Region":"NO"' in contexts


def test_message_is_described_and_explained_to_a_viewer_with_its_personal_values_masked(box: Agent) -> None:
    viewer = user(box, ("viewer", None))
    [message] = [str(row.id) for row in box.suspended.messages(port="Stopped")]
    with psycopg.connect(box.database, autocommit=True) as connection:
        connection.execute("DELETE FROM track_few")  # it is tracked no longer: the box says what there is

    for words in (["describe", message], ["explain", message], ["explain", message, "Near"]):
        for database in (viewer, box.database):
            done = CliRunner().invoke(app, [*words, "-o", "json", "--database", database])
            assert done.exit_code == 0, done.exception
            assert "bold" not in done.stdout


def test_nearest_misses_quote_no_personal_value(box: Agent) -> None:
    [(report,)] = rows(box.database, "SELECT report::text FROM routing_failure")

    [near] = [each for each in json.loads(report) if each["service"] == "Near"]
    assert near["failing"] == ["Customer = 'Bob' (Customer is text ***)", "Born.Year = 7 (Born.Year is integer ***)"]


def test_property_that_becomes_personal_is_masked_in_reports_that_were_there(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment())
    publish(agent, {"Region": "XX", "Customer": SECRET})
    report = ReportRoutingFailures(agent)
    report.run_once()
    [(before,)] = rows(agent.database, "SELECT report::text FROM routing_failure")

    agent.subscriptions.deploy(deployment("Customer"))
    between = rows(agent.database, "SELECT count(*) FROM routing_failure")
    report.run_once()

    [(after,)] = rows(agent.database, "SELECT report::text FROM routing_failure")
    assert ("bold" in before, between, "bold" in after, "***" in after) == (True, [(0,)], False, True)


def test_role_of_viewers_that_was_there_before_loses_what_it_could_read(box: Agent) -> None:
    viewer = user(box, ("viewer", None))
    [(role,)] = rows(box.database, "SELECT access_role('viewer')")
    with psycopg.connect(box.database, autocommit=True) as connection:
        connection.execute(f"GRANT SELECT ON message, instance_subscription, track_few TO {role}".encode())
    assert places(viewer, "bold") != set()

    with psycopg.connect(box.database, autocommit=True) as connection:
        connection.execute("SELECT renew_access_roles()")

    assert places(viewer, "bold", TOKEN) == set()


def test_operator_resumes_by_personal_values_that_viewers_do_not_see(box: Agent) -> None:
    operator = user(box, ("operator", None))
    done = CliRunner().invoke(app, ["start", "Stopped", "-o", "json", "--database", operator])

    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)[0]["resumed"] == 1
