"""Partners that fail in every way: nothing is lost, nobody is asked too much, and the ports beside do not notice."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest

from crossdock.errors import UsageError
from crossdock.host.instance import HostInstance
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from express import unbalanced
from office import Office, eventually, free_port, written
from partner import Partner, Request, partner, raw_partner
from service import quick_upkeep
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
HUNDREDS = 3_000 if SOAK else 300
ORDERED = 1_000 if SOAK else 30
ROUNDS = 2_000 if SOAK else 100
Opened = Callable[..., Office]


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Opened]:
    """Opens an application with these send ports; at the end the books must balance."""
    with ExitStack() as stack:

        def opened(*ports: dict[str, Any], **application: Any) -> Office:
            declared = {"properties": {"To": "text"}, "send_ports": list(ports), **application}
            made = Office(database, tmp_path, declared, host_limits=quick_upkeep(workers=8))
            stack.callback(made.agent.close)
            return stack.enter_context(made.open())

        yield opened
    assert unbalanced(database) == []


def http_port(name: str, address: str, **more: Any) -> dict[str, Any]:
    """Takes what is for it by name, and tries once unless `more` says otherwise."""
    return {
        "name": name, "adapter": "http", "address": address, "filter": f"To = '{name}'", "retry": {"count": 0}, **more,
    }  # fmt: skip


def file_port(name: str = "Files") -> dict[str, Any]:
    return {"name": name, "adapter": "file", "address": f"{name}/%MessageID%", "filter": f"To = '{name}'"}


def publish_to(running: Office, name: str, bodies: Sequence[str]) -> list[Message]:
    """All in one transaction."""
    agent = running.agent
    made = [Message(agent.message_id(), Context({"To": name}), (Part("body", body.encode()),)) for body in bodies]
    agent.publish([Publication(agent.configuration.hosts()["Default"], tuple(made))])
    return made


# Partners


def hangs(connection: socket.socket, over: Event) -> None:
    connection.recv(1)
    over.wait()


def answers_garbage(connection: socket.socket, over: Event) -> None:  # noqa: ARG001
    connection.recv(65536)
    connection.sendall(b"\x16\x03\x01 no http at all\r\n\r\n")


def goes_away(connection: socket.socket, over: Event) -> None:  # noqa: ARG001
    connection.recv(65536)


@pytest.mark.parametrize("behaviour", [hangs, answers_garbage, goes_away, None])
def test_what_a_partner_does_not_take_is_suspended_and_resumed_when_it_is_well_again(
    office: Opened, behaviour: Callable[[socket.socket, Event], None] | None
) -> None:
    with ExitStack() as illness, partner() as shop:
        down = f"http://127.0.0.1:{free_port()}"
        ill = down if behaviour is None else illness.enter_context(raw_partner(behaviour))
        running = office(http_port("Shop", ill, options={"timeout": 0.3}), file_port())
        messages = publish_to(running, "Shop", [str(n) for n in range(20)])
        eventually(lambda: jumped(running).suspended(), [("send", "Shop")] * 20)

        running.deploy({"properties": {"To": "text"}, "send_ports": [http_port("Shop", shop.address), file_port()]})

        def resumed() -> bool:
            """Again, if need be: the host hears of a new address a moment later."""
            running.agent.suspended.resume([row.id for row in running.agent.suspended.messages()])
            return len(shop.requests) == 20 and jumped(running).suspended() == []

        until(resumed, 30)
        running.settled()
        assert {each.headers["X-Crossdock-Message-ID"]: each.body for each in shop.requests} == {
            str(message.id): message.body for message in messages
        }


def jumped(running: Office) -> Office:
    """With the clock put forward, so that what was put aside is due."""
    running.clock.jump(minutes=1)
    return running


def test_partner_that_comes_and_goes_gets_everything_by_and_by(office: Opened) -> None:
    randomness, lock = random.Random(5), Lock()

    def flaps(_: Request) -> tuple[int, bytes]:
        with lock:
            return randomness.choice([200, 200, 500, 503, 429]), b""

    with partner() as shop:
        shop.respond = flaps
        running = office(http_port("Shop", shop.address, retry={"count": 50, "interval": 60}))
        messages = publish_to(running, "Shop", [str(n) for n in range(HUNDREDS)])

        until(lambda: jumped(running).agent.statistics().ports["Shop"] == HUNDREDS, 120)
        assert running.suspended() == []
        assert {each.body for each in shop.requests} == {message.body for message in messages}


@pytest.mark.slow
def test_ordered_port_keeps_its_order_at_a_partner_that_comes_and_goes(office: Opened) -> None:
    randomness, accepted = random.Random(6), []

    def flaps(request: Request) -> tuple[int, bytes]:
        status = randomness.choice([200, 200, 500, 503, 429])
        if status == 200:
            accepted.append(request.body)
        return status, b""

    with partner() as shop:
        shop.respond = flaps
        running = office(http_port("Shop", shop.address, ordered=True, retry={"count": 50, "interval": 60}))
        messages = publish_to(running, "Shop", [str(n) for n in range(ORDERED)])

        until(lambda: jumped(running).agent.statistics().ports["Shop"] == ORDERED, 120)
        assert accepted == [message.body for message in messages]
        assert list(dict.fromkeys(each.body for each in shop.requests)) == accepted
        assert len(shop.requests) > ORDERED
        assert running.suspended() == []


def test_partner_that_refuses_one_in_ten_gets_the_others_and_those_when_it_has_changed_its_mind(
    office: Opened,
) -> None:
    with partner() as shop:
        shop.respond = lambda request: (422 if request.body.endswith(b"7") else 200, b"no sevens")
        running = office(http_port("Shop", shop.address))
        messages = publish_to(running, "Shop", [f"{n:04}" for n in range(HUNDREDS)])
        refused = [message.id for message in messages if message.body.endswith(b"7")]

        until(lambda: jumped(running).agent.statistics().ports["Shop"] == HUNDREDS - len(refused), 60)
        eventually(lambda: sorted(row.id for row in running.agent.suspended.messages()), sorted(refused))
        assert all("no sevens" in row.reason for row in running.agent.suspended.messages())
        shop.respond = None
        running.agent.suspended.resume(refused)

        until(lambda: jumped(running).agent.statistics().ports["Shop"] == HUNDREDS, 60)
        assert running.suspended() == []
        assert Counter(each.body for each in shop.requests) == Counter(
            body for message in messages for body in [message.body] * (2 if message.id in refused else 1)
        )


# Neighbours


@pytest.mark.parametrize("hanging", [1, 5])
def test_ports_beside_a_partner_that_hangs_do_not_notice(
    office: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: int
) -> None:
    hosts = hosts_of(monkeypatch)
    well, each = Event(), HUNDREDS // hanging

    def hang(_: Request) -> tuple[int, bytes]:
        assert well.wait(300)
        return 200, b""

    with ExitStack() as stack:
        stack.callback(well.set)
        shops = [stack.enter_context(partner()) for _ in range(hanging)]
        names = [f"Shop {n}" for n in range(hanging)]
        for shop in shops:
            shop.respond = hang
        ports = [
            http_port(name, shop.address, options={"timeout": 200}) for name, shop in zip(names, shops, strict=True)
        ]
        running = office(*ports, file_port())
        before = workers()
        for name in names:
            publish_to(running, name, [str(n) for n in range(each)])
        until(lambda: all(len(shop.requests) >= 8 for shop in shops), 30)

        publish_to(running, "Files", [str(n) for n in range(HUNDREDS)])
        until(lambda: len(written(tmp_path / "Files")) == HUNDREDS, 30)

        assert not any(count for name, count in running.agent.statistics().ports.items() if name in names)
        assert workers() - before <= 24 * hanging
        until(lambda: hosts[0].in_hand <= 24 * hanging, 30)  # 8 before it was known as slow, 8 since, 8 that wait
        assert all(len(shop.requests) <= 16 for shop in shops)
        well.set()
        until(lambda: all(jumped(running).agent.statistics().ports[name] == each for name in names), 120)
        assert [len(shop.requests) for shop in shops] == [each] * hanging


def workers() -> int:
    return sum(1 for thread in threading.enumerate() if "-deliver-" in thread.name)


def hosts_of(monkeypatch: pytest.MonkeyPatch) -> list[HostInstance]:
    """The host instances that start from now on."""
    started: list[HostInstance] = []
    start = HostInstance.start

    def noted(host: HostInstance) -> None:
        started.append(host)
        start(host)

    monkeypatch.setattr(HostInstance, "start", noted)
    return started


class Counting:
    """How many requests a partner has at once, at most; those that are slow wait until there are enough, or a moment."""

    def __init__(self, *, slow: float) -> None:
        self._slow = slow
        self._lock = Lock()
        self._now = 0
        self.most = 0

    def __call__(self, _: Request) -> tuple[int, bytes]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        Event().wait(self._slow)
        with self._lock:
            self._now -= 1
        return 200, b""


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("slow", [0, 0.12])
def test_partner_is_never_given_more_at_once_than_its_port_allows(office: Opened, limit: int, slow: float) -> None:
    many = HUNDREDS if slow == 0 else 12
    with partner() as shop:
        shop.respond = counting = Counting(slow=slow)
        grouped = [{"name": "All", "filter": "To = 'Shop'", "ports": ["Shop"]}]
        running = office(http_port("Shop", shop.address, in_flight=limit), send_port_groups=grouped)

        publish_to(running, "Shop", [str(n) for n in range(many)])

        until(lambda: jumped(running).agent.statistics().ports == {"Shop": many, "All/Shop": many}, 60)
        assert counting.most == limit if slow else counting.most <= limit
        assert len(shop.requests) == 2 * many


# States


@pytest.mark.slow
def test_states_that_change_while_messages_are_published_strand_nothing(office: Opened, tmp_path: Path) -> None:
    with partner() as shop:
        ports = [{**file_port(name), "filter": "To = 'All'"} for name in ("A", "B")]
        ports += [http_port(name, f"{shop.address}/{name}") for name in ("C", "D")]
        running = office(*ports, send_port_groups=[{"name": "All", "filter": "To = 'All'", "ports": ["C", "D"]}])
        over = Event()

        def change() -> None:
            randomness = random.Random(8)
            with Agent(running.agent.database) as agent:
                for _ in range(ROUNDS):
                    verb = randomness.choice(
                        [
                            agent.subscriptions.stop,
                            agent.subscriptions.start,
                            agent.subscriptions.start,
                            agent.subscriptions.enlist,
                            agent.subscriptions.unenlist,
                        ]
                    )
                    with suppress(UsageError):
                        verb(randomness.choice(["A", "B", "C", "D", "All"]))
            over.set()

        changing = Thread(target=change)
        changing.start()
        messages: list[Message] = []
        while not over.is_set():
            messages += publish_to(running, "All", ["content"] * 5)
        changing.join()
        running.settled()
        got, held = delivered(tmp_path, shop), suspended(running)
        unrouted = {str(row.id) for row in running.agent.suspended.messages() if row.kind == "unrouted"}

        assert set((got + held).values()) == {1}
        assert {id_ for _, id_ in got + held} == {str(message.id) for message in messages} - unrouted
        assert len(unrouted) + len(held) == len(running.suspended())
        assert min(len(got), len(held), len(unrouted)) > 0

        for name in ("A", "B", "C", "D", "All"):
            running.agent.subscriptions.start(name)
        assert suspended(running) == Counter()
        running.agent.route_again([row.id for row in running.agent.suspended.messages()])
        running.settled()
        until(lambda: jumped(running).agent.statistics().waiting == 0, 60)
        running.settled()
        expected = got + held + Counter((port, id_) for port in "ABCD" for id_ in unrouted)
        assert (delivered(tmp_path, shop), running.suspended()) == (expected, [])


def delivered(folder: Path, shop: Partner) -> Counter[tuple[str, str]]:
    """How often each message was delivered at each port."""
    files = [(name, file) for name in ("A", "B") for file in written(folder / name)]
    return Counter(files + [(each.path[1:], each.headers["X-Crossdock-Message-ID"]) for each in shop.requests])


def suspended(running: Office) -> Counter[tuple[str, str]]:
    """How many references of each message wait at each port."""
    found = [(row.port.rpartition("/")[2], str(row.id)) for row in running.agent.suspended.messages() if row.port]
    return Counter(found)
