"""Large input through a whole run: a folder full of files, one huge document, one huge file of lines; memory is bounded."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from walk import OLD, Walk, order, python_workers_of

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
FILES = 200_000 if SOAK else 2_000
DOCUMENT_MEGABYTES = 200 if SOAK else 20
LINES = 200_000 if SOAK else 4_000  # of ten kilobytes
MEGABYTE, GIGABYTE = 1024**2, 1024**3
APPLICATION = """
application: large
properties: {OrderId: text, Region: text, Amount: decimal}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id, Region: $.region, Amount: $.amount}}
  - {type: "urn:large#Order", format: xml, namespaces: {o: "urn:large"}, promote: {OrderId: "/o:Order/@id"}}
receive_ports:
  - name: In
    locations:
      - {name: json, adapter: file, address: "in/*.json", pipeline: json}
      - {name: xml, adapter: file, address: "in/*.xml", pipeline: xml}
send_ports:
  - {name: Taken, adapter: file, address: "out/%MessageID%", filter: "OrderId = 'wanted'"}
"""

pytestmark = [pytest.mark.process, pytest.mark.timeout(3_000)]


@pytest.fixture
def walk(folder: Path) -> Iterator[Walk]:
    made = Walk(folder)
    (folder / "large.yaml").write_text(APPLICATION)
    made.application = "large.yaml"
    yield made
    for left in made.processes():
        with suppress(psutil.NoSuchProcess):
            left.kill()


def run_to_the_end(walk: Walk) -> tuple[dict[str, Any], int]:
    """The summary of a run, and the most memory that one of its Python workers had."""
    run = walk.start("run", walk.application, "--until-idle", "-o", "json")
    most = 0
    while True:
        with suppress(psutil.NoSuchProcess):
            for worker in python_workers_of(run):
                with suppress(psutil.NoSuchProcess):
                    most = max(most, worker.memory_info().rss)
        with suppress(subprocess.TimeoutExpired):
            output, _ = run.communicate(timeout=0.5)
            break
    assert run.returncode in (0, 3), walk.errors()
    assert "Traceback" not in walk.errors()
    return json.loads(output), most


def put_large(walk: Walk, name: str, pieces: Iterator[bytes]) -> None:
    path = walk.folder / "in" / name
    with (walk.folder / name).open("wb") as file:
        file.writelines(pieces)
    os.utime(walk.folder / name, (OLD, OLD))
    (walk.folder / name).rename(path)


def put_files(walk: Walk) -> None:
    for number in range(FILES):
        path = walk.folder / "in" / f"{number:06}.json"
        path.write_text(json.dumps({**order(number), "id": "wanted" if number % 1_000 == 0 else "not"}))
        os.utime(path, (OLD, OLD))


def put_document(walk: Walk, name: str, head: bytes, line: bytes, tail: bytes) -> int:
    """One document of many megabytes; gives its size."""
    put_large(walk, name, iter([head, *([line] * (DOCUMENT_MEGABYTES * MEGABYTE // len(line))), tail]))
    return (walk.folder / "in" / name).stat().st_size


def put_lines(walk: Walk) -> None:
    plain = json.dumps({"id": "not", "region": "EU", "amount": 1, "note": "x" * 10_000}).encode() + b"\n"
    wanted = plain.replace(b'"not"', b'"wanted"')
    put_large(walk, "lines.json", (wanted if number % 1_000 == 0 else plain for number in range(LINES)))


def test_files_documents_and_lines_in_great_number_and_size_all_arrive(walk: Walk) -> None:
    put_files(walk)
    sizes = [
        put_document(walk, "huge.json", b'{"id": "wanted", "lines": [', b'{"note": "' + b"x" * 990 + b'"},', b"{}]}"),
        put_document(
            walk, "huge.xml", b'<Order xmlns="urn:large" id="wanted">', b"<line>" + b"x" * 990 + b"</line>", b"</Order>"
        ),
    ]
    put_lines(walk)

    summary, most = run_to_the_end(walk)

    received, delivered = FILES + 2 + LINES, FILES // 1_000 + 2 + LINES // 1_000
    assert (summary["received"], summary["published"], summary["delivered"]) == (received, delivered, delivered)
    assert (summary["unrouted"], summary["suspended"]) == (received - delivered, 0)
    arrived = [path.stat().st_size for path in (walk.folder / "out").iterdir()]
    assert (len(arrived), sorted(arrived)[-2:]) == (delivered, sorted(sizes))
    assert walk.waiting_input() == []
    assert most < GIGABYTE + 5 * max(sizes)
