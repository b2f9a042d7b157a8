"""Pushed adapters of an application's own, in a host that runs: the line listener of examples/, and clumsy ones."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crossdock.application import pushed
from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.errors import ApplicationError
from office import Office, eventually, free_port, written
from two_way import Opened, a_shop, offices, shop_port
from walk import until

EXAMPLES = Path(__file__).parents[2] / "examples"
OUT = {"name": "Out", "adapter": "file", "address": "out/%OrderId%.json", "filter": "MessageType = 'Order'"}
CLUMSY = """
import sys

class Clumsy:
    def __init__(self, address): self.address = address
    def start(self, receiver): sys.exit(self.address)
    def close(self): sys.exit(1)
    def stop(self, seconds): sys.exit(1)

class Half:
    def __init__(self, address): ...
    def start(self, receiver): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLES / "lines.py", tmp_path)
    (tmp_path / "clumsy.py").write_text(CLUMSY)
    return tmp_path


@pytest.fixture
def office(database: str, folder: Path) -> Iterator[Opened]:
    with offices(database, folder) as opened:
        yield opened


def application(*locations: dict[str, Any], ports: tuple[dict[str, Any], ...] = (OUT,), **port: Any) -> dict[str, Any]:
    shared = {"adapter": "lines:LineListener", "pipeline": "json", "schema": "Order"}
    named = [{**shared, "name": f"Lines{number}", **each} for number, each in enumerate(locations)]
    return {
        "properties": {"OrderId": "text", "ReceiptId": "text"},
        "schemas": [
            {"type": "Order", "format": "json", "promote": {"OrderId": "$.id"}},
            {"type": "Receipt", "format": "json", "promote": {"ReceiptId": "$.receipt"}},
        ],
        "receive_ports": [{"name": "Lines", "locations": named, **port}],
        "send_ports": list(ports),
    }


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._answers = self.socket.makefile("rb")

    def tell(self, line: bytes) -> str:
        """The answer; empty if there is none."""
        self.socket.sendall(line + b"\n")
        return self._answers.readline().decode().rstrip("\n")


@contextmanager
def connected(port: int) -> Iterator[Client]:
    client = Client(port)
    with client.socket:
        yield client


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def test_lines_are_answered_once_they_are_committed_and_delivered(office: Opened, folder: Path) -> None:
    port = free_port()
    running = office(application({"address": f"127.0.0.1:{port}"}))

    with connected(port) as client:
        answers = [client.tell(b'{"id": "%d"}' % number) for number in range(3)]
        refused = client.tell(b"no document")

    assert [answer.split()[0] for answer in answers] == ["ok"] * 3
    assert refused.startswith("error ")
    eventually(lambda: sorted(written(folder / "out")), ["0.json", "1.json", "2.json"])
    running.settled()
    assert running.suspended() == []


def test_context_says_where_a_line_came_from(office: Opened, folder: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    filter_ = f"InboundTransportType = 'LineListener' AND InboundTransportLocation = '{address}'"
    office(application({"address": address}, ports=({**OUT, "filter": filter_},)))

    with connected(port) as client:
        client.tell(b'{"id": "1"}')

    eventually(lambda: list(written(folder / "out")), ["1.json"])


def test_line_to_a_two_way_port_is_answered_by_the_partner(office: Opened) -> None:
    port = free_port()
    with a_shop() as shop:
        office(application({"address": f"127.0.0.1:{port}"}, ports=(shop_port(shop),), two_way=True))

        with connected(port) as client:
            answers = [json.loads(client.tell(b'{"id": "%d"}' % number)) for number in range(3)]

    assert answers == [{"receipt": "0"}, {"receipt": "1"}, {"receipt": "2"}]


def test_location_that_changes_begins_anew_and_the_others_keep_their_connections(office: Opened) -> None:
    one, two, moved = free_port(), free_port(), free_port()
    running = office(application({"address": f"127.0.0.1:{one}"}, {"address": f"127.0.0.1:{two}"}))

    with connected(one) as client, connected(two) as other:
        client.tell(b'{"id": "1"}')
        running.deploy(application({"address": f"127.0.0.1:{one}"}, {"address": f"127.0.0.1:{moved}"}))
        until(lambda: listens(moved))
        kept, gone = client.tell(b'{"id": "2"}'), other.tell(b'{"id": "3"}')
        running.deploy(application({"address": f"127.0.0.1:{one}", "options": {"timeout": 5}}))
        until(lambda: not listens(moved))
        until(lambda: listens(one))

    assert (kept.split()[0], gone, listens(two)) == ("ok", "", False)


def test_place_that_is_taken_is_tried_again(
    office: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pushed, "_TRY_AGAIN_SECONDS", 0.2)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        office(application({"address": f"127.0.0.1:{port}"}))
        until(lambda: "Receive location 'Lines0': nobody can listen on" in caplog.text)

    def is_answered() -> bool:
        try:
            with connected(port) as client:
                return client.tell(b'{"id": "1"}').startswith("ok")
        except OSError:
            return False

    until(is_answered)


def test_adapter_that_fails_in_every_way_stops_nobody_else(
    office: Opened, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    declared = {"adapter": "clumsy:Clumsy", "address": "clumsy://me:geheim@here"}
    running = office(application(declared, {"address": f"127.0.0.1:{port}"}))

    with connected(port) as client:
        answer = client.tell(b'{"id": "1"}')
    running.deploy(application({"address": f"127.0.0.1:{port}"}))

    assert answer.startswith("ok")
    eventually(lambda: list(written(folder / "out")), ["1.json"])
    assert "Receive location 'Lines0': its adapter failed: SystemExit" in caplog.text
    assert "geheim" not in caplog.text


@pytest.mark.parametrize(
    ("locations", "port", "sentence"),
    [
        ([{"address": "here"}], {}, "'here' is no address to listen on: write HOST:PORT"),
        ([{"address": "h:1", "name": "A"}, {"address": "h:1", "name": "B"}], {}, "receive location 'B': 'A' listens at the same place"),
        ([{"address": "h", "adapter": "clumsy:Half"}], {}, "adapter 'clumsy:Half' has no method 'close'; it needs start, close, stop"),
        ([{"address": "h", "adapter": "clumsy:Clumsy"}], {"two_way": True}, "adapter 'clumsy:Clumsy' cannot answer"),
    ],
)  # fmt: skip
def test_wrong_declaration_is_refused_in_one_sentence(
    folder: Path, locations: list[dict[str, Any]], port: dict[str, Any], sentence: str
) -> None:
    model = ApplicationModel.model_validate({"application": "lines", **application(*locations, **port)})

    with pytest.raises(ApplicationError) as caught:
        deployment_of(model, folder / "app.yaml", text_limit=256)

    assert sentence in str(caught.value)


def test_two_locations_of_different_hosts_may_have_the_same_address(folder: Path) -> None:
    two = [{"address": "h:1", "host": host} for host in ("Here", "There")]
    model = ApplicationModel.model_validate({"application": "lines", **application(*two)})

    assert len(deployment_of(model, folder / "app.yaml", text_limit=256).locations) == 2


def test_older_location_is_served_where_two_applications_listen_at_the_same_address(
    database: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    made = Office(database, folder, application({"address": f"127.0.0.1:{port}"}))
    other = {**application({"address": f"127.0.0.1:{port}", "name": "Other"}), "application": "other"}
    other["receive_ports"][0]["name"], other["send_ports"] = "OtherLines", []
    made.deploy(other)
    with made.open(), connected(port) as client:
        answer = client.tell(b'{"id": "1"}')

    assert answer.startswith("ok")
    assert "Receive location 'Other' is not served: 'Lines0' listens at the same place" in caplog.text
