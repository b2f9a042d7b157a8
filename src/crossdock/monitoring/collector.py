"""Makes metrics of what the watch knows. It asks nobody: a scrape is answered from memory."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from crossdock.messagebox.sample import BoxSample, DetailSample, LocationSample, ServiceSample
from crossdock.monitoring.metrics import METRICS
from crossdock.monitoring.watch import Watch

Value = tuple[str, tuple[str, ...], float]
_ORCHESTRATION = "orchestration"


class WatchCollector(Collector):
    """For the registry of one process."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        families = {each.name: _family(each.name, each.kind, each.help, each.labels) for each in METRICS}
        for name, labels, value in self._values():
            families[name].add_metric(labels, value)
        yield from families.values()

    def _values(self) -> Iterator[Value]:
        yield from _process(self._watch)
        if (found := self._watch.sample()) is not None:
            sample, age = found
            yield "crossdock_sample_age_seconds", (), age
            yield from _box(sample.box)
            yield from _details(sample.details)


def _family(name: str, kind: str, help_: str, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    return made(name.removesuffix("_total"), help_, labels=labels)


def _process(watch: Watch) -> Iterator[Value]:
    yield "crossdock_info", (_version(),), 1
    yield "crossdock_database_reachable", (), float(watch.reachable)
    for host, count in watch.held().items():
        yield "crossdock_process_in_hand_references", (host,), count
    for level, count in watch.logged().items():
        yield "crossdock_log_records_total", (level,), count


def _version() -> str:
    try:
        return version("crossdock")
    except PackageNotFoundError:
        return "unknown"


def _box(box: BoxSample) -> Iterator[Value]:
    total = box.total
    whole = {
        "messages_received_total": total.received,
        "messages_published_total": total.published,
        "messages_unrouted_total": total.unrouted,
        "messages_receive_suspended_total": total.receive_suspended,
        "deliveries_total": total.delivered,
        "delivery_retries_total": total.retried,
        "delivery_suspensions_total": total.suspended,
        "sources_unread": box.unread,
        "references_ready": box.ready,
        "references_claimed": box.claimed,
        "references_waiting": box.waiting,
        "oldest_ready_age_seconds": box.oldest_seconds or 0,
        "orchestration_instances_running": box.instances,
        "orchestration_instances_suspended": box.suspended_instances,
        "spool_messages": box.spool_messages,
        "database_size_bytes": box.database_bytes,
        "ports_left_out": box.ports_left_out,
    }
    for name, value in whole.items():
        yield f"crossdock_{name}", (), value
    for each in box.suspensions:
        if each.kind != "instance":
            yield "crossdock_references_suspended", (each.code, each.kind), each.count
    for host in box.hosts:
        for state, count in {"running": 0, **host.instances}.items():
            yield "crossdock_host_instances", (host.name, state), count
        yield "crossdock_host_in_hand_references", (host.name,), host.in_hand
        yield "crossdock_host_references_ready", (host.name,), host.ready
        yield "crossdock_host_oldest_ready_age_seconds", (host.name,), host.oldest_seconds or 0


def _details(details: DetailSample) -> Iterator[Value]:
    for service in details.services:
        yield from _orchestration(service) if service.class_ == _ORCHESTRATION else _port(service)
    for location in details.locations:
        yield from _location(location)


def _port(port: ServiceSample) -> Iterator[Value]:
    figures = {
        "deliveries_total": port.delivered,
        "retries_total": port.retried,
        "suspensions_total": port.failed,
        "references_ready": port.ready + port.claimed,
        "references_waiting": port.waiting,
        "references_suspended": port.suspended,
        "oldest_ready_age_seconds": port.oldest_seconds or 0,
    }
    for name, value in figures.items():
        yield f"crossdock_port_{name}", (port.application, port.name), value


def _orchestration(service: ServiceSample) -> Iterator[Value]:
    labels = service.application, service.name
    yield "crossdock_orchestration_messages_total", labels, service.delivered
    yield "crossdock_orchestration_instances", (*labels, "running"), service.running_instances
    yield "crossdock_orchestration_instances", (*labels, "suspended"), service.suspended_instances


def _location(location: LocationSample) -> Iterator[Value]:
    figures = {
        "received_total": location.received,
        "published_total": location.published,
        "unrouted_total": location.unrouted,
        "suspended_total": location.suspended,
        "sources_unread": location.unread,
        "sources_failing": location.failing,
    }
    for name, value in figures.items():
        yield f"crossdock_location_{name}", (location.application, location.name), value
