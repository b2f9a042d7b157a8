"""The API: lists by page, problems, requests that are answered once, deploying, a filter that is tried."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from console_box import APPLICATION, Seeded, an_order
from console_fixtures import box, console
from express import publish
from served import Served

__all__ = ["box", "console"]


@pytest.fixture
def administrator(console: Served) -> Iterator[httpx.Client]:
    with console.as_role("administrator") as client:
        yield client


def pages(client: httpx.Client, path: str, **asked: Any) -> list[list[Any]]:
    found, cursor = [], None
    while True:
        page = client.get(path, params={**asked, **({} if cursor is None else {"cursor": cursor})}).json()
        found.append(page["items"])
        cursor = page["next"]
        if cursor is None:
            return found


def test_a_list_comes_by_page_and_nothing_twice(administrator: httpx.Client, box: Seeded) -> None:
    box.held_back(4)
    for path in ("ports", "locations", "subscriptions", "suspended", "messages", "audit"):
        whole = administrator.get(f"/api/v1/{path}", params={"limit": 1000}).json()["items"]

        by_two = pages(administrator, f"/api/v1/{path}", limit=2)

        assert len(whole) >= (1 if path == "locations" else 3)
        assert [row for page in by_two for row in page] == whole


def test_a_cursor_that_is_none_of_the_list_is_a_problem(administrator: httpx.Client) -> None:
    for cursor in ("x", "", "W10", "WyJwb3J0cyIsIG51bGxd", "WyJhdWRpdCIsIDFd", "é", "W1tdLCAxXQ"):
        answer = administrator.get("/api/v1/suspended", params={"cursor": cursor})

        assert (answer.status_code, answer.json()["code"]) == (400, "cursor-wrong")
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("list_", "place"),
    [
        ("ports", "no application"), ("ports", "a\x1f\0"), ("ports", "\ud800\x1fb"), ("ports", 1), ("locations", "\x1fa\0"),
        ("subscriptions", "activation"), ("subscriptions", "port\x1f1"), ("subscriptions", f"instance\x1f{2**63}"),
        ("subscriptions", "activation\x1f²"),
    ],
)  # fmt: skip
def test_a_cursor_that_somebody_made_up_is_a_problem(administrator: httpx.Client, list_: str, place: str | int) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps([list_, place]).encode()).decode().rstrip("=")

    answer = administrator.get(f"/api/v1/{list_}", params={"cursor": cursor})

    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_list_goes_on_behind_what_is_there_no_more(administrator: httpx.Client, box: Seeded) -> None:
    first = administrator.get("/api/v1/ports", params={"limit": 2}).json()
    box.agent.subscriptions.unenlist(first["items"][1]["name"])

    rest = administrator.get("/api/v1/ports", params={"cursor": first["next"]}).json()

    assert [each["name"] for each in rest["items"]] == ["Other"]


def test_a_problem_says_what_happened_and_where_to_read_on(administrator: httpx.Client) -> None:
    unknown = administrator.post("/api/v1/ports/Nowhere/start")
    filter_ = administrator.get("/api/v1/messages", params={"where": "Nothing = 1"})
    nothing = administrator.get("/api/v1/nothing")
    invalid = administrator.post("/api/v1/suspended:preview", json={"action": "burn"})

    assert unknown.json() == {
        "type": "/problems/usage-wrong",
        "title": "Not Found",
        "status": 404,
        "detail": "There is no send port, group or orchestration 'Nowhere' deployed. "
        "See: crossdock get ports|groups|orchestrations",
        "code": "usage-wrong",
        "instance": "/api/v1/ports/Nowhere/start",
    }
    assert (filter_.status_code, nothing.status_code, invalid.status_code) == (400, 404, 422)
    assert invalid.json()["errors"][0]["place"] == "body.action"


def test_a_problem_names_the_parameters_and_not_the_options_of_the_command_line(administrator: httpx.Client) -> None:
    def said(answer: httpx.Response) -> str:
        assert answer.status_code == 400, answer.text
        return str(answer.json()["detail"])

    for list_ in ("messages", "suspended"):
        assert said(administrator.get(f"/api/v1/{list_}", params={"where": "Nothing = 1"})).startswith("where: ")
    assert said(administrator.get("/api/v1/audit", params={"since": "soon"})).startswith("since 'soon' is no time")
    assert said(administrator.post("/api/v1/suspended:preview", json={"action": "resume"})) == (
        "Name messages by their ids, or choose them with port, code, type, where, since or everything."
    )


def test_a_problem_of_a_personal_property_names_the_parameter(administrator: httpx.Client) -> None:
    text = "application: people\nproperties: {Patient: {type: text, personal: true}}\n"
    assert administrator.post("/api/v1/apply", json={"yaml": text}).status_code == 200

    answer = administrator.get("/api/v1/messages", params={"where": "Patient = 'x'"})

    assert answer.json()["detail"].endswith("To search by it, which is recorded, add: personal=true")
    asked = administrator.get("/api/v1/messages", params={"where": "Patient = 'x'", "personal": True})
    assert asked.status_code == 200


def test_a_value_that_no_database_can_hold_is_a_problem_of_the_request(administrator: httpx.Client) -> None:
    answers = [
        administrator.get("/api/v1/waiting", params={"port": "a\0b"}),
        administrator.get("/api/v1/audit", params={"since": "0001-01-01T00:00+14:00"}),
        administrator.post("/api/v1/ports/a%00b/stop"),
        administrator.post("/api/v1/suspended:preview", json={"action": "resume", "port": "\0"}),
        administrator.post(
            "/api/v1/suspended:preview",
            content=b'{"action": "resume", "port": "\\ud800"}',
            headers={"content-type": "application/json"},
        ),
    ]

    assert [each.status_code for each in answers if each.status_code not in (200, 400, 404, 422)] == []
    assert "cannot be used" in answers[0].json()["detail"]


def test_a_message_is_explained_traced_and_described(administrator: httpx.Client, box: Seeded) -> None:
    path = f"/api/v1/messages/{box.suspended}"

    described = administrator.get(path).json()
    explained = administrator.get(f"{path}/explain", params={"now": True}).json()
    traced = administrator.get(f"{path}/trace").json()

    assert described["promoted"]["Region"] == "Stopped"
    assert {each["name"]: each["matched"] for each in explained["subscriptions"]}["Stopped"] is True
    assert explained["filters"] == "now"
    assert traced["id"] == box.suspended


def test_a_port_is_stopped_and_started_and_the_audit_says_by_whom(administrator: httpx.Client, box: Seeded) -> None:
    stopped = administrator.post("/api/v1/ports/Plain/stop").json()
    started = administrator.post("/api/v1/ports/Plain/start").json()
    disabled = administrator.post("/api/v1/locations/orders.in/disable").json()

    assert (stopped["before"], stopped["after"], started["after"]) == ("started", "stopped", "started")
    assert disabled == {"name": "orders.in", "enabled": False, "changed": True}
    acts = box.agent.audit.list(person="token administrator")
    assert [row.action for row in acts] == ["disable", "start", "stop"]


def test_an_instance_is_shown_and_cancelled(administrator: httpx.Client, box: Seeded) -> None:
    path = f"/api/v1/instances/{box.instance}"

    [listed] = administrator.get("/api/v1/instances").json()["items"]
    described = administrator.get(path).json()
    cancelled = administrator.post(f"{path}:cancel").json()
    terminated = administrator.post(f"{path}:terminate").json()

    assert listed["id"] == described["id"] == box.instance
    assert cancelled["result"] == "is being cancelled"
    assert terminated["result"] == "terminated"
    assert administrator.get(path).status_code == 404


def test_a_request_with_a_key_is_done_once(administrator: httpx.Client, box: Seeded) -> None:
    asked = {"body": "aGVsbG8=", "properties": ["Region=NO"]}
    key = {"idempotency-key": "one"}

    first = administrator.post("/api/v1/messages", json=asked, headers=key)
    again = administrator.post("/api/v1/messages", json=asked, headers=key)
    other = administrator.post("/api/v1/messages", json={**asked, "body": "b3RoZXI="}, headers=key)
    without = administrator.post("/api/v1/messages", json=asked)

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert without.json()[0]["id"] != first.json()[0]["id"]
    assert [row.after["published"] for row in box.agent.audit.list(action="publish")] == [1, 1]


def test_a_refused_request_gives_its_key_back(administrator: httpx.Client) -> None:
    key = {"idempotency-key": "one"}

    refused = administrator.post("/api/v1/ports/Nowhere/stop", headers=key)
    done = administrator.post("/api/v1/ports/Plain/stop", headers=key)

    assert (refused.status_code, done.status_code) == (404, 200)


def test_the_keys_of_two_people_are_not_the_same(console: Served, administrator: httpx.Client) -> None:
    key = {"idempotency-key": "one"}
    with console.as_role("operator") as operator:
        first = administrator.post("/api/v1/ports/Plain/stop", headers=key)
        second = operator.post("/api/v1/ports/Plain/start", headers=key)

    assert (first.json()["after"], second.json()["after"]) == ("stopped", "started")


def test_a_request_whose_outcome_is_not_known_is_not_done_again(administrator: httpx.Client, box: Seeded) -> None:
    digest = sha256(b"POST /api/v1/ports/Plain/stop?\n").digest()
    assert box.agent.console.begin_answer("token administrator", "one", digest) is None

    answer = administrator.post("/api/v1/ports/Plain/stop", headers={"idempotency-key": "one"})

    assert (answer.status_code, answer.json()["code"]) == (409, "in-progress")


def test_an_application_is_planned_applied_and_taken_away(administrator: httpx.Client) -> None:
    plan = administrator.post("/api/v1/plan", json={"yaml": APPLICATION})
    asked = {"yaml": APPLICATION, "digest": plan.json()["digest"]}
    applied = administrator.post("/api/v1/apply", json=asked, headers={"if-match": plan.headers["etag"]})
    outdated = administrator.post("/api/v1/apply", json=asked, headers={"if-match": plan.headers["etag"]})
    names = [each["name"] for each in administrator.get("/api/v1/applications").json()]
    gone = administrator.delete("/api/v1/applications/shop")

    assert "1 port added" in plan.json()["summary"]
    assert applied.json()["changed"] is True
    assert (outdated.status_code, outdated.json()["code"]) == (412, "plan-outdated")
    assert "shop" in names
    assert gone.status_code == 200, gone.text


BRINGS_CODE = {
    'orchestrations: [{function: "flows:run"}]': "has orchestrations",
    'pipelines: [{name: own, disassemble: "os:system"}]': "names code of its own, 'os:system'",
    "send_port_groups: [{name: x, ports: [Nowhere]}]": "Nowhere",
    "nonsense: true": "unknown key",
}


def test_an_application_that_brings_code_or_is_wrong_is_refused(administrator: httpx.Client) -> None:
    wanted = {APPLICATION + more: said for more, said in BRINGS_CODE.items()}
    wanted[APPLICATION.replace("adapter: file", 'adapter: "own:Adapter"')] = "names code of its own"
    for yaml, said in wanted.items():
        answer = administrator.post("/api/v1/apply", json={"yaml": yaml})

        assert answer.status_code == 422, answer.text
        assert said in answer.json()["detail"]
        if "code" in said or "orchestrations" in said:
            assert "without --url: crossdock apply APP --database URL" in answer.json()["detail"]


def test_a_filter_is_tried_on_recent_traffic(administrator: httpx.Client, box: Seeded) -> None:
    publish(box.agent, *(an_order("NO", each) for each in range(4)))
    publish(box.agent, an_order("SE", 9))

    tried = administrator.post("/api/v1/filters:try", json={"filter": "Amount >= 2", "port": "Plain"}).json()
    fresh = administrator.post("/api/v1/filters:try", json={"filter": "Region = 'SE'"}).json()

    assert (tried["matched"], tried["gained"], tried["lost"], tried["unrouted"]) == (4, 2, 2, 2)
    assert len(tried["lost_samples"]) == 2
    assert (fresh["before"], fresh["gained"], fresh["lost"]) == (None, 1, 0)


def test_live_numbers_are_a_stream(console: Served) -> None:
    with console.as_role("viewer") as client, client.stream("GET", "/api/v1/live") as answer:
        first = next(answer.iter_lines())

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert first == "event: away"  # nobody has looked at this MessageBox


def test_the_description_names_every_operation(console: Served) -> None:
    with console.client() as client:
        described = client.get("/api/v1/openapi.json").json()

    assert described["openapi"].startswith("3.1")
    ids = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) > 40
    assert "/session" not in json.dumps(list(described["paths"]))
