"""`/metrics` and `/health`: real sockets, a real MessageBox, hostile names, a server that goes away and comes back."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from crossdock.errors import UnavailableError, UsageError
from crossdock.maintenance.samples import TakeSample
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.embedded import EmbeddedServer
from crossdock.messagebox.sample import SuspendedSample
from crossdock.messagebox.samples import Samples
from crossdock.messagebox.settle import Complete, Suspend
from crossdock.monitoring.metrics import METRICS, page
from crossdock.monitoring.server import MetricsServer, parsed
from crossdock.monitoring.watch import Watch
from express import claim, deploy, living, port, publish
from walk import until

ROOT = Path(__file__).parents[2]
HOSTILE = 'P"}\n\\crossdock_references_ready{x="1"} 666\r\u2028é\t{}'
NORWAY = {"Region": "NO"}
Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


@contextmanager
def served(agent: Agent, in_hand: Mapping[int, int] | None = None, *, samples: bool = True) -> Iterator[MetricsServer]:
    """Looks every few milliseconds."""
    watch = Watch(agent, lambda: in_hand or {}, samples, look_seconds=0.02)
    server = MetricsServer("127.0.0.1:0", watch)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def figures(server: MetricsServer) -> Figures:
    answer = httpx.get(f"{server.address}/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def figure(found: Figures, name: str, **labels: str) -> float | None:
    return found.get((f"crossdock_{name}", frozenset(labels.items())))


def with_sample(server: MetricsServer) -> Figures:
    """As soon as the watch has seen a sample."""
    until(lambda: figure(figures(server), "sample_age_seconds") is not None)
    return figures(server)


def health(server: MetricsServer) -> tuple[int, Any]:
    answer = httpx.get(f"{server.address}/health")
    return answer.status_code, answer.json()


def test_what_is_served_is_what_is_there(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("B", "Region = 'SE'"))
    publish(agent, *[NORWAY] * 5, {"Region": "XX"})
    with living(agent) as life:
        first, second, *_ = claim(agent, life, limit=2)
        agent.settle(life.instance, [Complete(first), Suspend(second, "no", code="partner-refused")])
        TakeSample(agent).run_once()

        with served(agent, {1: 3}) as server:
            found = with_sample(server)

    assert figure(found, "references_ready") == 3
    assert figure(found, "deliveries_total") == 1
    assert figure(found, "port_deliveries_total", application="orders", port="A") == 1
    assert figure(found, "port_suspensions_total", application="orders", port="A") == 1
    assert figure(found, "port_deliveries_total", application="orders", port="B") == 0
    assert figure(found, "references_suspended", code="partner-refused", kind="send") == 1
    assert figure(found, "references_suspended", code="no-subscriber", kind="unrouted") == 1
    assert figure(found, "host_instances", host="Default", state="running") == 1
    assert figure(found, "process_in_hand_references", host="Default") == 3
    assert figure(found, "database_reachable") == 1
    assert ("process_resident_memory_bytes", frozenset()) in found


def test_every_metric_that_is_served_is_declared_with_its_labels(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    TakeSample(agent).run_once()

    with served(agent) as server:
        found = with_sample(server)

    ours = {(name, frozenset(label for label, _ in labels)) for name, labels in found if name.startswith("crossdock_")}
    declared = {(each.name, frozenset(each.labels)) for each in METRICS}
    assert ours <= declared
    assert {name for name, labels in declared if not labels} <= {name for name, _ in ours}
    assert all(each.name.endswith("_total") == (each.kind == "counter") for each in METRICS)


def test_hostile_name_of_a_port_forges_no_metric(agent: Agent) -> None:
    deploy(agent, port(HOSTILE, "Region = 'NO'"))
    publish(agent, NORWAY)
    TakeSample(agent).run_once()

    with served(agent) as server:
        found = with_sample(server)

    assert figure(found, "port_references_ready", application="orders", port=HOSTILE) == 1
    assert [value for (name, _), value in found.items() if name == "crossdock_references_ready"] == [1]


def test_codes_that_a_host_makes_up_do_not_grow_the_metrics(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, *[NORWAY] * 150)
    with living(agent) as life:
        forged = [Suspend(each, "no", code=f"made-up-{n}") for n, each in enumerate(claim(agent, life))]
        agent.settle(life.instance, forged)

    codes = agent.samples.take().box.suspensions

    assert len(forged) == 150
    assert len(codes) == 100
    assert isinstance(codes[0], SuspendedSample)


def test_only_the_busiest_ports_have_metrics(agent: Agent) -> None:
    deploy(agent, *(port(f"P{n}", f"Region = '{n}'") for n in range(5)))
    publish(agent, {"Region": "3"})
    Samples(agent._database, most_listed=2).take()

    with served(agent) as server:
        found = with_sample(server)

    ports = {dict(labels)["port"] for name, labels in found if name == "crossdock_port_deliveries_total"}
    assert ports == {"P0", "P3"}
    assert figure(found, "ports_left_out") == 3


def test_process_that_may_not_read_samples_tells_of_itself(agent: Agent) -> None:
    deploy(agent)
    agent.samples.take()

    with served(agent, samples=False) as server:
        until(lambda: figure(figures(server), "database_reachable") == 1)
        found = figures(server)

    assert figure(found, "info", version="0.1.0") == 1
    assert figure(found, "references_ready") is None


def test_logged_lines_are_counted(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    import logging

    with served(agent) as server:
        before = figure(figures(server), "log_records_total", level="warning")
        logging.getLogger("crossdock.test").warning("Something")
        after = figure(figures(server), "log_records_total", level="warning")

    assert before is not None
    assert after == before + 1
    assert "Something" in caplog.text


def test_healthy_process_says_so(agent: Agent) -> None:
    deploy(agent, hosts={"Elsewhere": ()})
    agent.samples.take()

    with living(agent), served(agent, {1: 0}) as server:
        until(lambda: health(server)[0] == 200)
        _, told = health(server)

    assert (told["healthy"], told["problems"], told["database_reachable"]) == (True, [], True)
    assert told["hosts"] == {
        "Default": {"here": True, "instances": {"running": 1}}, "Elsewhere": {"here": False, "instances": {}}
    }  # fmt: skip
    assert 0 <= told["sample_age_seconds"] < 60


def test_process_whose_host_has_died_is_not_healthy(agent: Agent) -> None:
    deploy(agent)

    with served(agent, {1: 0}) as server:
        until(lambda: health(server)[1]["database_reachable"])
        status, told = health(server)

    assert (status, told["problems"]) == (503, ["host 'Default' has no living instance"])


def test_process_that_has_seen_no_sample_for_a_minute_is_not_healthy(agent: Agent) -> None:
    deploy(agent)
    time = [0.0]
    watch = Watch(agent, dict, clock=lambda: time[0], look_seconds=0.02)
    watch.start()
    try:
        until(lambda: watch.health().healthy)
        time[0] = 61.0
        until(lambda: watch.reachable)

        assert watch.health().problems == ("no sample of the MessageBox has been taken for a minute",)
    finally:
        watch.stop()


def test_postgresql_that_goes_away_is_told_within_seconds_and_that_it_is_back(tmp_path: Path) -> None:
    postgres = EmbeddedServer(tmp_path)
    with Agent(postgres.acquire()) as agent:
        agent.box.create()
        with served(agent) as server:
            until(lambda: health(server)[0] == 200)
            postgres.release()
            until(lambda: health(server)[0] == 503, 20)
            _, told = health(server)
            away = figure(figures(server), "database_reachable")
            postgres.acquire()
            until(lambda: health(server)[0] == 200, 60)
            back = figure(figures(server), "database_reachable")
    postgres.release()

    assert (told["database_reachable"], told["problems"]) == (False, ["PostgreSQL cannot be reached"])
    assert (away, back) == (0, 1)


def test_who_asks_for_something_else_or_says_nothing_hinders_nobody(agent: Agent) -> None:
    with served(agent) as server:
        host, port_ = server.address.removeprefix("http://").split(":")
        silent = [socket.create_connection((host, int(port_))) for _ in range(8)]
        try:
            silent[0].sendall(b"GET /metrics HTTP/1.0\r\n")
            silent[1].sendall(b"\xff\xfe\x00" * 100 + b"\r\n\r\n")
            answers = [httpx.request(verb, f"{server.address}{path}").status_code for verb, path in
                       [("GET", "/"), ("GET", "/metrics?x=1"), ("HEAD", "/metrics"), ("POST", "/metrics"), ("GET", "/metrics/../x")]]  # fmt: skip
        finally:
            for each in silent:
                each.close()

    assert answers == [404, 200, 200, 501, 404]


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:9464", ("::1", 9464)), ("localhost:0", ("localhost", 0))],
)
def test_address_is_a_host_and_a_port(address: str, expected: tuple[str, int]) -> None:
    assert parsed(address) == expected


@pytest.mark.parametrize("address", ["9464", ":9464", "host:", "host:x", "host:99999", "a@host:1", "host:1/path", ""])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="--metrics takes HOST:PORT"):
        parsed(address)


def test_address_that_is_taken_is_refused_in_a_sentence(agent: Agent) -> None:
    with served(agent) as server, pytest.raises(UnavailableError, match="Metrics cannot be served at"):
        MetricsServer(server.address.removeprefix("http://"), Watch(agent, dict))


def test_reference_of_the_metrics_is_current() -> None:
    written = (ROOT / "docs" / "reference" / "metrics.md").read_text()

    assert written == page(), "write it with: python -m crossdock.monitoring.metrics > docs/reference/metrics.md"


def test_dashboard_and_alerts_ask_for_metrics_and_labels_that_are_served() -> None:
    names = {each.name: set(each.labels) for each in METRICS}
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "crossdock.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "crossdock-alerts.yaml").read_text())
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]

    for expression in asked:
        used = set(re.findall(r"crossdock_\w+", expression))
        labels = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        known = set().union(*(names[name] for name in used if name in names)) | {"job", "instance"}

        assert used <= names.keys(), expression
        assert labels <= known, expression
    assert len(asked) > 15
