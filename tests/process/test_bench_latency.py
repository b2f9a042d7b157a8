"""The latency benchmark on a small scale: it takes the real path, sees every message once, and leaves nothing."""

from __future__ import annotations

import psycopg
import pytest

from crossdock.bench import exchange, latency
from crossdock.bench.latency import bench_latency
from crossdock.errors import CrossdockError
from crossdock.host.outcome import Outcome
from crossdock.message.message import Message
from crossdock.messagebox.agent import Agent


def test_small_run_sees_every_message_once_and_gives_every_figure(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_CONCURRENT", 100)
    said: list[str] = []

    figures = bench_latency(seconds=1.0, database=empty_database, progress=said.append)

    assert set(figures) == {
        "seconds", "tracking", "correlation", "messages", "p50_ms", "p99_ms", "commit_notify_p50_ms", "ratio",
        "p99_ratio", "rates", "http",
    }  # fmt: skip
    assert figures["messages"] == 10
    assert {rate: set(each) for rate, each in figures["rates"].items()} == {
        "1": {"messages", "p50_ms", "p99_ms"},
        "100": {"messages", "p50_ms", "p99_ms"},
        "saturation": {"messages", "per_s", "p50_ms", "p99_ms"},
    }
    assert (figures["rates"]["1"]["messages"], figures["rates"]["100"]["messages"]) == (1, 100)
    assert figures["rates"]["saturation"]["messages"] >= 4
    assert figures["commit_notify_p50_ms"] > 0
    assert (figures["http"]["messages"], figures["http"]["concurrent"]["messages"]) == (10, 100)
    assert "10 a second, for 1 s" in said
    delivered, tables = _left(empty_database)
    assert delivered == 20 + 10 + 1 + 100 + figures["rates"]["saturation"]["messages"]
    assert tables == []


def test_message_that_is_seen_twice_makes_the_figures_void(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Twice(latency._Subscriber):
        def deliver(self, message: Message, **how: object) -> Outcome:
            self.arrivals.append((message.id, 0.0))
            return super().deliver(message, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(latency, "_Subscriber", Twice)

    with pytest.raises(CrossdockError, match="The figures are void"):
        bench_latency(seconds=1.0, database=empty_database, progress=lambda _: None)


def _left(database: str) -> tuple[int, list[str]]:
    """(references the subscriber got, tables besides those of the MessageBox)."""
    with Agent(database) as agent, psycopg.connect(database) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return agent.statistics().ports["Subscriber"], [row[0] for row in tables]
