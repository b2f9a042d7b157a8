"""Acts on many things in two steps: look, then do; watched, slowed down and cancelled."""

from __future__ import annotations

from console_box import Seeded
from console_fixtures import box, console
from operating import ended
from served import Served
from walk import until

__all__ = ["box", "console"]

PREVIEW, EXECUTE = "/api/v1/suspended:preview", "/api/v1/suspended:execute"


def test_what_was_looked_at_is_what_is_done(console: Served, box: Seeded) -> None:
    box.held_back(2)
    with console.as_role("operator") as client:
        preview = client.post(PREVIEW, json={"action": "terminate", "port": "Stopped"}).json()
        later = box.held_back(1)
        answer = client.post(EXECUTE, json={"token": preview["token"]})
        operation = ended(client, answer.json()["id"])

    assert (preview["total"], len(preview["sample"])) == (3, 3)
    assert (answer.status_code, answer.headers["location"]) == (202, f"/api/v1/operations/{operation['id']}")
    assert (operation["state"], operation["done"], operation["failed"]) == ("done", 3, 0)
    assert operation["results"] == {"terminated": 3}
    assert [str(row.id) for row in box.agent.suspended.messages(port="Stopped")] == later


def test_a_preview_does_nothing_and_its_token_works_once_for_the_same_person(console: Served, box: Seeded) -> None:
    with console.as_role("operator") as client, console.as_role("administrator") as other:
        token = client.post(PREVIEW, json={"action": "resume", "ids": [box.suspended]}).json()["token"]
        foreign = other.post(EXECUTE, json={"token": token})
        first = client.post(EXECUTE, json={"token": token})
        ended(client, first.json()["id"])
        second = client.post(EXECUTE, json={"token": token})

    assert (foreign.status_code, first.status_code, second.status_code) == (410, 202, 410)
    assert second.json()["code"] == "preview-gone"


def test_an_operation_is_cancelled_and_says_what_was_done(console: Served, box: Seeded) -> None:
    box.held_back(20)
    with console.as_role("operator") as client, console.as_role("viewer") as viewer:
        token = client.post(PREVIEW, json={"action": "terminate", "everything": True}).json()["token"]
        id_ = client.post(EXECUTE, json={"token": token, "rate": 1}).json()["id"]
        until(lambda: client.get(f"/api/v1/operations/{id_}").json()["done"] > 0, 60)
        refused = viewer.delete(f"/api/v1/operations/{id_}")
        client.delete(f"/api/v1/operations/{id_}")
        operation = ended(client, id_)
        listed = viewer.get("/api/v1/operations").json()

    assert refused.status_code == 403
    assert operation["state"] == "cancelled"
    assert operation["total"] == 21
    assert 0 < operation["done"] < 21
    assert len(box.agent.suspended.messages()) == 21 - operation["done"]
    assert [(each["id"], each["outcomes"]) for each in listed] == [(id_, [])]


def test_what_nobody_suspended_is_a_sentence(console: Served) -> None:
    with console.as_role("operator") as client:
        answer = client.post(PREVIEW, json={"action": "resume", "code": "partner-refused"})

    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("Nothing that is suspended matches.")


def test_one_delivery_is_edited_for_its_subscriber(console: Served, box: Seeded) -> None:
    with console.as_role("operator", "edit", application="orders") as client:
        edited = client.post(f"/api/v1/suspended/{box.suspended}/edit", json={"body": "bmV3"})

    assert edited.status_code == 200, edited.text
    assert edited.json()["result"] == "edited and queued again"
    assert [row for row in box.agent.suspended.messages() if str(row.id) == box.suspended] == []
