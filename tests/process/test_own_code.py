"""Code of an application's own in real processes: through Spark's workers and through hosts."""

from __future__ import annotations

import json
import shutil
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from office import free_port
from walk import Walk, until

pytestmark = pytest.mark.process
EXAMPLES = Path(__file__).parents[2] / "examples"

ORDERS: dict[str, Any] = {
    "application": "orders",
    "properties": {"OrderId": "text", "Region": "text"},
    "schemas": [{"type": "Order", "format": "json", "promote": {"OrderId": "$.id", "Region": "$.region"}}],
}


def application(walk: Walk, **declared: Any) -> None:
    (walk.folder / walk.application).write_text(json.dumps({**ORDERS, **declared}))


SHELF = """
from pathlib import Path
from crossdock.adapter.contract import Listing, Reply, Source
from crossdock.errors import TransientError
from names import known

class Shelf:
    def __init__(self, address, *, suffix=".note"):
        self.place, self.suffix = Path(address), known(suffix)

    def list(self):
        if not self.place.is_dir():
            raise TransientError(f"there is no shelf {self.place}")
        found = [(path, path.stat()) for path in self.place.glob("*" + self.suffix)]
        return Listing(tuple(Source(f"{stat.st_mtime_ns}:{path}".encode(), stat.st_size) for path, stat in found))

    def read(self, identity):
        revision, _, path = identity.decode().partition(":")
        try:
            return Path(path).read_bytes() if str(Path(path).stat().st_mtime_ns) == revision else None
        except FileNotFoundError:
            return None

    def acknowledge(self, identity):
        if self.read(identity) is not None:
            Path(self.name(identity)).unlink()

    def name(self, identity):
        return identity.decode().partition(":")[2]

class Letters:
    def __init__(self, address, *, stamp=""):
        self.place, self.stamp = Path(address), stamp

    def send(self, message, *, attempt):
        self.place.mkdir(parents=True, exist_ok=True)
        (self.place / str(message.id)).write_bytes(message.body)
        return Reply(f'{{"id": "{self.stamp}"}}'.encode())

    def close(self):
        pass
"""


def test_files_named_like_modules_of_python_stop_nothing_and_may_be_components(folder: Path) -> None:
    walk = Walk(folder)
    (folder / "queue.py").write_text(
        "def lower(document):\n"
        "    return document.changed(promoted={**document.promoted, 'Region': document.promoted['Region'].lower()})\n"
    )
    (folder / "types.py").write_text("raise SystemExit('this is not the module that Python looks for')\n")
    location = {"adapter": "file", "address": "in/*.json", "pipeline": "own"}

    application(
        walk,
        pipelines=[{"name": "own", "disassemble": "json", "components": ["queue:lower"]}],
        receive_ports=[{"name": "In", "locations": [location]}],
        send_ports=[
            {"name": "Out", "adapter": "file", "address": "out/all/%MessageID%.json", "filter": "EXISTS(Region)"}
        ],
    )
    walk.put_orders(3)

    code, summary = walk.run()

    assert (code, summary["published"], summary["delivered"]) == (0, 3, 3)
    assert walk.delivered("all") == Counter(["o0", "o1", "o2"])


def test_adapters_of_ones_own_receive_through_spark_and_send_from_another_process(folder: Path) -> None:
    walk = Walk(folder / "walk")
    code = folder / "code"
    code.mkdir()
    (code / "shelf.py").write_text(SHELF)
    shutil.copy(EXAMPLES / "lines.py", code)
    (code / "names.py").write_text("def known(suffix):\n    return suffix\n")
    walk.application = str(code / "orders.yaml")
    location = {
        "adapter": "shelf:Shelf",
        "address": str(folder / "shelf"),
        "options": {"suffix": ".json"},
        "pipeline": "json",
    }
    port = free_port()
    lines = {"adapter": "lines:LineListener", "address": f"127.0.0.1:{port}", "pipeline": "json", "schema": "Order"}
    answered = {"pipeline": "json", "schema": "Order"}
    application(
        walk,
        receive_ports=[{"name": "In", "locations": [location]}, {"name": "Lines", "locations": [lines]}],
        send_ports=[
            {
                "name": "Out", "adapter": "shelf:Letters", "address": str(walk.folder / "out" / "all"), "options": {"stamp": "answer"},
                "filter": "InboundTransportType IN ('Shelf', 'LineListener') AND MessageType = 'Order'", "response": answered,
            },
            {"name": "Answers", "adapter": "file", "address": str(walk.folder / "out/answers/%MessageID%"), "filter": "OrderId = 'answer'"},
        ],
    )  # fmt: skip
    (folder / "shelf").mkdir()
    for name in ("one", "two"):
        (folder / "shelf" / f"{name}.json").write_text(json.dumps({"id": name, "region": "EU"}))
    (folder / "shelf" / "other.note").write_text("not asked for")

    receiving = walk.start("run", walk.application, "--until-idle")
    assert receiving.wait(240) == 0, walk.errors()
    assert [row["name"] for row in walk.get("locations")] == ["In.Shelf", "Lines.LineListener"]
    assert (walk.delivered("all"), walk.delivered("answers")) == (Counter(["one", "two"]), Counter({"answer": 2}))
    assert [path.name for path in (folder / "shelf").iterdir()] == ["other.note"]

    sending = walk.start("host", "Default")
    letter = walk.folder / "letter.json"
    letter.write_text('{"id": "three"}')
    published = walk.command("publish", str(letter), "--location", "In.Shelf")
    assert published.returncode == 0, published.stderr
    until(lambda: walk.delivered("all")["three"] == 1)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as partner, partner.makefile("rb") as answers:
        partner.sendall(b'{"id": "four"}\n')
        assert answers.readline().startswith(b"ok ")
    until(lambda: walk.delivered("all")["four"] == 1)
    sending.terminate()
    assert sending.wait(60) == 0
