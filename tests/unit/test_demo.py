"""What the demo shows before anything runs: the application as text, and one order with who will get it."""

from __future__ import annotations

import io
from pathlib import Path
from threading import Event

import pytest
from rich.console import Console

from crossdock.administration.dry_run import route_files
from crossdock.administration.running import loaded
from crossdock.cli.demo_at_work import bars_of
from crossdock.cli.show_demo import draw, sample_order, show_demo, show_sample
from crossdock.demo.orders import make_demo, message_count
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


def test_sample_is_explained_by_one_predicate_of_each_filter_in_80_columns(tmp_path: Path) -> None:
    deployment = loaded(make_demo(tmp_path, 3000), Settings(home=tmp_path, database="", master=""))
    sample = sample_order(deployment, tmp_path / "in")
    out = Console(file=io.StringIO(), width=80)
    assert sample is not None

    show_sample(out, deployment, sample)

    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "  ✓ Americas      Region IN ('US', 'LATAM') (Region is text 'US')" in lines
    assert "  · EuropeLarge   Region = 'EU' (Region is text 'US')" in lines
    assert {line.split()[1] for line in lines if "✓" in line} == set(sample.matches)
    assert max(map(len, lines)) <= 80


def test_longest_bar_is_of_the_port_that_delivered_the_most() -> None:
    out = Console(file=io.StringIO(), width=80)

    out.print(bars_of({"Few": 1, "Most": 1000, "None": 0}, out.width, {"None": 12}))

    bars = {line.split()[0]: line.count("█") for line in out.file.getvalue().splitlines()}  # type: ignore[attr-defined]
    assert bars == {"send": 0, "Few": 1, "Most": 40, "None": 0}


def test_messages_that_arrive_are_counted_as_they_are_made(tmp_path: Path) -> None:
    deployment = loaded(make_demo(tmp_path, 300), Settings(home=tmp_path, database="", master=""))

    routes = list(route_files(deployment, sorted((tmp_path / "in").iterdir()), "OrdersIn.file"))

    assert len(routes) == message_count(300)


def test_demo_of_few_orders_has_no_sample(tmp_path: Path) -> None:
    deployment = loaded(make_demo(tmp_path, 5), Settings(home=tmp_path, database="", master=""))

    assert sample_order(deployment, tmp_path / "in") is None


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match=r"The folder .*file/demo of the demo cannot be made: Not a directory\."):
        show_demo(tmp_path / "file" / "demo", 10, Event())
