"""Every metric, named once: what `/metrics` serves, what the reference says, what dashboards and alerts may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["process", "box"]


@dataclass(frozen=True, slots=True)
class Metric:
    """`scope`: of this process, to be added up; or of the whole MessageBox, the same wherever it is asked for."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = "box"


_PORT = ("application", "port")
_LOCATION = ("application", "location")

METRICS = (
    Metric("crossdock_info", "gauge", "1; the label names the version of Crossdock.", ("version",), "process"),
    Metric("crossdock_database_reachable", "gauge", "1 if PostgreSQL answered this process lately, else 0.", (), "process"),
    Metric("crossdock_process_in_hand_references", "gauge", "References that this process has claimed and not settled.", ("host",), "process"),
    Metric("crossdock_log_records_total", "counter", "Lines logged by this process.", ("level",), "process"),
    Metric("crossdock_sample_age_seconds", "gauge", "Age of the sample that the metrics of the MessageBox come from."),
    Metric("crossdock_messages_received_total", "counter", "Messages received at all locations."),
    Metric("crossdock_messages_published_total", "counter", "Received messages that went to at least one subscriber."),
    Metric("crossdock_messages_unrouted_total", "counter", "Received messages that no subscription matched."),
    Metric("crossdock_messages_receive_suspended_total", "counter", "Received messages that were suspended at receive."),
    Metric("crossdock_deliveries_total", "counter", "References delivered."),
    Metric("crossdock_delivery_retries_total", "counter", "Attempts to deliver that failed and are made again."),
    Metric("crossdock_delivery_suspensions_total", "counter", "Deliveries that were suspended."),
    Metric("crossdock_sources_unread", "gauge", "Sources that are listed and not received yet."),
    Metric("crossdock_references_ready", "gauge", "References that wait to be taken."),
    Metric("crossdock_references_claimed", "gauge", "References in the hands of host instances."),
    Metric("crossdock_references_waiting", "gauge", "References that wait for another attempt, a service window or their turn."),
    Metric("crossdock_references_suspended", "gauge", "Suspended references, unrouted messages among them, by code and kind; the 100 most frequent.", ("code", "kind")),
    Metric("crossdock_oldest_ready_age_seconds", "gauge", "Age of the message that has waited longest to be taken; 0 if none waits."),
    Metric("crossdock_orchestration_instances_running", "gauge", "Instances of orchestrations that run."),
    Metric("crossdock_orchestration_instances_suspended", "gauge", "Instances of orchestrations that are suspended."),
    Metric("crossdock_spool_messages", "gauge", "Messages stored."),
    Metric("crossdock_database_size_bytes", "gauge", "Size of the database."),
    Metric("crossdock_ports_left_out", "gauge", "Ports and orchestrations that are not among the busiest 1,000 and have no metrics of their own."),
    Metric("crossdock_host_instances", "gauge", "Living instances of a host, by state.", ("host", "state")),
    Metric("crossdock_host_in_hand_references", "gauge", "References in the hands of all instances of a host.", ("host",)),
    Metric("crossdock_host_references_ready", "gauge", "References that wait at a host to be taken.", ("host",)),
    Metric("crossdock_host_oldest_ready_age_seconds", "gauge", "Age of the message that has waited longest at a host; 0 if none waits.", ("host",)),
    Metric("crossdock_port_deliveries_total", "counter", "References delivered by a send port.", _PORT),
    Metric("crossdock_port_retries_total", "counter", "Attempts of a send port that failed and are made again.", _PORT),
    Metric("crossdock_port_suspensions_total", "counter", "Deliveries of a send port that were suspended.", _PORT),
    Metric("crossdock_port_references_ready", "gauge", "References of a send port that wait to be taken or are being delivered.", _PORT),
    Metric("crossdock_port_references_waiting", "gauge", "References of a send port that wait for another attempt, a service window or their turn.", _PORT),
    Metric("crossdock_port_references_suspended", "gauge", "Suspended references of a send port.", _PORT),
    Metric("crossdock_port_oldest_ready_age_seconds", "gauge", "Age of the message that has waited longest for a send port; 0 if none waits.", _PORT),
    Metric("crossdock_orchestration_messages_total", "counter", "Messages given to an orchestration.", ("application", "orchestration")),
    Metric("crossdock_orchestration_instances", "gauge", "Instances of an orchestration.", ("application", "orchestration", "state")),
    Metric("crossdock_location_received_total", "counter", "Messages received at a location.", _LOCATION),
    Metric("crossdock_location_published_total", "counter", "Messages of a location that went to at least one subscriber.", _LOCATION),
    Metric("crossdock_location_unrouted_total", "counter", "Messages of a location that no subscription matched.", _LOCATION),
    Metric("crossdock_location_suspended_total", "counter", "Messages of a location that were suspended at receive.", _LOCATION),
    Metric("crossdock_location_sources_unread", "gauge", "Sources of a location that are listed and not received yet.", _LOCATION),
    Metric("crossdock_location_sources_failing", "gauge", "Sources of a location that could not be read and are tried again.", _LOCATION),
)  # fmt: skip

_HEAD = """# Metrics

Made by `python -m crossdock.monitoring.metrics` from `monitoring/metrics.py`; a test keeps it current. How to use them:
[monitor](../how-to/monitor.md).

`run`, `host` and `pipeline` serve these under `--metrics ADDRESS` at `/metrics`, in the text format of Prometheus.
Counters count from the creation of the MessageBox (those of a process from its start) and lag by up to 10 seconds.
Besides, `process_*` (CPU, memory, open files, start time) come from the Prometheus client library.

Metrics of the *MessageBox* are the same whichever process is asked, since all of them read the same sample. Ask with
`max by (…)`, so that several processes do not count twice: `max by (port) (rate(crossdock_port_deliveries_total[5m]))`.
A process that works under the database role of a host serves only those of the *process*. They are left out while
the newest sample is older than a minute.

Labels are bounded: the busiest 1,000 send ports and orchestrations, 1,000 receive locations, 100 codes.
"""


def page() -> str:
    """The reference, as it stands in the documentation."""
    parts = [_HEAD]
    titles: dict[Scope, str] = {"process": "Of the process", "box": "Of the MessageBox"}
    for scope, title in titles.items():
        parts.append(f"\n## {title}\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
        for metric in METRICS:
            if metric.scope == scope:
                labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
                parts.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n")
    return "".join(parts)


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
