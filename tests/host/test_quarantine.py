"""What a dead instance had in hand is delivered in quarantine, which neither breaks an order nor holds up others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from crossdock.errors import TransientError
from crossdock.host.instance import HostInstance
from crossdock.host.outcome import Complete, Retry
from crossdock.messagebox.agent import Agent
from express import deploy, port, publish, rows, unbalanced
from office import Office
from service import Partner, publish_named, quick_upkeep, running, running_all
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


def has_died(database: str, deaths: int, where: str = "true") -> None:
    """Processes have ended that had the references in hand."""
    with psycopg.connect(database, options="-csearch_path=crossdock", autocommit=True) as connection:
        connection.execute(f"UPDATE queue SET deaths = {deaths} WHERE {where}")


def test_line_whose_first_message_could_not_be_noted_when_its_instance_stopped_keeps_its_order(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "a", "b", "c")
    has_died(database, 1)
    partner, host = Partner(), agent.configuration.hosts()["Default"]
    tried, stopped, leave = Event(), Event(), Event()

    def away(*_: Any) -> bool:
        tried.set()
        raise TransientError("The MessageBox cannot be reached.")

    instance = HostInstance(agent, host, lambda _: partner, limits=quick_upkeep(reconnect_seconds=0.5))
    end = instance._lifeline.end

    def end_late() -> None:
        stopped.set()
        leave.wait(30)
        end()

    monkeypatch.setattr(instance._lifeline, "end", end_late)
    with monkeypatch.context() as patch:
        patch.setattr(agent.queues, "note_deliveries", away)
        instance.start()
        assert tried.wait(10)
        stopping = Thread(target=instance.stop)
        stopping.start()
        assert stopped.wait(15)
    with running(agent, partner):
        until(lambda: len(partner.got) == 3, 15)
        leave.set()
        stopping.join()

    assert partner.got == ["a", "b", "c"]
    assert unbalanced(database) == []


def test_delivery_that_hangs_alone_holds_up_neither_other_services_nor_lines_for_long(
    agent: Agent, database: str
) -> None:
    quick_ports = [port(name, f"Region = '{name}'", ordered=name != "Quick") for name in ("Quick", "Line", "Healthy")]
    deploy(agent, port("Hangs", "Region = 'NO'"), *quick_ports)
    for region in ("NO", "Quick", "Line", "Healthy"):
        publish(agent, {"Region": region})
    ids = {name: id_ for id_, name in rows(database, "SELECT id, name FROM service")}
    has_died(database, 1, f"service_id <> {ids['Healthy']}")
    has_died(database, 2, f"service_id = {ids['Hangs']}")
    began, go = Event(), Event()

    def hang(*_: Any) -> Complete:
        began.set()
        go.wait(30)
        return Complete()

    partners = {ids[name]: Partner() for name in ("Quick", "Line", "Healthy")}
    with running_all(agent, {ids["Hangs"]: Partner(hang), **partners}, quarantine_seconds=0.5):
        assert began.wait(10)
        until(lambda: all(partner.got for partner in partners.values()), 10)
        go.set()


def test_message_of_a_line_that_was_tried_and_ended_nothing_is_an_ordinary_one_again(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "a", "b")
    has_died(database, 3)

    with running(agent, Partner(lambda *_: Retry(timedelta(minutes=5), "down"))):
        until(lambda: rows(database, "SELECT FROM queue WHERE attempt = 1") != [], 10)

    assert rows(database, "SELECT attempt, deaths FROM queue ORDER BY sequence") == [(1, 0), (0, 3)]


def test_what_a_killed_process_left_half_written_is_taken_away(database: str, tmp_path: Path) -> None:
    ports = [
        {"name": name, "adapter": "file", "address": f"{name}/%MessageID%.txt", "filter": "EXISTS(To)", **more}
        for name, more in {"plain": {}, "line": {"ordered": True}}.items()
    ]
    office = Office(
        database, tmp_path, {"properties": {"To": "text"}, "send_ports": ports}, host_limits=quick_upkeep(workers=8)
    )
    office.publish(b"content", To="Shop")
    [(message,)] = rows(database, "SELECT id FROM message")
    for name in ("plain", "line"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f".crossdock-{message}-12345678").write_bytes(b"con")
    has_died(database, 1)

    with office.open():
        until(lambda: rows(database, "SELECT FROM queue UNION ALL SELECT FROM claimed") == [], 20)

    for name in ("plain", "line"):
        assert [path.name for path in (tmp_path / name).iterdir()] == [f"{message}.txt"]
