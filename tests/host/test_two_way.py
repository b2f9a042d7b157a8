"""Two-way exchange: http in, a partner's answer by way of the MessageBox, http out; and everything that can go wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import httpx
import psycopg
import pytest

from box import count
from crossdock.application import pushed
from crossdock.messagebox.lifeline import INSTANCE_LOCK
from express import rows, unbalanced
from office import Office, eventually, free_port, written
from partner import Partner, Request
from service import quick_upkeep
from two_way import Opened, application, ask, offices, receipt, shop, shop_port
from walk import until

__all__ = ["shop"]

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
CONCURRENT = 1_000 if SOAK else 200


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Opened]:
    with offices(database, tmp_path, quick_upkeep(workers=8)) as opened:
        yield opened


def test_request_goes_straight_through_and_its_answer_comes_back(office: Opened, shop: Partner, database: str) -> None:
    at = free_port()
    running = office(application(at, shop_port(shop)))

    answer = ask(at, "42")

    assert (answer.status_code, answer.json()) == (200, {"receipt": "42"})
    running.settled()
    eventually(lambda: count(database, "instance_subscription"), 0)
    assert running.suspended() == []


def test_response_is_published_to_everyone_who_subscribes_to_it(office: Opened, shop: Partner, tmp_path: Path) -> None:
    at = free_port()
    copy = {"name": "Copies", "adapter": "file", "address": "out/%MessageID%", "filter": "SPName = 'Shop'"}
    office(application(at, shop_port(shop), copy))

    assert ask(at, "42").json() == {"receipt": "42"}
    assert ask(at, "43", path="tell").status_code == 202

    until(lambda: len(written(tmp_path / "out")) == 2)
    assert sorted(written(tmp_path / "out").values()) == [b'{"receipt": "42"}', b'{"receipt": "43"}']


def test_response_carries_the_labels_of_its_request(
    office: Opened, shop: Partner, database: str, tmp_path: Path
) -> None:
    at = free_port()
    copy = {"adapter": "file", "filter": "SPName = 'Shop'"}
    cleared = {"name": "Cleared", "address": "cleared/%MessageID%", **copy}
    curious = {"name": "Curious", "address": "curious/%MessageID%", "host": "Open", **copy}
    hosts = [{"name": "Default", "labels": ["patients"]}, {"name": "Open"}]
    running = office({**application(at, shop_port(shop), cleared, curious, labels=["patients"]), "hosts": hosts})

    assert ask(at, "42").json() == {"receipt": "42"}

    until(lambda: len(written(tmp_path / "cleared")) == 1)
    running.settled()
    assert written(tmp_path / "curious") == {}
    assert rows(database, "SELECT labels FROM refusal") == [(["patients"],)]


def test_many_requests_at_once_are_all_answered_with_their_own_answers(
    office: Opened, shop: Partner, database: str
) -> None:
    at = free_port()
    running = office(application(at, shop_port(shop, in_flight=32), timeout=200))

    with ThreadPoolExecutor(CONCURRENT) as clients:
        answers = list(clients.map(lambda n: ask(at, str(n), timeout=240).json(), range(CONCURRENT)))

    assert answers == [{"receipt": str(n)} for n in range(CONCURRENT)]
    assert Counter(json.loads(each.body)["id"] for each in shop.requests) == Counter(map(str, range(CONCURRENT)))
    running.settled()
    eventually(lambda: count(database, "instance_subscription"), 0)
    assert running.agent.statistics().ports["Ask.response"] == CONCURRENT


def test_request_that_two_partners_would_answer_is_refused_and_kept(office: Opened, shop: Partner) -> None:
    at = free_port()
    running = office(application(at, shop_port(shop), shop_port(shop, "Rival")))

    answer = ask(at)

    assert answer.status_code == 503
    assert "more than one two-way subscriber: " in answer.json()["error"]
    assert (running.suspended(), shop.requests) == ([("unrouted", None)], [])


def test_request_that_nobody_wants_is_refused_and_kept(office: Opened) -> None:
    at = free_port()
    running = office(application(at))

    answer = ask(at)

    assert (answer.status_code, running.suspended()) == (503, [("unrouted", None)])


def test_response_after_the_time_is_over_is_suspended(office: Opened, shop: Partner, database: str) -> None:
    asked, go = Event(), Event()

    def late(request: Request) -> tuple[int, bytes]:
        asked.set()
        assert go.wait(60)
        return receipt(request)

    shop.respond = late
    at = free_port()
    running = office(application(at, shop_port(shop), timeout=0.5))

    answer = ask(at)
    assert (answer.status_code, asked.wait(30)) == (504, True)
    eventually(lambda: count(database, "instance_subscription"), 0)
    go.set()

    eventually(running.suspended, [("unrouted", None)])
    [row] = running.agent.suspended.messages()
    assert row.type == "Receipt"


def test_client_that_hangs_up_is_no_longer_waited_for_and_the_response_is_suspended(
    office: Opened, shop: Partner, database: str
) -> None:
    asked, go = Event(), Event()

    def late(request: Request) -> tuple[int, bytes]:
        asked.set()
        assert go.wait(60)
        return receipt(request)

    shop.respond = late
    at = free_port()
    running = office(application(at, shop_port(shop)))

    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"http://127.0.0.1:{at}/ask", content=b'{"id": "1"}', timeout=httpx.Timeout(30, read=1))
    assert asked.wait(30)
    eventually(lambda: count(database, "instance_subscription"), 0)
    go.set()

    until(lambda: len(running.suspended()) == 1)
    running.settled()


def test_partner_that_is_down_leaves_the_client_with_a_time_out_and_the_request_waiting(
    office: Opened, shop: Partner
) -> None:
    shop.status = 500
    shop.respond = None
    at = free_port()
    running = office(application(at, shop_port(shop), timeout=1))

    assert ask(at).status_code == 504
    eventually(lambda: running.port("Shop")["waiting"], 1)


def test_answer_that_cannot_be_read_is_asked_for_again(office: Opened, shop: Partner, database: str) -> None:
    good = iter([b"<garbage>", b'{"receipt": "at last"}'])
    shop.respond = lambda _: (200, next(good))
    at = free_port()
    running = office(application(at, shop_port(shop, retry={"count": 1, "interval": 60})))

    with ThreadPoolExecutor(1) as client:
        answer = client.submit(ask, at)
        eventually(lambda: running.port("Shop")["waiting"], 1)
        [(reason,)] = rows(database, "SELECT reason FROM scheduled")
        assert reason.startswith("Send port 'Shop': the answer cannot be used: it is not JSON")
        running.clock.jump(seconds=61)
        assert answer.result(60).json() == {"receipt": "at last"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b"no json", "the body is not JSON"),
        (b'{"id": {"nested": 1}}', "property 'OrderId'"),
        (b'{"id": "1"}\n{"id": "2"}', "a request is one message, and there is more than one in it"),
    ],
)
def test_what_is_no_request_is_refused_and_not_kept(
    office: Opened, shop: Partner, body: bytes, reason: str, database: str
) -> None:
    at = free_port()
    office(application(at, shop_port(shop)))

    answer = httpx.post(f"http://127.0.0.1:{at}/ask", content=body, timeout=30)

    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert answer.json()["error"].startswith(reason)
    assert count(database, "message") == 0


def test_one_way_request_is_answered_when_its_messages_are_committed(office: Opened, database: str) -> None:
    at = free_port()
    running = office(application(at))

    answer = httpx.post(f"http://127.0.0.1:{at}/tell", content=b'{"id": "1"}\n{"id": "2"}\nbad\n', timeout=30)

    assert answer.status_code == 202
    assert (len(answer.json()["messages"]), len(answer.json()["suspended"])) == (2, 1)
    assert count(database, "message") == 3
    statistics = running.agent.statistics()
    assert (statistics.received, statistics.unrouted, statistics.suspended) == (3, 2, 1)


def test_location_whose_address_is_only_port_and_path_is_served_on_this_machine(
    office: Opened,
) -> None:
    at = free_port()
    office(application(at, address=f":{at}/ask/here"))

    assert ask(at, path="ask/here").status_code == 503


def test_location_that_is_disabled_is_no_longer_served_and_enabled_it_is_again(
    office: Opened,
) -> None:
    at = free_port()
    running = office(application(at))
    assert ask(at, path="tell").status_code == 202

    running.agent.subscriptions.enable("Tell.http", enabled=False)
    until(lambda: ask(at, path="tell").status_code == 404)
    running.agent.subscriptions.enable("Tell.http", enabled=True)

    until(lambda: ask(at, path="tell").status_code == 202)


def test_address_that_is_taken_is_served_as_soon_as_it_is_free(office: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed, "_TRY_AGAIN_SECONDS", 0.2)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = int(taken.getsockname()[1])
        office(application(at))
    until(lambda: reachable(at))

    assert ask(at, path="tell").status_code == 202


def reachable(at: int, path: str = "tell") -> bool:
    try:
        ask(at, path=path)
    except httpx.TransportError:
        return False
    return True


def _waits_for_a_lock(database: str, process: int) -> bool:
    return bool(rows(database, "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", process))


@contextmanager
def _taken_for_living(database: str, host: str) -> Iterator[None]:
    """Nobody finds the instances of the host dead meanwhile: we wait for their locks, and so have them next."""
    query = "SELECT instance.id FROM host_instance AS instance JOIN host ON host.id = host_id WHERE host.name = %s"
    with ExitStack() as stack:
        waiting = stack.enter_context(ThreadPoolExecutor(4))
        for (instance,) in rows(database, query, host):
            connection = stack.enter_context(psycopg.connect(database, autocommit=True))
            lock = "SELECT pg_advisory_lock(%s::integer, %s::integer)"
            waiting.submit(connection.execute, lock, [INSTANCE_LOCK, instance])
            until(partial(_waits_for_a_lock, database, connection.info.backend_pid))
        yield


@pytest.mark.process
@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize(
    ("found_dead_first", "suspended"),
    [(True, ("unrouted", None)), (False, ("response", "Ask.response"))],
    ids=["found dead before the response", "found dead after the response"],
)
def test_response_for_a_process_that_died_is_suspended(
    database: str,
    shop: Partner,
    tmp_path: Path,
    found_dead_first: bool,
    suspended: tuple[str, str | None],
) -> None:
    asked, go = Event(), Event()

    def late(request: Request) -> tuple[int, bytes]:
        asked.set()
        assert go.wait(120)
        return receipt(request)

    shop.respond = late
    at = free_port()
    declared = application(at, shop_port(shop, host="Sending"))
    office = Office(database, tmp_path, declared)
    command = [str(Path(sys.executable).with_name("crossdock")), "host", "--database", database]
    with subprocess.Popen([*command, "Default"]) as waiting, subprocess.Popen([*command, "Sending"]) as sending:
        try:
            until(lambda: reachable(at, path="none"))
            with ThreadPoolExecutor(1) as client:
                answer = client.submit(ask, at)
                assert asked.wait(60)
                with ExitStack() as unnoticed:
                    if not found_dead_first:
                        unnoticed.enter_context(_taken_for_living(database, "Default"))
                    waiting.send_signal(signal.SIGKILL)
                    with pytest.raises(httpx.TransportError):
                        answer.result(60)
                    if not found_dead_first:
                        go.set()
                        until(lambda: count(database, "queue") + count(database, "suspended") == 1)
            with office.open():
                eventually(lambda: count(database, "instance_subscription"), 0)
                go.set()
                eventually(office.suspended, [suspended])
                office.settled()
        finally:
            waiting.kill()
            sending.terminate()
    assert office.suspended() == [suspended]
    assert [row.type for row in office.agent.suspended.messages()] == ["Receipt"]
    left = {table: count(database, table) for table in ("queue", "claimed", "scheduled", "suspended")}
    assert left == {"queue": 0, "claimed": 0, "scheduled": 0, "suspended": 1}
    assert len(shop.requests) == 1
    assert unbalanced(database) == []
