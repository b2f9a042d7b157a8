"""Who else is on the machine reaches the ports of our Spark, and must not be listened to."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started

from crossdock.dataflow.session import Spark


def test_stranger_on_this_machine_hands_no_object_to_the_spark_driver(spark: Spark) -> None:
    port = int(str(spark.session.sparkContext.getConf().get("spark.driver.port")))
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(_request_with_an_object_of("stranger.Unknown", port))

        answer = stranger.recv(65536)

    assert b"stranger.Unknown" not in answer
    assert b"ClassNotFound" not in answer
    assert list((spark.folder / "tmp").iterdir())


def test_stranger_on_this_machine_calls_nothing_in_this_process_by_the_way_spark_calls_back(spark: Spark) -> None:
    gateway: Any = spark.session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    called: list[str] = []
    name = gateway.gateway_property.pool.put(called)

    port = gateway._callback_server.port
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(f"c\n{name}\nappend\nsby a stranger\ne\n".encode())
        stranger.recv(1000)

    assert called == []


def test_spark_calls_back_though_strangers_cannot(spark: Spark) -> None:
    gateway: Any = spark.session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]

    class Comparator:
        """Java's own code asks us which of two texts is the smaller one."""

        def compare(self, one: str, other: str) -> int:
            return (one < other) - (one > other)

        class Java:
            implements: ClassVar = ["java.util.Comparator"]

    texts = gateway.jvm.java.util.ArrayList()
    for text in ("a", "c", "b"):
        texts.add(text)
    gateway.jvm.java.util.Collections.sort(texts, Comparator())

    assert list(texts) == ["c", "b", "a"]


def _request_with_an_object_of(name: str, port: int) -> bytes:
    """A request of Spark's, as nobody has authenticated it: Java looks for the class of the object in it."""
    written = b"\xac\xed\x00\x05sr" + _text(name) + bytes(8) + b"\x02\x00\x00xp"
    body = b"\0\1" + _text("127.0.0.1") + struct.pack(">i", port) + _text("endpoint-verifier") + written
    head = b"\x03" + struct.pack(">qi", 4242, len(body))
    return struct.pack(">q", 8 + len(head) + len(body)) + head + body


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()
