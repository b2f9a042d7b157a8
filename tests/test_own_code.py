"""Code of an application's own in real processes: through Spark's workers and through hosts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from walk import Walk

pytestmark = pytest.mark.process

ORDERS: dict[str, Any] = {
    "application": "orders",
    "properties": {"OrderId": "text", "Region": "text"},
    "schemas": [{"type": "Order", "format": "json", "promote": {"OrderId": "$.id", "Region": "$.region"}}],
}


def application(walk: Walk, **declared: Any) -> None:
    (walk.folder / walk.application).write_text(json.dumps({**ORDERS, **declared}))


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
