"""The benchmark of orchestrations on a small scale: every instance ends, and every figure is there."""

from __future__ import annotations

import importlib.util

import pytest

from crossdock.bench import dbos
from crossdock.bench.orchestration import bench_orchestration
from express import unbalanced

_FIGURES = {
    "instances", "instances_per_s", "correlated_per_s", "instances_with_port_per_s", "correlated_with_port_per_s",
    "step_us_10", "reload_ms_12", "waiting", "waiting_per_s", "memory_before_mb", "memory_after_mb",
    "waiting_memory_mb", "wake_ms", "wake_ms_500", "copying_seconds",
}  # fmt: skip
SMALL = {"instances": 20, "waiting": 30, "woken_of": 500, "history": 12}
_OF_DBOS = {"dbos_workflows_per_s", "dbos_workflows_per_s_each", "ratio_to_dbos"}


def test_small_run_gives_every_figure(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dbos", reason="dbos is not installed: pip install crossdock[peer]")
    monkeypatch.setattr(dbos, "_CONCURRENCIES", (2,))
    warned: list[str] = []

    figures = bench_orchestration(**SMALL, database=empty_database, progress=lambda _: None, warn=warned.append)

    assert set(figures) == _FIGURES | _OF_DBOS
    assert all(figures[name] > 0 for name in _FIGURES - {"waiting_memory_mb"})
    assert figures["ratio_to_dbos"] > 0
    assert unbalanced(empty_database) == []
    assert warned == []


def test_without_dbos_its_figures_are_left_out_with_a_sentence(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dbos, "find_spec", lambda name: None if name == "dbos" else importlib.util.find_spec(name))
    warned: list[str] = []

    figures = bench_orchestration(**SMALL, database=empty_database, progress=lambda _: None, warn=warned.append)

    assert set(figures) == _FIGURES
    assert [text.partition(":")[0] for text in warned] == ["ratio_to_dbos is left out"]
