"""What hosts promise about waiting, throttling, suspension and change, tried under load."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from box import count
from crossdock.errors import UsageError
from crossdock.message.message import Part
from crossdock.messagebox.agent import Agent
from express import a_message, at_ports, deploy, kinds, port, publish, rows, unbalanced
from office import free_port
from partner import Request, partner
from service import Partner, running, running_all, settled
from two_way import a_shop, application, ask, offices, shop_port
from walk import until


def test_request_is_answered_while_the_memory_of_its_host_is_full_of_slow_deliveries(
    database: str, tmp_path: Path
) -> None:
    go = Event()

    def hang(_: Request) -> tuple[int, bytes]:
        go.wait(120)
        return 200, b""

    at = free_port()
    with a_shop() as shop, partner() as slow, offices(database, tmp_path) as opened:
        slow.respond = hang
        names = [f"Slow{n}" for n in range(12)]
        slowly = {"adapter": "http", "address": slow.address, "filter": "ReceiptId = 'slow'"}
        office = opened(application(at, shop_port(shop), *({"name": name, **slowly} for name in names)))
        publish(office.agent, *[{"ReceiptId": "slow"}] * 400)
        until(lambda: len(slow.requests) >= 12 * 8, 60)

        began = monotonic()
        answers = [ask(at, str(number)) for number in range(10)]

        assert monotonic() - began < 2
        assert [answer.json() for answer in answers] == [{"receipt": str(number)} for number in range(10)]
        assert sum(at_ports(office.agent).values()) > 4_000
        go.set()


@pytest.mark.usefixtures("no_grace")
def test_suspended_messages_do_not_throttle_live_ones(agent: Agent, database: str) -> None:
    deploy(agent, port("Stopped", "Region = 'NO'"), port("Works", "Region = 'SE'"))
    agent.subscriptions.stop("Stopped")
    publish(agent, *[{"Region": "NO"}] * 6_000)
    assert count(database, "suspended") == 6_000
    partner = Partner()

    with running(agent, partner) as made:
        for _ in range(20):
            publish(agent, *[{"Region": "SE"}, {"Region": "NO"}] * 10)
        until(lambda: len(partner.got) == 200, 30)
        [host] = [row for row in agent.configuration.list_hosts() if row.name == "Default"]
        assert [each.state for each in host.instances] == ["running"]
        until(lambda: made.in_hand == 0, 30)

    assert at_ports(agent, "suspended") == {"Stopped": 6_200}
    assert unbalanced(database) == []


@pytest.mark.parametrize("threads", [1, 5])
def test_threads_that_dequeue_and_their_polling_interval_are_those_of_the_service_class(
    agent: Agent, database: str, threads: int
) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    changed = (
        "UPDATE service_class SET dequeue_threads = %s, polling_interval = %s WHERE name = 'messaging' RETURNING 1"
    )
    rows(database, changed, threads, "20 milliseconds")
    partner = Partner()

    with running(agent, partner):
        until(lambda: len(dequeue_threads(agent)) == threads, 10)
        began = monotonic()
        for _ in range(20):
            silently_published(agent, database)
            assert partner.heard.wait(10)
            partner.heard.clear()

    assert monotonic() - began < 20 * 0.2, "it would take 5 s at the interval that is given"
    assert dequeue_threads(agent) == []


def dequeue_threads(agent: Agent) -> list[str]:
    prefix = f"host-{agent.configuration.hosts()['Default']}-dequeue-"
    return [each.name for each in threading.enumerate() if each.name.startswith(prefix)]


def silently_published(agent: Agent, database: str) -> None:
    """Published to nobody and moved to the port, so that no instance is called."""
    publish(agent, {"Region": "nobody"})
    moved = """
        WITH unrouted AS (DELETE FROM suspended RETURNING *)
        INSERT INTO queue (host_id, priority, message_id, subscription_id, service_id)
        SELECT unrouted.host_id, 5, message_id, subscription.id, subscription.service_id FROM unrouted, subscription RETURNING 1
    """
    assert rows(database, moved) == [(1,)]


@pytest.mark.usefixtures("no_grace")
def test_ports_change_their_state_under_load_and_an_ordered_one_keeps_its_order(agent: Agent, database: str) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True), port("Free", "Region = 'NO'"))
    partners = {"Line": Partner(), "Free": Partner()}
    services = {service: partners[name] for service, name in rows(database, "SELECT id, name FROM service")}
    done = Event()

    def publish_on() -> int:
        number = 0
        with Agent(database) as publisher:
            while not done.is_set():
                numbered = [Part("body", f"{number + n:06}".encode()) for n in range(5)]
                publish(publisher, *(a_message(publisher, {"Region": "NO"}, parts=[each]) for each in numbered))
                number += 5
        return number

    def change(name: str) -> None:
        with Agent(database) as operator:
            for _ in range(12):
                operator.subscriptions.stop(name)
                operator.subscriptions.start(name)
                operator.subscriptions.unenlist(name)
                with pytest.raises(UsageError):
                    operator.subscriptions.stop(name)
                operator.subscriptions.enlist(name)
                operator.subscriptions.start(name)

    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            mine = stack.enter_context(Agent(database))
            stack.enter_context(running_all(mine, services))
        publishing = pool.submit(publish_on)
        try:
            for changing in [pool.submit(change, name) for name in partners]:
                changing.result()
        finally:
            done.set()
        sent = publishing.result()
        until(lambda: settled(agent), 60)

    line, free = partners["Line"].got, partners["Free"].got
    unrouted = sum(kind == "unrouted" for kind, _ in kinds(agent))
    assert line == sorted(set(line))
    assert max(Counter(free).values()) == 1
    assert len({*line, *free}) + unrouted == sent
    assert [each for each in kinds(agent) if each[0] != "unrouted"] == []
    assert agent.statistics().ports == {"Line": len(line), "Free": len(free)}
    assert rows(database, "SELECT held_by, blocked_until FROM subqueue_lease") == [(None, None)]
    assert unbalanced(database) == []
