"""How fast files go through the bulk lane on Spark into queues, out of them, and both at the same time.

The files are complete before the clock starts, Spark runs and its workers have published before. *published*: until the
last message is committed. *end to end*: until the last reference is settled, which is what another broker is compared
by. Messages and references are counted in the store, not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import psycopg

from crossdock.adapter.file.transport import MINIMUM_AGE_SECONDS
from crossdock.application.model import DEFAULT_HOST
from crossdock.bench.ceiling import copy_ceiling, empty
from crossdock.bench.follower import Correlations, deploy_follower
from crossdock.bench.lane import Lane, deployed_locations, running_lane, write_files
from crossdock.bench.memory import PeakMemory
from crossdock.bench.messagebox import fresh_messagebox
from crossdock.bench.peer import check_peer, peer_rate
from crossdock.bench.traffic import FORMATS, Format, Traffic, deployment
from crossdock.message.message import random_bits
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Level
from crossdock.receive.item import IntakeItem

_CEILING_MESSAGES, _CEILING_BATCH = 50_000, 2_500
_WARM_UP_MESSAGES, _WARM_UP_ROUNDS = 50_000, 2
_COUNT = """
    SELECT (SELECT count(*) FROM message),
           (SELECT count(*) FROM (SELECT DISTINCT context -> 'promoted' ->> 'OrderId' FROM message) AS number),
           (SELECT count(*) FROM queue),
           (SELECT count(*) FROM (SELECT DISTINCT message_id, subscription_id FROM queue) AS pair)
"""

Progress = Callable[[str], None]
Figures = dict[str, Any]


def bench_throughput(
    traffic: Traffic,
    *,
    format_: str,
    database: str,
    peer_url: str,
    progress: Progress,
    tracking: Level = "events",
    correlation: Correlations = "none",
) -> Figures:
    """Every figure of one run; rates are of wall-clock seconds. With `peer_url` the same goes through RabbitMQ."""
    if peer_url:
        check_peer(peer_url)
    with fresh_messagebox(database) as (agent, home):
        folder = home / "in"
        folder.mkdir()
        progress(f"deploying {traffic.subscriptions:,} subscriptions")
        agent.subscriptions.deploy(deployment(traffic, FORMATS[format_], folder, tracking))
        of_messages = FORMATS[format_].message_type
        deploy_follower(
            agent, home, correlation, host=DEFAULT_HOST, message_type=of_messages, property_=("Customer", "text")
        )
        ceilings = [_ceiling(agent, traffic, FORMATS[format_], progress)]
        progress("starting Spark")
        with running_lane(agent, home) as lane:
            figures = _through(lane, traffic, FORMATS[format_], folder, progress)
        empty(agent.database)
        ceilings.append(_ceiling(agent, traffic, FORMATS[format_], progress))
    return {
        "tracking": tracking,
        "correlation": correlation,
        **_figures(traffic, format_, ceilings, figures),
        **(_peer(traffic, peer_url, figures["end_to_end_per_s"], progress) if peer_url else {}),
    }


def _figures(traffic: Traffic, format_: str, ceilings: Sequence[float], figures: Figures) -> Figures:
    return {
        "messages": traffic.messages,
        "subscriptions": traffic.subscriptions,
        "references_per_message": traffic.copies,
        "body_bytes": traffic.body,
        "format": format_,
        "copy_ceiling_per_s": round(mean(ceilings)),
        "ratio_to_copy": round(figures["published_per_s"] / mean(ceilings), 3),
        **figures,
        "copy_ceiling_per_s_each": [round(each) for each in ceilings],
    }


def _peer(traffic: Traffic, url: str, ours: float, progress: Progress) -> Figures:
    """Like with like: from the first message sent to the last copy acknowledged, against our end to end."""
    headers = peer_rate(traffic, url, progress)
    topic = peer_rate(traffic, url, progress, kind="topic")
    return {
        "peer": "rabbitmq",
        "peer_per_s": round(headers, 1),
        "ratio_to_peer": round(ours / headers, 1),
        "peer_topic_per_s": round(topic, 1),
        "ratio_to_peer_topic": round(ours / topic, 2),
    }


def _ceiling(agent: Agent, traffic: Traffic, format_: Format, progress: Progress) -> float:
    """Of rows as the lane makes them: the messages have been through the pipeline of the location."""
    progress("the same rows by COPY alone")
    batches = _publications(agent, replace(traffic, messages=min(traffic.messages, _CEILING_MESSAGES)), format_)
    rate = copy_ceiling(agent.database, agent.router(), batches)
    empty(agent.database)
    return rate


def _publications(agent: Agent, traffic: Traffic, format_: Format) -> Sequence[Publication]:
    [location] = deployed_locations(agent).values()
    made = []
    for start in range(0, traffic.messages, _CEILING_BATCH):
        content = format_.content(traffic, range(start, min(start + _CEILING_BATCH, traffic.messages)))
        item = IntakeItem(start + 1, location.id, b"1:1:1:bench", len(content), random_bits())
        made.append(location.publication(item, content))
    return made


def _through(lane: Lane, traffic: Traffic, format_: Format, folder: Path, progress: Progress) -> Figures:
    """Warm up, publish, count, deliver."""
    progress("warming up")
    few = replace(traffic, messages=min(traffic.messages, _WARM_UP_MESSAGES))
    for _ in range(_WARM_UP_ROUNDS if few.messages < traffic.messages else 1):
        write_files(few, format_, folder)
        lane.publish(few.messages)
        lane.deliver(few.messages * few.copies)
    lane.stages()
    empty(lane.agent.database)
    delivered_before = lane.agent.statistics().delivered
    progress(f"writing {traffic.messages:,} messages to files")
    write_files(traffic, format_, folder)
    memory = PeakMemory(lane.spark.process.pid)
    memory.start()
    progress(f"publishing {traffic.messages:,} messages")
    publishing = lane.publish(traffic.messages)
    stages = lane.stages()
    progress("counting")
    messages, different, references, pairs = _count(lane.agent.database)
    expected = traffic.messages * traffic.copies
    progress(f"delivering {references:,} references")
    through_port, bare = lane.deliver(references)
    memory.stop()
    delivered = lane.agent.statistics().delivered - delivered_before
    progress(f"publishing and delivering {traffic.messages:,} messages at the same time")
    empty(lane.agent.database)
    write_files(traffic, format_, folder)
    end_to_end = lane.end_to_end(traffic.messages, expected)
    progress("ten files a second")
    latencies = sorted(lane.latency(traffic, format_, folder))
    return {
        "published_per_s": round(traffic.messages / publishing),
        "end_to_end_per_s": round(traffic.messages / end_to_end),
        "end_to_end_references_per_s": round(expected / end_to_end),
        "delivered_per_s": round(through_port),
        "dequeued_per_s": round(bare),
        "ratio_to_dequeue": round(through_port / bare, 3) if bare else None,
        "lost": traffic.messages - different + expected - min(pairs, delivered),
        "doubled": messages - different + max(references, delivered) - pairs,
        # A file counts as complete when it has not changed for a while.
        "file_latency_p50_ms": _milliseconds(median(latencies) - MINIMUM_AGE_SECONDS),
        "file_latency_p99_ms": _milliseconds(latencies[int(0.99 * len(latencies))] - MINIMUM_AGE_SECONDS),
        "file_latency_since_written_p50_ms": _milliseconds(median(latencies)),
        "stages": {
            **{name: round(seconds, 2) for name, seconds in stages.items()},
            "publish_wall": round(publishing, 2),
        },
        "peak_memory": memory.peak,
    }


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _count(database: str) -> tuple[int, int, int, int]:
    """(messages, different orders, references, different references) in the store."""
    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        connection.execute("SET work_mem = '256MB'")
        row = connection.execute(_COUNT).fetchone()
    assert row is not None
    return row[0], row[1], row[2], row[3]
