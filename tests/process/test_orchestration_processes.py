"""Orchestrations in real processes: files in, through an instance that outlives its process, files out."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from walk import EXAMPLES, OLD, Walk

pytestmark = pytest.mark.process


def put(folder: Path, name: str, content: object) -> None:
    """A file that is complete at once."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".new-{name}"
    temporary.write_text(json.dumps(content))
    os.utime(temporary, (OLD, OLD))
    temporary.rename(folder / name)


def sent(walk: Walk, folder: str) -> list[dict[str, object]]:
    """What was written to a folder, in the order of the ids in it."""
    found = [json.loads(path.read_bytes()) for path in (walk.folder / "out" / folder).glob("[!.]*")]
    return sorted(found, key=lambda each: str(each["id"]))


def test_order_waits_for_its_payment_from_one_run_to_the_next(folder: Path) -> None:
    walk = Walk(folder, "shop.py")
    shutil.copy(EXAMPLES / "fulfilment.py", folder / "fulfilment.py")
    (folder / "in" / "payments").mkdir()
    put(folder / "in" / "orders", "a1.json", {"id": "A1", "amount": 12.5})
    put(folder / "in" / "orders", "b2.json", {"id": "B2", "amount": 2000})
    code, summary = walk.run()

    assert (code, summary["published"], summary["waiting"], summary["instances"]) == (3, 2, 2, 2)
    assert len(sent(walk, "mail")) == 2
    [orchestration] = walk.get("orchestrations")
    assert (orchestration["name"], orchestration["state"], orchestration["running"]) == ("fulfil", "started", 2)
    result = walk.command("get", "instances", "--where", "Amount > 1000", "-o", "json")
    [large] = json.loads(result.stdout)
    assert large["waits_for"].startswith("receive")
    shown = walk.command("describe", large["id"])
    assert "fulfilment.py:10" in shown.stdout, shown.stderr

    put(folder / "in" / "payments", "a1.json", {"id": "A1"})
    put(folder / "in" / "payments", "b2.json", {"id": "B2"})
    code, summary = walk.run()

    assert (code, summary["instances"]) == (0, 0)
    assert sent(walk, "stock") == [{"id": "A1", "amount": 12.5}, {"id": "B2", "amount": 2000}]


def test_mistake_is_refused_with_its_line_before_anything_starts(folder: Path) -> None:
    walk = Walk(folder, "shop.py")
    source = (EXAMPLES / "fulfilment.py").read_text()
    (folder / "fulfilment.py").write_text(source.replace("    if answer", "    print(answer)\n    if answer"))

    result = walk.command("run", "shop.py", "--until-idle")

    assert result.returncode == 2
    assert "orchestration 'fulfil': fulfilment.py, line 12: print() prints again at every replay" in result.stderr
    assert not walk.home.exists()
