"""What http can bring that is no request, or no answer: the client hears of it at once, and nothing is left behind."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from box import count
from crossdock.errors import ApplicationError
from express import rows
from http_client import post
from office import eventually, free_port, written
from partner import Partner
from two_way import Opened, application, ask, office, shop, shop_port
from walk import until

__all__ = ["office", "shop"]


@pytest.mark.parametrize("type_", ["text/plain; of=\u20ac", "text/plain; of=\u00e6"])
def test_answer_of_a_type_that_a_header_cannot_carry_is_given_as_plain_bytes(
    office: Opened, shop: Partner, database: str, type_: str
) -> None:
    shop.headers = {"Content-Type": type_.encode().decode("latin-1")}
    at = free_port()
    running = office(application(at, shop_port(shop)))

    answer = ask(at, "42")

    assert (answer.status_code, answer.json()) == (200, {"receipt": "42"})
    running.settled()
    assert count(database, "claimed") == 0
    assert running.suspended() == []


def test_garbage_for_a_two_way_location_that_routes_failures_is_refused_at_once_and_routed(
    office: Opened, shop: Partner, database: str
) -> None:
    at = free_port()
    failures = {"name": "Failures", "adapter": "file", "address": "failed/%MessageID%"}
    declared = application(
        at, shop_port(shop), {**failures, "filter": "ErrorReport.FailureCode = 'receive'"}, timeout=60
    )
    declared["receive_ports"][0]["failed_messages"] = "route"
    running = office(declared)

    answer = httpx.post(f"http://127.0.0.1:{at}/ask", content=b"no json", timeout=10)

    assert (answer.status_code, answer.json()["error"][:20]) == (400, "the body is not JSON")
    until(lambda: list(written(running.folder / "failed").values()) == [b"no json"])
    assert (count(database, "instance_subscription"), shop.requests) == (0, [])


@pytest.mark.parametrize("reads", [True, False])
def test_large_answer_is_delivered_to_a_client_that_reads_it_and_suspended_for_one_that_hangs_up(
    office: Opened, shop: Partner, database: str, reads: bool
) -> None:
    answer = json.dumps({"receipt": "1", "much": "x" * 12_000_000}).encode()
    shop.respond = lambda _: (200, answer)
    at = free_port()
    running = office(application(at, shop_port(shop)))

    with socket.create_connection(("127.0.0.1", at), timeout=60) as client:
        client.sendall(post(b'{"id": "1"}', "/ask", "Connection: close"))
        received = client.recv(1000)
        while reads and (more := client.recv(1_000_000)):
            received += more

    if reads:
        assert received.endswith(answer)
    eventually(lambda: count(database, "claimed"), 0)
    running.settled()
    assert running.suspended() == ([] if reads else [("response", "Ask.response")])


def test_two_locations_of_a_host_on_one_path_are_refused(office: Opened) -> None:
    declared = application(free_port())
    first, second = declared["receive_ports"]
    second["locations"][0]["address"] = first["locations"][0]["address"].replace("/ask", "/as%6B")

    with pytest.raises(ApplicationError, match=r"receive location 'Tell\.http': 'Ask\.http' listens at the same place"):
        office(declared)


def test_location_whose_path_is_taken_does_not_keep_the_others_from_being_served(office: Opened) -> None:
    at = free_port()
    running = office(application(at))
    declared = application(at)
    ask_port, tell_port = declared["receive_ports"]
    ask_port["locations"][0]["address"] = f"http://127.0.0.1:{at}/moved"
    taken = {**tell_port["locations"][0], "name": "Taken", "host": "Other"}
    running.deploy({**declared, "receive_ports": [ask_port, tell_port, {"name": "More", "locations": [taken]}]})

    until(lambda: ask(at, path="moved").status_code == 503)
    assert ask(at, path="ask").status_code == 404
    assert ask(at, path="tell").status_code == 202


def test_client_is_given_the_first_message_of_an_answer_and_the_others_are_suspended_there(
    office: Opened, shop: Partner
) -> None:
    shop.respond = lambda _: (200, json.dumps([{"receipt": str(each)} for each in range(3)]).encode())
    at = free_port()
    receipts = {"name": "Receipts", "adapter": "file", "address": "receipts/%MessageID%"}
    running = office(application(at, shop_port(shop), {**receipts, "filter": "MessageType = 'Receipt'"}))

    answer = ask(at)

    assert (answer.status_code, answer.json()) == (200, {"receipt": "0"})
    running.settled()
    assert running.suspended() == [("response", "Ask.response")] * 2
    assert {row.code for row in running.agent.suspended.messages()} == {"nobody-waits"}
    until(lambda: len(written(running.folder / "receipts")) == 3)


@pytest.mark.parametrize(
    ("messages", "type_length", "reason"),
    [
        (10_001, 10, "it holds more than 10,000 messages"),
        (5_000, 5_000, "what it gives to each of its messages is too much together"),
    ],
)
def test_answer_with_more_than_a_request_may_hold_is_not_used(
    office: Opened, shop: Partner, database: str, messages: int, type_length: int, reason: str
) -> None:
    shop.headers = {"Content-Type": "application/json; of=" + "x" * type_length}
    shop.respond = lambda _: (200, json.dumps([{"receipt": "1"}] * messages).encode())
    at = free_port()
    office(application(at, shop_port(shop, retry={"count": 0})))

    answer = ask(at)

    assert answer.status_code == 502
    [(told,)] = rows(database, "SELECT reason FROM suspended")
    assert reason in told
