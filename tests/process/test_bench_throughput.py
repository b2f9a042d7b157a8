"""The throughput benchmark on a small scale: it takes the real path, counts what the store holds, and leaves nothing."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from crossdock.bench.peer import check_peer, peer_rate
from crossdock.bench.throughput import bench_throughput
from crossdock.bench.traffic import FORMATS, Traffic, deployment
from crossdock.errors import UnavailableError, UsageError
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import ReceiveLocation
from crossdock.subscription.match import Matcher

_PEER_URL = os.environ.get("CROSSDOCK_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672")


def test_every_message_is_wanted_by_as_many_subscriptions_as_was_asked_for() -> None:
    traffic = Traffic(messages=20, subscriptions=11, copies=3, body=0)
    matcher = Matcher()

    wanted = [
        sum(
            matcher.matches(
                filter_, {"BTS.MessageType": "Order", "Customer": traffic.customer(n), "Amount": Decimal(100)}
            )
            for filter_ in traffic.filters()
        )
        for n in range(traffic.messages)
    ]

    assert wanted == [3] * 20


@pytest.mark.parametrize("name", FORMATS)
def test_format_gives_every_message_its_properties(name: str, folder: Path) -> None:
    traffic, format_ = Traffic(messages=7, subscriptions=6, copies=3, body=300), FORMATS[name]
    made = deployment(traffic, format_, folder)
    location = ReceiveLocation.from_definition(1, 1, made.locations[0].definition)

    publication = location.publication(IntakeItem(1, 1, b"1:1:1:x", 0, 1), format_.content(traffic, range(7)))

    assert [message.context.get("OrderId") for message in publication.messages] == [f"00000000{n}" for n in range(7)]
    for message in publication.messages:
        wanting = [port for port in made.ports if Matcher().matches(port.filter, message.context.promoted)]
        assert len(wanting) == 3


def test_body_has_the_size_that_was_asked_for() -> None:
    content = FORMATS["jsonl"].content(Traffic(messages=5, subscriptions=3, copies=3, body=1_024), range(5))

    assert [len(line) for line in content.splitlines()] == [1_024] * 5


def test_more_copies_than_subscriptions_are_refused() -> None:
    with pytest.raises(UsageError, match="at least as many --subscriptions"):
        Traffic(messages=1, subscriptions=2, copies=3, body=0)


def test_small_run_loses_nothing_doubles_nothing_and_gives_every_figure(empty_database: str) -> None:
    traffic = Traffic(messages=300, subscriptions=20, copies=3, body=512)
    said: list[str] = []

    figures = bench_throughput(traffic, format_="jsonl", database=empty_database, peer_url="", progress=said.append)

    assert (figures["lost"], figures["doubled"]) == (0, 0)
    assert figures["published_per_s"] > 0
    assert figures["delivered_per_s"] > 0
    assert figures["ratio_to_copy"] == pytest.approx(
        figures["published_per_s"] / figures["copy_ceiling_per_s"], abs=0.002
    )
    assert set(figures["stages"]) == {"read_and_promote", "match", "store", "publish_wall"}
    assert set(figures["peak_memory"]) == {"driver", "jvm", "python_workers"}
    assert all(size > 0 for size in figures["peak_memory"].values())
    assert "publishing 300 messages" in said


def test_same_messages_go_through_rabbitmq() -> None:
    pytest.importorskip("pika", reason="pika is not installed: pip install crossdock[peer]")
    try:
        check_peer(_PEER_URL)
    except UnavailableError:
        pytest.skip(f"no RabbitMQ at {_PEER_URL}; name one in CROSSDOCK_TEST_RABBITMQ")

    assert peer_rate(Traffic(messages=200, subscriptions=10, copies=3, body=256), _PEER_URL, lambda _: None) > 0


def test_peer_that_is_not_there_is_named_in_one_sentence() -> None:
    pytest.importorskip("pika", reason="pika is not installed: pip install crossdock[peer]")

    with pytest.raises(UnavailableError, match="RabbitMQ cannot be reached"):
        check_peer("amqp://guest:guest@127.0.0.1:1?connection_attempts=1&socket_timeout=1")
