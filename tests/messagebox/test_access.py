"""Who may do what: every act by users with every right, through the command line, allowed or refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from box import PROPERTIES, an_orchestration
from crossdock.cli.app import app
from crossdock.errors import CrossdockError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from crossdock.messagebox.migrate import migrate
from express import deploy, kinds, port, publish, rows
from roles import Roles, roles

__all__ = ["roles"]

LISTS = ("ports", "groups", "locations", "orchestrations", "instances", "subscriptions", "suspended", "waiting", "hosts", "audit", "access")  # fmt: skip


@dataclass
class Office:
    """A MessageBox with something in it to act on, and users with rights."""

    agent: Agent
    roles: Roles
    box: str

    def user(self, name: str, *rights: tuple[str, str | None]) -> str:
        """The connection string of a user who was given these rights."""
        full = f"crossdock_{self.box}_user_{name}"
        with psycopg.connect(self.agent.database, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {full} LOGIN PASSWORD 'secret'".encode())
        for right, application in rights:
            self.agent.access.grant(right, full, application)
        return make_conninfo(self.agent.database, user=full, password="secret")

    def held_back(self, name: str = "Stopped") -> str:
        """A message that is suspended at a stopped port."""
        before = {row.sequence for row in self.agent.suspended.messages(port=name)}
        publish(self.agent, {"Region": name, "Amount": Decimal(5)})
        [row] = [row for row in self.agent.suspended.messages(port=name) if row.sequence not in before]
        return str(row.id)


@pytest.fixture
def office(agent: Agent, roles: Roles) -> Office:
    application = Deployment(
        "orders",
        PROPERTIES,
        [DeployedLocation("orders.in", "Default", {"secret": "hidden"})],
        [port("Plain", "Region = 'NO'"), port("Stopped", "Region = 'Stopped'")],
        {"Default": ()},
        orchestrations=[an_orchestration("Flow", "Region = 'IN'")],
    )
    agent.subscriptions.deploy(application)
    deploy(agent, port("Other", "Region = 'Other'"), application="others")
    agent.subscriptions.stop("Stopped")
    agent.subscriptions.stop("Other")
    publish(agent, {"Region": "IN", "BTS.MessageType": "Order"})
    [(box,)] = rows(agent.database, "SELECT to_hex(number) FROM box")
    return Office(agent, roles, box)


def run(database: str, *words: str, given: str | None = None) -> tuple[int, str]:
    """(exit code, what was said)."""
    done = CliRunner().invoke(app, [*words, "--database", database], input=given)
    if isinstance(done.exception, CrossdockError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.output


def acts(office: Office, folder: Path) -> dict[str, list[str]]:
    """Every act, ready to be done once more."""
    (folder / "order.json").write_text("{}")
    [instance] = [str(row.id) for row in office.agent.instances.list()] or ["none"]
    return {
        "stop": ["stop", "Plain"],
        "start": ["start", "Plain"],
        "unenlist": ["unenlist", "Plain"],
        "enlist": ["enlist", "Plain"],
        "disable": ["disable", "orders.in"],
        "enable": ["enable", "orders.in"],
        "resume": ["resume", office.held_back()],
        "terminate": ["terminate", office.held_back()],
        "save": ["save", office.held_back(), "--to", str(folder)],
        "edit": ["edit", office.held_back(), "-p", "Amount=7"],
        "cancel": ["cancel", instance],
        "publish": ["publish", str(folder / "order.json"), "-p", "Region=NO"],
        "grant": ["grant", "viewer", f"crossdock_{office.box}_user_ann"],
    }


STATES = {"stop", "start", "unenlist", "enlist", "disable", "enable"}
ALLOWED = {
    "nothing": set[str](),
    "viewer": set[str](),
    "operator": STATES | {"resume", "terminate", "cancel"},
    "bodies": {"save"},
    "edit": {"save", "edit"},
    "administrator": STATES | {"resume", "terminate", "save", "edit", "cancel", "publish", "grant"},
}


@pytest.mark.parametrize("right", ALLOWED)
def test_each_act_is_allowed_or_refused_in_one_sentence_and_in_the_audit(
    office: Office, folder: Path, right: str
) -> None:
    user = office.user("ann", *([] if right == "nothing" else [(right, None)]))
    for action, words in acts(office, folder).items():
        code, said = run(user, *words, "--as", "ann")

        allowed = action in ALLOWED[right]
        assert (code == 0) == allowed, (action, said)
        if not allowed:
            assert len(said.strip().splitlines()) == 1
            assert "may not" in said
        last = office.agent.audit.list(limit=1)[0]
        if right != "nothing":
            assert (last.action, last.outcome == "refused", last.person) == (action, not allowed, "ann"), last
            assert last.database_user == f"crossdock_{office.box}_user_ann"


@pytest.mark.parametrize("right", ["viewer", "operator", "administrator"])
def test_deploying_takes_an_administrator_and_whoever_is_none_is_told_so_and_recorded(
    office: Office, folder: Path, right: str
) -> None:
    file = folder / "little.yaml"
    file.write_text("application: little\nproperties: {Region: text}\n")
    user = office.user("ann", (right, None))

    for action, words in {
        "plan": ["plan", str(file)],
        "deploy": ["apply", str(file), "--as", "ann"],
        "undeploy": ["undeploy", "little", "--as", "ann"],
    }.items():
        code, said = run(user, *words)

        last = office.agent.audit.list(limit=1)[0]
        if right == "administrator":
            assert code == 0, said
            assert action == "plan" or (last.action, last.target, last.outcome) == (action, "little", "done")
        else:
            assert code == 2
            assert f"may not {action}: that takes the right administrator" in said
            assert (last.action, last.target, last.outcome) == (action, "little", "refused")
            assert last.database_user == f"crossdock_{office.box}_user_ann"
            assert action == "plan" or last.person == "ann"


def test_somebody_without_a_right_is_told_which_one_deploying_takes(office: Office, folder: Path) -> None:
    file = folder / "little.yaml"
    file.write_text("application: little\nproperties: {Region: text}\n")

    code, said = run(office.user("ann"), "apply", str(file))

    assert code == 2
    assert "may not deploy: that takes the right administrator" in said


@pytest.mark.parametrize("right", ["viewer", "administrator"])
def test_whoever_has_a_right_sees_every_list(office: Office, right: str) -> None:
    office.held_back()
    user = office.user("ann", (right, None))

    for what in LISTS:
        code, said = run(user, "get", what, "-o", "json")
        assert code == 0, (what, said)
        assert len(json.loads(said)) == len(json.loads(run(office.agent.database, "get", what, "-o", "json")[1])), what
        assert "hidden" not in said


def test_viewer_finds_and_traces_messages_and_reads_no_body(office: Office) -> None:
    message = office.held_back()
    user = office.user("ann", ("viewer", None))

    for words in (["get", "messages"], ["trace", message], ["explain", message], ["describe", message]):
        code, said = run(user, *words, "-o", "json")
        assert code == 0, (words, said)
        assert message in said
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(user, "SELECT bodies FROM track_few")


def test_viewer_keeps_views_of_its_own_and_changes_none_of_others(office: Office) -> None:
    ann, ben = office.user("ann", ("viewer", None)), office.user("ben", ("viewer", None))
    with Agent(ann) as agent:
        view = agent.console.save_view("Mine", "type=Order", most=10)

    assert view is not None
    with Agent(ben) as agent:
        assert agent.console.find_view(view.id) == view
        assert agent.console.views() == []
    assert rows(ben, "UPDATE saved_view SET query = 'state=lost' RETURNING id") == []
    assert rows(ben, "DELETE FROM saved_view RETURNING id") == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        rows(ben, f"INSERT INTO saved_view (database_user, person, name, query) SELECT '{office.box}', 'ann', 'x', ''")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT body FROM part",
        "SELECT body FROM fragment",
        "SELECT definition FROM service",
        "SELECT definition FROM receive_location",
        "SELECT bundle FROM orchestration_version",
        "INSERT INTO audit (person, action, target, outcome) VALUES ('x', 'x', 'x', 'x')",
        "UPDATE audit SET person = 'x'",
        "DELETE FROM audit",
        "DELETE FROM suspended",
        "INSERT INTO queue SELECT * FROM queue",
        "UPDATE service SET predicate = '[]'",
        "SELECT * FROM read_messages(ARRAY(SELECT id FROM message), 100)",
        "SELECT * FROM edit_delivery(1::smallint, 1, gen_random_uuid(), '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        "SELECT * FROM publish_few('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL, 1, NULL, NULL)",
        "SET ROLE {owner}",
    ],
)
def test_operator_with_a_shell_reads_no_body_and_changes_no_record(office: Office, query: str) -> None:
    office.held_back()
    owner = psycopg.conninfo.conninfo_to_dict(office.agent.database)["user"]

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(office.user("ann", ("operator", None)), query.replace("{owner}", str(owner)))


def test_right_for_one_application_holds_for_no_other(office: Office, folder: Path) -> None:
    user = office.user("ann", ("operator", "orders"), ("edit", "orders"))
    mine, other = office.held_back(), office.held_back("Other")

    assert run(user, "stop", "Plain")[0] == 0
    code, said = run(user, "start", "Other")
    assert code == 2
    assert "is of application 'others': you may not change it" in said
    assert run(user, "save", mine, "--to", str(folder))[0] == 0
    code, said = run(user, "save", other, "--to", str(folder))
    assert code == 2
    assert "may not read the body of message" in said
    for verb in ("resume", "terminate"):
        code, said = run(user, verb, other)
        assert code == 3
        assert "refused: you may not act on application others" in said
    assert run(user, "edit", mine, "-p", "Amount=7")[0] == 0
    assert run(user, "edit", other, "-p", "Amount=7")[0] == 2
    assert kinds(office.agent) == [("stopped", "Other")]
    with psycopg.connect(user, autocommit=True, options="-csearch_path=crossdock") as connection:
        change = "SELECT set_service_state(id, 'started') FROM service, move_epoch() WHERE name = 'Other'"
        assert connection.execute(change.encode()).rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(b"UPDATE service SET state = 'started' WHERE name = 'Other'")
    assert {row.name: row.state for row in office.agent.configuration.list_ports()}["Other"] == "stopped"


def test_instances_of_other_applications_are_left_alone(office: Office) -> None:
    user = office.user("ann", ("operator", "others"))
    [instance] = office.agent.instances.list()

    _, said = run(user, "cancel", str(instance.id))

    assert "refused: you may not act on application orders" in said
    assert [row.state for row in office.agent.instances.list()] == ["running"]


def test_operator_does_not_publish_again_what_was_never_delivered(office: Office) -> None:
    publish(office.agent, {"Region": "nobody"})
    [unrouted] = office.agent.suspended.messages()
    user = office.user("ann", ("operator", None))

    code, said = run(user, "resume", str(unrouted.id))

    assert code == 3
    assert "takes an administrator" in said
    assert run(user, "terminate", str(unrouted.id))[0] == 0


def test_rights_are_listed_and_taken_away_and_outlive_functions_that_are_made_anew(office: Office) -> None:
    user = office.user("ann", ("operator", "orders"), ("bodies", None))
    name = f"crossdock_{office.box}_user_ann"
    given = [
        (row.database_user, row.access, row.application)
        for row in office.agent.access.list()
        if row.database_user == name
    ]
    assert given == [(name, "bodies", None), (name, "operator", "orders")]

    rows(office.agent.database, "UPDATE box SET functions = 'older' RETURNING 1")
    with psycopg.connect(office.agent.database, autocommit=True) as connection:
        migrate(connection)
    assert run(user, "resume", office.held_back())[0] == 0
    office.agent.access.revoke("operator", name, "orders")

    code, said = run(user, "resume", office.held_back())
    assert code == 2
    assert "takes the right operator" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("king", "ann"), "There is no right 'king'. Choose one of: viewer, operator, bodies, edit, administrator"),
        (("operator", "nobody"), "with: CREATE ROLE nobody LOGIN PASSWORD"),
        (
            ("operator", "nobody-at-all"),
            "There is no database user 'nobody-at-all'.* CREATE ROLE \"nobody-at-all\" LOGIN",
        ),
        (("viewer", 'no"such'), 'CREATE ROLE "no""such" LOGIN PASSWORD'),
        (("operator", "crossdock", "nowhere"), "There is no application 'nowhere'"),
        (("viewer", "crossdock", "orders"), "is for all applications"),
    ],
)
def test_right_that_cannot_be_given_is_refused(office: Office, words: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        office.agent.access.grant(*words)


def test_operator_starts_an_orchestration_and_what_waited_begins_its_instances(office: Office) -> None:
    office.agent.subscriptions.stop("Flow")
    publish(office.agent, {"Region": "IN", "BTS.MessageType": "Order"})
    before = len(office.agent.instances.list())

    with Agent(office.user("ann", ("operator", "orders"))) as ann:
        assert ann.subscriptions.start("Flow").resumed == 1

    assert len(office.agent.instances.list()) == before + 1


def test_functions_that_a_restore_has_opened_to_everybody_are_closed_to_whoever_is_given_a_right(
    office: Office,
) -> None:
    [(host,)] = rows(office.agent.database, "SELECT id FROM host WHERE name = 'Default'")
    with psycopg.connect(office.agent.database, autocommit=True) as owner:
        owner.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA crossdock TO PUBLIC")

    user = office.user("late", ("viewer", None))

    with psycopg.connect(user, autocommit=True, options="-csearch_path=crossdock") as connection:
        for call in (
            f"host_{host}_dequeue(1, '{{0}}', '{{5}}', '{{0}}', '{{}}', false, 1)",
            f"host_{host}_requeue_due()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {call}".encode())
