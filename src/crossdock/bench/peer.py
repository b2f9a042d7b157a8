"""The same messages through an exchange of RabbitMQ, as fast as Python can: durable, persistent, confirmed.

Headers: every subscription is a binding with `x-match: all` over the equalities of its filter; promoted properties are
the headers. Topic: message type and customer are the routing key, which the sender has to know. Neither knows ranges;
that part of a filter, which every message meets here, is left out. Each message goes to as many queues as it
has copies, and consumers acknowledge it. Half a minute of it is enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any, Literal
from uuid import uuid4

from crossdock.bench.traffic import MESSAGE_TYPE, Traffic, lines_of_json
from crossdock.errors import UnavailableError, UsageError

SECONDS = 30.0
_PUBLISHERS = 2
_WINDOW = 250  # messages of one publisher that are not confirmed yet
_PREFETCH = 1_000
_ACKNOWLEDGED_TOGETHER = 100
_STUCK_SECONDS = 120.0
_HEARTBEAT_SECONDS = 600  # binding and routing among many bindings leave a connection alone for long

Progress = Callable[[str], None]
Kind = Literal["headers", "topic"]


def peer_rate(
    traffic: Traffic, url: str, progress: Progress, *, kind: Kind = "headers", seconds: float = SECONDS
) -> float:
    """Messages per second from the first one sent to the last copy acknowledged. Leaves nothing behind."""
    with _exchange(traffic, url, kind, progress) as exchange:
        progress(f"up to {traffic.messages:,} messages through a {kind} exchange of RabbitMQ")
        return _through(traffic, url, exchange, seconds)


def check_peer(url: str) -> None:
    """Raise in one sentence what would go wrong later."""
    _connection(url).close()


@contextmanager
def _exchange(traffic: Traffic, url: str, kind: Kind, progress: Progress) -> Iterator[str]:
    """An exchange with a queue for each copy and a binding for each subscription, gone again afterwards."""
    name = f"crossdock-bench-{uuid4().hex[:8]}"
    channel = _connection(url).channel()
    try:
        channel.exchange_declare(name, kind, durable=True)
        for copy in range(traffic.copies):
            channel.queue_declare(_queue(name, copy), durable=True)
        progress(f"binding {traffic.subscriptions:,} subscriptions in RabbitMQ")
        for number in range(traffic.subscriptions):
            customer, copy = divmod(number, traffic.copies)
            wanted = {"MessageType": MESSAGE_TYPE, "Customer": traffic.wanted(customer)}
            channel.queue_bind(_queue(name, copy), name, _key(wanted), arguments={"x-match": "all", **wanted})
        yield name
    finally:
        for copy in range(traffic.copies):
            channel.queue_delete(_queue(name, copy))
        channel.exchange_delete(name)
        channel.connection.close()


def _through(traffic: Traffic, url: str, exchange: str, seconds: float) -> float:
    context = get_context("spawn")
    sent, taken, go, done = context.Value("q", 0), context.Value("q", 0), context.Event(), context.Event()
    ready = context.Semaphore(0)
    publishers = [
        context.Process(target=_publish, args=(traffic, url, exchange, n, seconds, ready, go, sent), daemon=True)
        for n in range(_PUBLISHERS)
    ]
    consumer = context.Process(target=_consume, args=(traffic, url, exchange, ready, done, taken), daemon=True)
    try:
        for process in (*publishers, consumer):
            process.start()
        for _ in range(_PUBLISHERS + 1):
            _expect(ready.acquire(timeout=_STUCK_SECONDS))
        began = time.perf_counter()
        go.set()
        for process in publishers:
            process.join(seconds + _STUCK_SECONDS)
            _expect(process.exitcode == 0)
        _wait_for(lambda: taken.value >= sent.value * traffic.copies)
        return float(sent.value / (time.perf_counter() - began))
    finally:
        done.set()
        consumer.join(_STUCK_SECONDS)
        for process in (*publishers, consumer):
            process.kill()


def _expect(fine: bool) -> None:
    if not fine:
        raise UnavailableError("RabbitMQ stopped taking or giving messages; look at its log")


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _STUCK_SECONDS
    while not condition():
        _expect(time.monotonic() < deadline)
        time.sleep(0.005)


def _publish(
    traffic: Traffic, url: str, exchange: str, first: int, seconds: float, ready: Any, go: Event, sent: Any
) -> None:
    """A process of its own: every n-th message, a window of them at a time, until they or the time are used up."""
    import pika

    properties = pika.BasicProperties
    numbers = iter(range(first, traffic.messages, _PUBLISHERS))
    state = {"sent": 0, "until": 0.0, "more": True}
    unconfirmed: set[float] = set()

    def fill(channel: Any) -> None:
        while state["more"] and len(unconfirmed) < _WINDOW:
            number = next(numbers, None) if time.monotonic() < state["until"] else None
            if number is None:
                state["more"] = False
                break
            headers = traffic.promoted(number)
            body = lines_of_json(traffic, range(number, number + 1))
            channel.basic_publish(exchange, _key(headers), body, properties(headers=headers, delivery_mode=2))
            state["sent"] += 1
            unconfirmed.add(state["sent"])
        if not state["more"] and not unconfirmed:
            channel.connection.close()

    def confirmed(channel: Any, frame: Any) -> None:
        if isinstance(frame.method, pika.spec.Basic.Nack):
            raise RuntimeError("RabbitMQ refused a message")
        tag = frame.method.delivery_tag
        done = {each for each in unconfirmed if each <= tag} if frame.method.multiple else {tag}
        unconfirmed.difference_update(done)
        fill(channel)

    def begin(channel: Any) -> None:
        channel.confirm_delivery(lambda frame: confirmed(channel, frame))
        ready.release()
        go.wait()
        state["until"] = time.monotonic() + seconds
        fill(channel)

    connection = pika.SelectConnection(
        _parameters(url),
        on_open_callback=lambda opened: opened.channel(on_open_callback=begin),
        on_close_callback=lambda closed, _: closed.ioloop.stop(),
    )
    connection.ioloop.start()
    with sent.get_lock():
        sent.value += int(state["sent"]) - len(unconfirmed)


def _consume(traffic: Traffic, url: str, exchange: str, ready: Any, done: Event, taken: Any) -> None:
    """A process of its own: takes from every queue and acknowledges a hundred at a time, or what there is."""
    connection = _connection(url)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=_PREFETCH)
    last = acknowledged = 0

    def acknowledge() -> None:
        nonlocal acknowledged
        if last > acknowledged:
            channel.basic_ack(last, multiple=True)
            acknowledged = taken.value = last

    def take(_: Any, method: Any, __: Any, ___: bytes) -> None:
        nonlocal last
        last = method.delivery_tag
        if last - acknowledged >= _ACKNOWLEDGED_TOGETHER:
            acknowledge()

    for copy in range(traffic.copies):
        channel.basic_consume(_queue(exchange, copy), take)
    ready.release()
    while not done.is_set():
        connection.process_data_events(time_limit=0.02)
        acknowledge()
    connection.close()


def _connection(url: str) -> Any:
    try:
        import pika
    except ImportError as error:
        raise UsageError("Comparing with RabbitMQ needs pika. Install it with: pip install crossdock[peer]") from error
    try:
        return pika.BlockingConnection(_parameters(url))
    except (pika.exceptions.AMQPError, OSError) as error:
        raise UnavailableError(f"RabbitMQ cannot be reached at the --peer-url: {error!r}") from error


def _parameters(url: str) -> Any:
    import pika

    try:
        parameters = pika.URLParameters(url)
    except ValueError as error:
        raise UsageError(
            f"--peer-url is not the URL of a RabbitMQ server, such as amqp://host:5672: {error}"
        ) from error
    parameters.heartbeat = _HEARTBEAT_SECONDS
    return parameters


def _key(headers: Mapping[str, object]) -> str:
    """What a topic exchange routes by; a headers exchange does not look at it."""
    return f"{headers['MessageType']}.{headers['Customer']}"


def _queue(exchange: str, copy: int) -> str:
    return f"{exchange}-{copy}"
