"""People with fewer rights than the database user of the console: nothing of it is theirs, on no way."""

from __future__ import annotations

import pytest

from console_box import Seeded
from console_fixtures import box, console
from crossdock.administration.service import Actor, Administration, Selection
from crossdock.errors import NotAllowedError
from crossdock.messagebox.agent import Agent
from express import rows
from operating import ended
from served import Served

__all__ = ["box", "console"]

SUSPENDED = "/api/v1/messages/{}/parts/body"


def limited(agent: Agent, *rights: str) -> Administration:
    return Administration(agent, text_limit=256).acting_for(Actor("ann", "", frozenset(rights)))


def test_a_viewer_reads_no_body_also_where_the_console_owns_the_messagebox(console: Served, box: Seeded) -> None:
    path = SUSPENDED.format(box.suspended)

    with console.as_role("viewer") as viewer, console.as_role("viewer", "bodies") as reader:
        refused, read = viewer.get(path), reader.get(path)

    assert refused.status_code == 403
    assert "'token viewer' may not read" in refused.json()["detail"]
    assert read.content == b"content"
    assert read.headers["content-type"] == "application/octet-stream"
    assert read.headers["content-disposition"].startswith("attachment; ")


def test_rights_for_one_application_are_for_that_one_only(console: Served, box: Seeded) -> None:
    [other] = box.held_back(1, "Other")

    with console.as_role("operator", "bodies", application="orders") as client:
        own = [
            client.post("/api/v1/ports/Plain/stop").status_code,
            client.get(SUSPENDED.format(box.suspended)).status_code,
        ]
        foreign = [
            client.post("/api/v1/ports/Other/start").status_code,
            client.get(SUSPENDED.format(other)).status_code,
        ]
        preview = client.post("/api/v1/suspended:preview", json={"action": "resume", "ids": [other]}).json()
        begun = client.post("/api/v1/suspended:execute", json={"token": preview["token"]}).json()
        outcome = ended(client, begun["id"])

    assert (own, foreign) == ([200, 200], [403, 403])
    assert (outcome["done"], outcome["failed"]) == (0, 1)
    assert "may not act on application others" in outcome["outcomes"][0]["result"]
    assert [row.port for row in box.agent.suspended.messages(port="Other")] == ["Other"]


def test_the_functions_of_the_messagebox_keep_the_limit_too(box: Seeded) -> None:
    """Whatever Python forgets to ask."""
    viewer = box.agent.acting_for(Actor("ann", "", frozenset({"viewer"})))
    [row] = viewer.suspended.messages(port="Stopped")

    assert viewer.messages.read([row.id], "read") == ({}, {})
    assert viewer.suspended.resume_deliveries([row.delivery]) == {}
    assert viewer.suspended.terminate_deliveries([row.delivery]) == {}
    assert viewer.instances.cancel([instance.id for instance in viewer.instances.list()]) == []
    with pytest.raises(NotAllowedError):
        viewer.subscriptions.start("Stopped")
    with pytest.raises(NotAllowedError):
        viewer.subscriptions.enable("orders.in", enabled=False)
    with pytest.raises(NotAllowedError):
        viewer.subscriptions.undeploy("orders")
    with pytest.raises(NotAllowedError):
        viewer.instances.terminate([instance.id for instance in viewer.instances.list()])
    with pytest.raises(NotAllowedError):
        viewer.track.erase([row.id], "all")


def test_connections_carry_the_limit_of_whoever_uses_them_now(box: Seeded) -> None:
    """The same connections serve everybody, one after the other."""
    [row] = box.agent.suspended.messages(port="Stopped")
    viewer = box.agent.acting_for(Actor("ann", "", frozenset({"viewer"})))

    for _ in range(3):
        assert viewer.messages.read([row.id], "read") == ({}, {})
        assert row.id in box.agent.messages.read([row.id], "read")[0]


def test_a_person_without_the_right_publishes_nothing_though_the_database_user_owns_every_host(box: Seeded) -> None:
    operator = limited(box.agent, "operator", "viewer")

    with pytest.raises(NotAllowedError, match="takes the right administrator"):
        operator.publish_content("x", b"x", location=None, to=None, properties=[])


def test_whoever_is_refused_is_in_the_audit_under_the_own_name(console: Served, box: Seeded) -> None:
    with console.as_role("viewer") as client:
        client.post("/api/v1/ports/Plain/stop", headers={b"x-crossdock-reason": "Støy".encode()})

    [row] = box.agent.audit.list(person="token viewer")
    assert (row.action, row.target, row.outcome, row.reason) == ("stop", "Plain", "refused", "Støy")


def test_the_name_of_an_application_gives_no_other_right(agent: Agent) -> None:
    rights = limited(agent, "viewer", "bodies:operator").rights()

    assert not rights.any("operator")
    assert rights.allow("bodies", "operator")
    assert not rights.allow("bodies", "orders")


def test_an_administrator_of_the_console_may_do_no_more_than_its_database_user(agent: Agent) -> None:
    own = limited(agent, "administrator").rights()

    assert own.is_owner
    assert not own.within(frozenset({"operator:orders"}), "bo").is_owner


def test_a_selection_of_a_viewer_is_refused(box: Seeded) -> None:
    with pytest.raises(NotAllowedError):
        limited(box.agent, "viewer").choose("resume", Selection(everything=True))


def test_whoever_may_read_no_bodies_is_shown_an_instance_without_its_steps(console: Served, box: Seeded) -> None:
    """Where the console owns the MessageBox, and no policy hides them."""
    rows(box.agent.database, "INSERT INTO history SELECT host_id, id, 1, '\\x01' FROM instance RETURNING 1")
    shown = []
    for rights in (("viewer",), ("viewer", "bodies")):
        with console.as_role(*rights) as client:
            shown.append(len(client.get(f"/api/v1/instances/{box.instance}").json()["steps"]))

    assert shown == [0, 1]


def test_personal_values_that_somebody_asks_for_are_in_no_record(console: Served, box: Seeded) -> None:
    rows(box.agent.database, "UPDATE property SET personal = true WHERE name = 'Region' RETURNING 1")
    with console.as_role("administrator") as client:
        chosen = {"action": "terminate", "where": "Region = 'Stopped'", "personal": True}
        preview = client.post("/api/v1/suspended:preview", json=chosen).json()
        begun = client.post("/api/v1/suspended:execute", json={"token": preview["token"]}).json()
        ended(client, begun["id"])
        operations = client.get("/api/v1/operations").text

    said = [row.target for row in box.agent.audit.list(action="terminate")]
    assert preview["total"] == 1
    assert {preview["selection"], begun["selection"]} == {"--where a condition on Region --personal"}
    assert "Stopped'" not in operations
    assert "--where a condition on Region --personal" in said
    assert not any("= 'Stopped'" in each for each in said)


@pytest.mark.parametrize("personal", [False, True])
def test_filters_over_personal_properties_are_refused_to_who_may_not_see_the_values(
    console: Served, box: Seeded, personal: bool
) -> None:
    rows(box.agent.database, "UPDATE property SET personal = true WHERE name = 'Region' RETURNING 1")
    asked: dict[str, str | bool] = {"where": "Region != 'Stopped'", "personal": personal}
    with console.as_role("operator") as client:
        answers = [
            *(client.get(f"/api/v1/{list_}", params=asked) for list_ in ("suspended", "instances", "messages")),
            client.post("/api/v1/suspended:preview", json={"action": "terminate", **asked}),
        ]

    assert [each.status_code for each in answers] == [403] * 4
    assert all("bodies" in each.json()["detail"] for each in answers)
    if not personal:
        sentence = "Property 'Region' is personal: to search by it takes the right bodies"
        assert all(each.json()["detail"].startswith(sentence) for each in answers)


def test_filters_over_personal_properties_are_agreed_to_and_recorded(console: Served, box: Seeded) -> None:
    rows(box.agent.database, "UPDATE property SET personal = true WHERE name = 'Region' RETURNING 1")
    asked = {"where": "Region LIKE 'S%' OR Region = 'IN'"}
    with console.as_role("operator", "bodies") as client:
        refused = [client.get(f"/api/v1/{list_}", params=asked) for list_ in ("suspended", "instances")]
        refused.append(client.post("/api/v1/suspended:preview", json={"action": "terminate", **asked}))
        agreed: dict[str, str | bool] = {**asked, "personal": True}
        found = [client.get(f"/api/v1/{list_}", params=agreed).json() for list_ in ("suspended", "instances")]
        preview = client.post("/api/v1/suspended:preview", json={"action": "terminate", **agreed}).json()

    assert [each.status_code for each in refused] == [400] * 3
    assert all("To search by it, which is recorded, add: personal=true" in each.json()["detail"] for each in refused)
    assert [len(each["items"]) for each in found] == [1, 1]
    assert preview["total"] == 1
    assert [row.target for row in box.agent.audit.list(action="search")] == [
        "suspended messages by Region", "instances by Region", "suspended messages by Region",
    ]  # fmt: skip
