"""The benchmark of the console on a small scale: every page is asked for, and tabs are open in half of the turns."""

from __future__ import annotations

import pytest

from crossdock.bench.console import bench_console

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_small_run_gives_a_figure_for_every_page_and_the_cost_of_open_tabs(empty_database: str) -> None:
    said: list[str] = []

    figures = bench_console(
        messages=2_500, suspended=5, ports=8, instances=5, tabs=3, rounds=2, work=50, database=empty_database,
        progress=said.append,
    )  # fmt: skip

    pages = {name: value for name, value in figures.items() if name.endswith("_p95_ms")}
    assert len(pages) == 15
    assert all(value > 0 for value in pages.values())
    assert figures["slowest_p95_ms"] == max(pages.values())
    assert [each.partition(": ")[2] for each in said if each.startswith("turn")] == [
        "no tab is open", "3 tabs are open", "3 tabs are open", "no tab is open",
    ]  # fmt: skip
    assert len(figures["tabs_ratio_each"]) == 2
    assert figures["tabs_events"] >= 6  # each of three tabs got numbers in each of two turns
