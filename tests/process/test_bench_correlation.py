"""Benchmarks beside an orchestration with a correlation: only messages that may follow it are looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossdock.bench import exchange
from crossdock.bench.follower import Correlations, deploy_follower
from crossdock.bench.latency import bench_latency
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import sought_by
from express import a_message, deploy, port


@pytest.mark.parametrize(("correlation", "sought"), [("none", 0), ("foreign", 0), ("following", 1)])
def test_only_a_message_that_may_follow_is_looked_up(
    agent: Agent, folder: Path, correlation: Correlations, sought: int
) -> None:
    deploy(agent, port("All", "EXISTS(Region)"))
    deploy_follower(agent, folder, correlation, host="Default", message_type="Order", property_=("Region", "text"))
    message = a_message(agent, {"BTS.MessageType": "Order", "Region": "NO"})

    router = agent.router()

    assert ("case" in {each.name for each in router.correlations.values()}) == (correlation != "none")
    assert len(list(sought_by(router, [Publication(agent.configuration.hosts()["Default"], (message,))]))) == sought


@pytest.mark.process
@pytest.mark.parametrize("correlation", ["foreign", "following"])
def test_small_run_sees_every_message_once(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, correlation: Correlations
) -> None:
    monkeypatch.setattr(exchange, "_CONCURRENT", 100)

    figures = bench_latency(seconds=1.0, database=empty_database, progress=lambda _: None, correlation=correlation)

    assert figures["correlation"] == correlation
    assert figures["p50_ms"] > 0
