"""What the demo shows before anything runs: the application as text, and one order with who will get it."""

from __future__ import annotations

import io
from pathlib import Path
from threading import Event

import pytest
from rich.console import Console

from crossdock.administration.running import loaded
from crossdock.cli.show_demo import draw, sample_order, show_demo
from crossdock.demo.orders import make_demo
from crossdock.errors import UsageError
from crossdock.settings import Settings


def test_demo_is_drawn_with_every_filter_in_100_columns(tmp_path: Path) -> None:
    deployment = loaded(make_demo(tmp_path, 10), Settings(home=tmp_path, database="", master=""))
    out = Console(file=io.StringIO(), width=100)

    draw(out, deployment)

    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    wanting = [each.name for each in deployment.services if each.filter.groups]
    assert "  in/*.json -> OrdersIn.file -> Order" in lines
    assert [line.split()[1] for line in lines if "─" in line] == wanting
    assert max(map(len, lines)) <= 100


def test_sample_starts_an_instance_that_a_payment_ends(tmp_path: Path) -> None:
    deployment = loaded(make_demo(tmp_path, 3000), Settings(home=tmp_path, database="", master=""))

    sample = sample_order(deployment, tmp_path / "in")

    assert sample is not None
    assert sample.activates == ("fulfil",)
    assert {"Urgent", "Everyday"} <= set(sample.matches)


def test_demo_of_few_orders_has_no_sample(tmp_path: Path) -> None:
    deployment = loaded(make_demo(tmp_path, 5), Settings(home=tmp_path, database="", master=""))

    assert sample_order(deployment, tmp_path / "in") is None


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match=r"The folder .*file/demo of the demo cannot be made: Not a directory\."):
        show_demo(tmp_path / "file" / "demo", 10, Event())
