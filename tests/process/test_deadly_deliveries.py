"""Deliveries that end their process: each is found and suspended, and whoever was only in hand is delivered."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Barrier, Event, Lock

import pytest

from box import count
from crossdock.host.outcome import Complete, Outcome, Retry, Suspend
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.lifeline import INSTANCE_LOCK
from crossdock.messagebox.rows import Reference
from express import claim, deploy, kinds, living, port, rows, unbalanced
from office import Office, eventually, free_port, written
from service import Partner, publish_named, quick_upkeep, running, running_all, settled
from walk import CROSSDOCK, until

pytestmark = pytest.mark.usefixtures("no_grace")

REASON = "The process that delivered it has ended 4 times; it was not tried again."
DEADLY = """
import os

def die(message):
    if b"die" in bytes(message.body):
        os._exit(9)
    return message
"""


def died(agent: Agent, database: str, *, delivering: Callable[[Reference], bool] = lambda _: False) -> None:
    """An instance claims everything that is ready, and dies while it delivers some of that."""
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        taken = claim(agent, life)
        while line := agent.queues.dequeue_ordered(host, life.instance, limit=1_000):
            taken += line
        assert agent.queues.note_deliveries(life.instance, [each.sequence for each in taken if delivering(each)])

    def freed() -> bool:
        agent.queues.release_dead(host)
        return count(database, "claimed") == 0

    until(freed, 10)


def test_kill_takes_no_attempt_from_what_was_only_in_hand(database: str, tmp_path: Path) -> None:
    shop = {"name": "Shop", "adapter": "http", "address": f"http://127.0.0.1:{free_port()}", "filter": "To = 'Shop'"}
    retry = {"count": 3, "interval": 60}
    application = {"properties": {"To": "text"}, "send_ports": [{**shop, "retry": retry}]}
    office = Office(database, tmp_path, application, host_limits=quick_upkeep(workers=8))
    office.publish(b"content", To="Shop")
    for _ in range(5):
        died(office.agent, database)
    assert rows(database, "SELECT attempt, deaths FROM queue") == [(0, 1)]

    with office.open():
        eventually(lambda: rows(database, "SELECT attempt FROM scheduled"), [(1,)])

    assert office.suspended() == []


@pytest.mark.process
def test_delivery_that_ends_its_process_is_suspended_and_the_others_are_delivered(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    deadly = {"pipeline": {"components": ["deadly:die"]}}
    office = Office(
        database,
        tmp_path,
        {
            "properties": {"To": "text"},
            "send_ports": [
                {"name": "Bad", "adapter": "file", "address": "bad/%MessageID%", "filter": "To = 'Bad'", **deadly},
                {"name": "Good", "adapter": "file", "address": "good/%MessageID%", "filter": "To = 'Good'"},
            ],
        },
    )
    bodies = [b"die" if n == 5 else b"live" for n in range(10)]
    messages = [office.publish(body, To=to) for body in bodies for to in ("Bad", "Good")]
    [guilty] = [each.id for each in messages[::2] if each.body == b"die"]

    codes = []
    while not kinds(office.agent):
        host = subprocess.Popen([CROSSDOCK, "host", "Default", "--database", database])
        until(partial(ended_or_suspended, host, office.agent), 60)
        if host.poll() is None:
            office.settled()
            host.terminate()
        codes.append(host.wait(60))

    assert codes == [9, 9, 9, 9, 0]
    assert [(row.id, row.kind, row.reason) for row in office.agent.suspended.messages()] == [(guilty, "send", REASON)]
    assert (len(written(tmp_path / "bad")), len(written(tmp_path / "good"))) == (9, 10)
    assert unbalanced(database) == []
    office.agent.suspended.resume([guilty])
    assert rows(database, "SELECT attempt, deaths FROM queue") == [(0, 0)]


def ended_or_suspended(process: subprocess.Popen[bytes], agent: Agent) -> bool:
    return process.poll() is not None or bool(kinds(agent))


def test_what_a_dead_instance_had_is_delivered_one_of_a_service_at_a_time(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"))
    publish_named(agent, *(f"{n}" for n in range(20)))
    died(agent, database)
    both, counting, most, at_work = Barrier(2, timeout=30), Lock(), [0], [0]

    class Counted(Partner):
        def __init__(self) -> None:
            super().__init__(self._count)
            self.busy = Lock()

        def _count(self, _: str, __: int) -> Outcome:
            assert self.busy.acquire(blocking=False), "another of this service is being delivered"
            with counting:
                at_work[0] += 1
                most[0] = max(most[0], at_work[0])
            if not self.got:
                both.wait()  # the first of both at once
            with counting:
                at_work[0] -= 1
            self.busy.release()
            return Complete()

    services = {service: Counted() for (service,) in rows(database, "SELECT id FROM service")}
    with running_all(agent, services):
        until(lambda: settled(agent), 30)

    assert most == [2]
    assert agent.statistics().ports == {"A": 20, "B": 20}
    assert unbalanced(database) == []


def test_what_was_being_delivered_when_two_processes_died_is_tried_alone(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'NO'"), port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "1", "2")
    died(agent, database)
    died(agent, database, delivering=lambda each: each.message.body == b"1")
    assert sorted(rows(database, "SELECT deaths FROM queue")) == [(1,)] * 3 + [(2,)] * 3
    counting = Lock()
    at_work: list[str] = []
    beside: list[tuple[str, ...]] = []

    def answer(name: str, _: int) -> Outcome:
        with counting:
            at_work.append(name)
            beside.append(tuple(at_work))
        Event().wait(0.01)
        with counting:
            at_work.remove(name)
        return Complete()

    partner = Partner(answer)
    with running(agent, partner):
        until(lambda: settled(agent), 30)

    assert kinds(agent) == []
    assert sorted(partner.got) == ["1"] * 3 + ["2"] * 3
    assert [each for each in beside if "1" in each] == [("1",)] * 3


def test_deadly_message_stops_the_line_of_a_port_that_stops_on_failure(agent: Agent, database: str) -> None:
    class Stopping(Partner):
        stops_on_failure = True

    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "0", "1", "2")
    for _ in range(4):
        died(agent, database, delivering=lambda each: each.message.body == b"1")
    partner = Stopping()

    with running(agent, partner):
        until(lambda: kinds(agent) == [("send", "Line")], 30)
        [row] = agent.suspended.messages()
        assert (row.reason, partner.got) == (REASON, ["0"])
        agent.suspended.resume([row.id])
        until(lambda: partner.got == ["0", "1", "2"], 30)


def test_lost_connection_is_no_death(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, *(f"{n}" for n in range(5)))
    begun, go = Event(), Event()

    def hang(_: str, __: int) -> Outcome:
        begun.set()
        assert go.wait(60)
        return Suspend("refused")

    with running(agent, Partner(hang), workers=2), ExitStack() as stack:
        stack.callback(go.set)
        for _ in range(3):
            assert begun.wait(20)
            begun.clear()
            [(before,)] = rows(database, "SELECT array_agg(id) FROM host_instance")
            held = (
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s::integer::oid AND objsubid = 2"
            )
            rows(database, f"SELECT pg_terminate_backend(pid) FROM ({held}) AS living", INSTANCE_LOCK)
            until(partial(nothing_claimed_by, before, database), 20)

        assert rows(database, "SELECT FROM queue WHERE deaths > 0 OR attempt > 0") == []
        assert rows(database, "SELECT DISTINCT deaths, attempt FROM claimed") == [(0, 0)]


def nothing_claimed_by(instances: list[int], database: str) -> bool:
    return not rows(database, "SELECT FROM claimed WHERE claimed_by = ANY (%s)", instances)


def test_delivery_from_quarantine_that_fails_is_tried_again_like_any_other(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "1")
    died(agent, database)

    with running(agent, Partner(lambda _, __: Retry(timedelta(hours=1), "down"))):
        until(lambda: rows(database, "SELECT FROM scheduled") != [], 30)

    assert rows(database, "SELECT attempt, reason FROM scheduled") == [(1, "down")]
