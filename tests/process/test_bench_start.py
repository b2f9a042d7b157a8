"""The benchmark of the start: a real `crossdock run` in a new home, and again."""

from __future__ import annotations

import pytest

from crossdock.bench.start import bench_start

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


def test_web_requests_are_answered_before_spark_has_routed_a_file() -> None:
    said: list[str] = []

    figures = bench_start(rounds=1, progress=said.append)

    for home in ("_new", ""):
        answered, delivered = figures[f"http_answer{home}_s"], figures[f"http_delivery{home}_s"]
        assert 0 < answered <= delivered < figures[f"file_delivery{home}_s"]
    assert figures["python_s"] < figures["help_s"]
    assert said == ["round 1 of 1"]
