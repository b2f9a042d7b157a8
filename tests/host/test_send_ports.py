"""Send ports at work: retries at their times, windows, order, failures that are routed."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from box import count
from crossdock.adapter.file.adapter import FileSendAdapter
from crossdock.message.message import Message
from express import rows, unbalanced
from office import Office, eventually, written
from service import quick_upkeep
from walk import until

Opened = Callable[..., Office]


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Opened]:
    """Opens an application with these send ports; at the end the books must balance."""
    opened: list[Any] = []

    def made(*ports: dict[str, Any], **application: Any) -> Office:
        properties = {"Region": "text", **application.pop("properties", {})}
        office = Office(
            database,
            tmp_path,
            {"properties": properties, "send_ports": list(ports), **application},
            host_limits=quick_upkeep(workers=8),
        )
        context = office.open()
        opened.append(context)
        context.__enter__()
        return office

    yield made
    for context in opened:
        context.__exit__(None, None, None)
    assert unbalanced(database) == []


def file_port(name: str = "Out", folder: str = "out", **more: Any) -> dict[str, Any]:
    """A port into `folder`, which is made when it is written to."""
    return {"name": name, "adapter": "file", "address": f"{folder}/%MessageID%", "filter": "Region = 'NO'", **more}


def block(folder: Path) -> None:
    """Nothing can be written there: it is no folder."""
    folder.write_bytes(b"in the way")


def test_delivery_that_fails_is_tried_three_times_five_minutes_apart_then_suspended(
    office: Opened, tmp_path: Path
) -> None:
    block(tmp_path / "out")
    running = office(file_port())
    message = running.publish(Region="NO")
    for attempt in range(3):
        eventually(lambda: running.port("Out")["waiting"], 1)
        running.clock.jump(minutes=4, seconds=50)
        running.settled()
        assert running.port("Out")["waiting"] == 1, f"attempt {attempt + 2} came too soon"
        running.clock.jump(seconds=15)
        eventually(lambda: attempts(running), attempt + 2 if attempt < 2 else 0)

    eventually(running.suspended, [("send", "Out")])
    [row] = running.agent.suspended.messages()
    assert "gave up after 4 attempts" in row.reason
    (tmp_path / "out").unlink()
    running.agent.suspended.resume([message.id])
    eventually(lambda: written(tmp_path / "out"), {str(message.id): b"content"})


def attempts(running: Office) -> int:
    """Of the delivery that waits for its next one; 0 if none does."""
    found = rows(running.agent.database, "SELECT attempt FROM scheduled")
    return int(found[0][0]) if found else 0


def test_port_with_its_own_retry_tries_as_often_as_it_says(office: Opened, tmp_path: Path) -> None:
    block(tmp_path / "out")
    running = office(file_port(retry={"count": 1, "interval": 3600}))
    running.publish(Region="NO")
    eventually(lambda: running.port("Out")["waiting"], 1)

    running.clock.jump(minutes=61)

    eventually(running.suspended, [("send", "Out")])


def test_port_without_retries_suspends_at_once(office: Opened, tmp_path: Path) -> None:
    block(tmp_path / "out")
    running = office(file_port(retry={"count": 0}))

    running.publish(Region="NO")

    eventually(running.suspended, [("send", "Out")])
    [row] = running.agent.suspended.messages()
    assert "gave up after 1 attempt:" in row.reason


def test_outside_its_service_window_a_port_waits_and_that_is_no_attempt(office: Opened, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    window = {"from": f"{now + timedelta(hours=2):%H:%M}", "to": f"{now + timedelta(hours=3):%H:%M}"}
    running = office(file_port(service_window=window))
    message = running.publish(Region="NO")
    eventually(lambda: running.port("Out")["waiting"], 1)
    assert attempts(running) == 0

    running.clock.jump(hours=2, minutes=1)

    eventually(lambda: written(tmp_path / "out"), {str(message.id): b"content"})


def test_failure_that_is_routed_reaches_whoever_wants_it_and_is_not_suspended(office: Opened, tmp_path: Path) -> None:
    block(tmp_path / "out")
    running = office(
        file_port(retry={"count": 0}, failed_messages="route"),
        file_port("Errors", "errors", filter="ErrorReport.SendPortName = 'Out'"),
    )

    message = running.publish("important", Region="NO")

    until(lambda: len(written(tmp_path / "errors")) == 1)
    [(name, content)] = written(tmp_path / "errors").items()
    assert (content, name != str(message.id), running.suspended()) == (b"important", True, [])
    eventually(lambda: running.agent.statistics().ports, {"Out": 0, "Errors": 1})


def test_failure_that_would_be_routed_and_nobody_wants_is_suspended(office: Opened, tmp_path: Path) -> None:
    block(tmp_path / "out")
    running = office(file_port(retry={"count": 0}, failed_messages="route"))

    running.publish(Region="NO")

    eventually(running.suspended, [("send", "Out")])


def test_ordered_port_that_stops_on_failure_waits_until_the_failed_message_is_dealt_with(
    office: Opened, tmp_path: Path
) -> None:
    block(tmp_path / "out")
    running = office(file_port(ordered=True, stop_on_failure=True, retry={"count": 0}))
    first, second, third = (running.publish(str(n), Region="NO") for n in range(3))
    eventually(running.suspended, [("send", "Out")])
    (tmp_path / "out").unlink()
    assert running.agent.statistics().waiting == 2
    assert written(tmp_path / "out") == {}

    running.agent.suspended.resume([first.id])

    eventually(lambda: list(written(tmp_path / "out")), sorted(str(each.id) for each in (first, second, third)))


def test_ordered_port_goes_on_when_the_message_that_stopped_it_is_terminated(office: Opened, tmp_path: Path) -> None:
    block(tmp_path / "out")
    running = office(file_port(ordered=True, stop_on_failure=True, retry={"count": 0}))
    first, second = (running.publish(str(n), Region="NO") for n in range(2))
    eventually(running.suspended, [("send", "Out")])
    (tmp_path / "out").unlink()

    running.agent.suspended.terminate([first.id])

    eventually(lambda: list(written(tmp_path / "out")), [str(second.id)])


def test_ordered_port_that_does_not_stop_leaves_a_gap(office: Opened, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    running = office(file_port(ordered=True, address="out/%SourceFileName%"))
    (tmp_path / "out" / "taken").write_bytes(b"somebody else's")

    running.publish("refused", Region="NO", FILE__ReceivedFileName="taken")
    running.publish("fine", Region="NO", FILE__ReceivedFileName="free")

    eventually(lambda: written(tmp_path / "out").get("free"), b"fine")
    eventually(running.suspended, [("send", "Out")])


def test_map_and_pipeline_of_a_port_make_what_goes_out(office: Opened, tmp_path: Path) -> None:
    (tmp_path / "shout.py").write_text("def loudly(body: bytes) -> bytes:\n    return body.upper()\n")
    running = office(
        file_port(
            maps=[{"from": "Note", "function": "shout:loudly"}], pipeline={"encode": ["gzip"], "charset": "latin-1"}
        )
    )

    message = running.publish("grüße", Region="NO", BTS__MessageType="Note")

    until(lambda: str(message.id) in written(tmp_path / "out"))
    assert (
        gzip.decompress(written(tmp_path / "out")[str(message.id)]).decode("latin-1")
        == "grüße".encode().upper().decode()
    )


def test_message_for_a_port_by_its_transport_id_reaches_it_once_and_others_by_their_filters(
    office: Opened, tmp_path: Path
) -> None:
    running = office(
        file_port("Bound", "bound"), file_port("Unfiltered", "unfiltered", filter=None), file_port("Other", "other")
    )

    running.publish("only by name", to="Unfiltered", Region="SE")
    running.publish("by name and filter", to="Bound", Region="NO")

    eventually(lambda: list(written(tmp_path / "unfiltered").values()), [b"only by name"])
    eventually(lambda: list(written(tmp_path / "bound").values()), [b"by name and filter"])
    eventually(lambda: list(written(tmp_path / "other").values()), [b"by name and filter"])


def test_stopped_port_is_given_nothing_and_goes_on_where_it_was_when_it_starts(
    office: Opened, tmp_path: Path, database: str
) -> None:
    running = office(file_port())
    running.agent.subscriptions.stop("Out")
    for n in range(20):
        running.publish(str(n), Region="NO")
    assert len(running.suspended()) == 20

    running.agent.subscriptions.start("Out")

    until(lambda: len(written(tmp_path / "out")) == 20)
    running.settled()
    assert count(database, "suspended") == 0


def test_bug_in_an_adapter_stops_the_line_like_any_other_failure(
    office: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = FileSendAdapter.send

    def send(self: FileSendAdapter, message: Message, *, attempt: int) -> None:
        if message.body == b"1":
            raise KeyError("a bug")
        sent(self, message, attempt=attempt)

    monkeypatch.setattr(FileSendAdapter, "send", send)
    running = office(file_port(ordered=True, stop_on_failure=True))

    running.publish("1", to="Out")
    running.publish("2", to="Out")
    until(lambda: running.suspended() == [("send", "Out")])

    until(
        lambda: rows(running.settings.database or "", "SELECT FROM subqueue_lease WHERE blocked_by IS NOT NULL") != []
    )
    assert written(tmp_path / "out") == {}
