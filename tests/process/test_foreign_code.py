"""Code that is not ours and raises what is not an Exception: it fails its message, and nothing else."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crossdock.message.publication import Publication
from crossdock.receive.location import ReceiveLocation
from office import Office
from stages import ORDER, location_of, received
from walk import Walk, until

ENDS = """
import asyncio, json, sys
from crossdock.adapter.contract import Listing, Source

class PanicException(BaseException):
    "What pyo3 makes of a panic in Rust."

def panic():
    raise PanicException("called `Option::unwrap()` on a `None` value")

WAYS = {
    "exit": lambda: sys.exit(3),
    "generator": lambda: (_ for _ in ()).throw(GeneratorExit("closed")),
    "cancelled": lambda: (_ for _ in ()).throw(asyncio.CancelledError("task")),
    "keyboard": lambda: (_ for _ in ()).throw(KeyboardInterrupt("mine")),
    "panic": panic,
}

def way(content):
    found = json.loads(content).get("way")
    if found is not None:
        WAYS[found]()

def component(document):
    way(document.body)
    return document

def code(content):
    for line in content.splitlines():
        way(line)
    return content

def lines(content):
    for line in content.splitlines():
        way(line)
        yield line

class Port:
    def __init__(self, address):
        self.used = False

    def send(self, message, *, attempt):
        self.used = True
        way(message.body)

    def close(self):
        if self.used:
            WAYS["exit"]()

class BatchPort(Port):
    def send_batch(self, messages):
        self.used = True
        for message in messages:
            way(message.body)
        return [None] * len(messages)

class Broken:
    def __init__(self, address):
        self.address = address

    def list(self):
        if self.address == "list":
            WAYS["cancelled"]()
        return Listing((Source(self.address.encode(), 10),))

    def read(self, identity):
        WAYS["panic"]()

    def acknowledge(self, identity):
        WAYS["generator"]()

    def name(self, identity):
        WAYS["exit"]()
"""
RAISED = {
    "exit": "SystemExit: 3",
    "generator": "GeneratorExit: closed",
    "cancelled": "CancelledError: task",
    "keyboard": "KeyboardInterrupt: mine",
    "panic": "PanicException: called `Option::unwrap()` on a `None` value",
}


def elsewhere(location: ReceiveLocation, content: bytes) -> Publication:
    """In a thread that is not the main one, which only a real Ctrl-C interrupts."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(received, location, content).result()


@pytest.fixture
def code(folder: Path) -> Path:
    (folder / "ends.py").write_text(ENDS)
    return folder


def document(way: str | None = None) -> bytes:
    return json.dumps({"region": "NO"} if way is None else {"way": way}).encode()


@pytest.mark.parametrize("way", RAISED)
@pytest.mark.parametrize("where", ["component", "map"])
def test_what_a_component_or_a_map_raises_fails_its_document_and_no_other(code: Path, where: str, way: str) -> None:
    component = {"components": ["ends:component"]} if where == "component" else {}
    own = {"name": "own", "disassemble": "json", **component}
    maps = [] if component else [{"from": "Order", "to": "Order", "function": "ends:code"}]
    location = location_of(code, ORDER, location={"pipeline": "own"}, port={"maps": maps}, pipelines=[own])

    made = elsewhere(location, b"\n".join([document(), document(way), document()]))

    assert len(made.messages) == 2
    [failure] = made.failures
    prefix = "the pipeline failed" if component else "the map ends:code fails on it"
    assert (failure.message.body, failure.reason) == (document(way), f"{prefix}: {RAISED[way]}")


@pytest.mark.parametrize("way", RAISED)
@pytest.mark.parametrize("stage", [{"decode": ["ends:code"], "disassemble": "json"}, {"disassemble": "ends:lines"}])
def test_what_a_decoder_or_a_disassembler_raises_fails_the_source(code: Path, stage: dict[str, Any], way: str) -> None:
    location = location_of(code, ORDER, location={"pipeline": "own"}, pipelines=[{"name": "own", **stage}])
    content = b"\n".join([document(), document(way)])

    made = elsewhere(location, content)

    [failure] = made.failures
    assert (made.messages, failure.message.body, failure.reason) == (
        (), content, f"the pipeline failed: {RAISED[way]}",
    )  # fmt: skip


@pytest.mark.parametrize("adapter", ["ends:Port", "ends:BatchPort"])
def test_what_an_adapter_or_a_send_pipeline_raises_fails_its_message_and_the_host_goes_on(
    code: Path, database: str, adapter: str
) -> None:
    own: dict[str, Any] = {"adapter": adapter, "address": "x", "retry": {"count": 0}}
    stages = {
        "Adapter": own,
        "Component": {**own, "pipeline": {"components": ["ends:component"]}},
        "Encoder": {**own, "pipeline": {"encode": ["ends:code"]}},
        "Map": {**own, "maps": [{"from": "Order", "to": "Order", "function": "ends:code"}]},
    }
    schemas = [{"type": "Order", "format": "json"}]
    ports = [{"name": name, **stage} for name, stage in stages.items()]

    with Office(database, code, {"schemas": schemas, "send_ports": ports}).open() as office:
        for name in stages:
            for way in RAISED:
                office.publish(document(way), to=name, BTS__MessageType="Order")
        office.settled()
        for name in stages:
            office.publish(document(), to=name, BTS__MessageType="Order")
        until(lambda: office.agent.statistics().delivered == len(stages))
        office.deploy({"schemas": schemas})  # which closes the adapters
        office.settled()
        suspended = [(row.port, row.reason) for row in office.agent.suspended.messages()]

    assert len(suspended) == len(stages) * len(RAISED)
    for name in stages:
        mine = [reason for port, reason in suspended if port == name]
        assert all(any(reason.endswith(raised) for reason in mine) for raised in RAISED.values()), mine


@pytest.mark.process
def test_process_goes_on_whatever_components_and_adapters_raise(code: Path) -> None:
    walk = Walk(code)
    own = [{"name": "own", "disassemble": "json", "components": ["ends:component"]}]
    locations = [
        {"name": "Files", "adapter": "file", "address": "in/*.json", "pipeline": "own"},
        {"name": "Unlisted", "adapter": "ends:Broken", "address": "list", "pipeline": "passthrough"},
        {"name": "Unread", "adapter": "ends:Broken", "address": "read", "pipeline": "passthrough"},
    ]
    application = {
        "application": "orders",
        "schemas": [{"type": "Order", "format": "json"}],
        "pipelines": own,
        "receive_ports": [{"name": "In", "locations": locations}],
        "send_ports": [
            {"name": "Own", "adapter": "ends:Port", "address": "x", "filter": "MessageType = 'Order'"},
            {
                "name": "Out", "adapter": "file", "address": "out/all/%MessageID%.json", "filter": "MessageType = 'Order'",
                "pipeline": {"components": ["ends:component"]},
            },
        ],
    }  # fmt: skip
    (walk.folder / walk.application).write_text(json.dumps(application))
    for way in RAISED:
        walk.put(f"{way}.json", document(way))
    walk.put("good.json", b'{"id": "good"}')

    result = walk.command("run", walk.application, "--until-idle", "-o", "json")

    assert result.returncode == 3, result.stderr
    assert walk.delivered("all") == {"good": 1}
    assert {row["reason"] for row in walk.get("suspended")} == {
        f"the pipeline failed: {raised}" for raised in RAISED.values()
    }
    assert "Receive location 'Unlisted' waits: its adapter failed: CancelledError: task" in result.stderr
    assert f"Receive location 'Unread': its adapter failed: {RAISED['panic']}; trying again later" in result.stderr


@pytest.mark.parametrize("way", [way for way in RAISED if way != "keyboard"])
def test_application_whose_code_ends_when_it_is_imported_is_refused(code: Path, way: str) -> None:
    walk = Walk(code)
    (code / "ending.py").write_text(f"from ends import WAYS\nWAYS[{way!r}]()\n")
    (code / "orders.py").write_text("import ending\n")
    location = {"adapter": "file", "address": "in/*", "pipeline": "own"}
    pipelines = [{"name": "own", "disassemble": "passthrough", "components": ["ending:component"]}]
    application = {
        "application": "orders",
        "pipelines": pipelines,
        "receive_ports": [{"name": "In", "locations": [location]}],
    }
    (code / "orders.yaml").write_text(json.dumps(application))

    for name in ("orders.yaml", "orders.py"):
        result = walk.command("lint", str(code / name))

        assert (result.returncode, "Traceback" in result.stderr) == (2, False), result.stderr
        assert RAISED[way] in result.stderr


def test_real_interrupt_stops_a_component_that_has_not_ended(code: Path) -> None:
    """Where nobody handles the signal: then the main thread gets it as an exception, whatever runs there."""
    (code / "waits.py").write_text(
        "import os, signal\ndef component(document):\n    os.kill(os.getpid(), signal.SIGINT)\n    return document\n"
    )
    own = {"name": "own", "disassemble": "json", "components": ["waits:component"]}
    location = location_of(code, ORDER, location={"pipeline": "own"}, pipelines=[own])

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            received(location, document())
    finally:
        signal.signal(signal.SIGINT, before)
