"""Traces: carried from a web request to the web requests that come of it; recorded where somebody asks for spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crossdock.adapter.http.request import Credentials, Headers
from crossdock.errors import UsageError
from crossdock.message.context import Context
from crossdock.message.message import Message, Part, message_id
from crossdock.message.trace import Trace, as_trace, trace_of, with_trace
from crossdock.tracing import from_environment
from office import free_port
from partner import Partner, partner
from two_way import Opened, application, office, shop, shop_port
from walk import until

__all__ = ["office", "shop"]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
ORDER = '{"id": "1"}'


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Partner]:
    """Takes spans, as the environment says."""
    with partner() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield made


def spans(collector: Partner) -> dict[str, Any]:
    """By name, what has arrived."""
    found: dict[str, Any] = {}
    for request in list(collector.requests):
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            for scope in resource.scope_spans:
                found |= {span.name: span for span in scope.spans}
    return found


def ask(port: int, path: str, **headers: str) -> httpx.Response:
    return httpx.post(f"http://127.0.0.1:{port}{path}", content=ORDER, headers=headers, trust_env=False, timeout=60)


def test_trace_of_a_request_goes_on_with_what_is_sent(office: Opened, shop: Partner) -> None:
    port = free_port()
    office(application(port, shop_port(shop)))

    answer = ask(port, "/ask", traceparent=PARENT, tracestate=STATE)

    [sent] = shop.requests
    assert answer.status_code == 200
    assert (sent.headers["traceparent"], sent.headers["tracestate"]) == (PARENT, STATE)


@pytest.mark.parametrize(
    "parent", ["", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", f"ff-{TRACE}-00f067aa0ba902b7-01", "x"]
)
def test_what_is_no_trace_is_not_carried(office: Opened, shop: Partner, parent: str) -> None:
    port = free_port()
    office(application(port, shop_port(shop)))

    assert ask(port, "/ask", traceparent=parent, tracestate=STATE).status_code == 200
    assert {"traceparent", "tracestate"} & {name.lower() for name in shop.requests[0].headers} == set()


def test_spans_of_a_request_are_one_trace_from_receive_to_send(
    office: Opened, shop: Partner, collector: Partner
) -> None:
    port = free_port()
    office(application(port, shop_port(shop)))

    assert ask(port, "/ask", traceparent=PARENT).status_code == 200
    until(lambda: len(spans(collector)) == 3)

    found = spans(collector)
    received, published, sent = (found[f"{operation} {name}"] for operation, name in
                                 [("receive", "Ask.http"), ("publish", "Ask.http"), ("send", "Shop")])  # fmt: skip
    assert {span.trace_id.hex() for span in (received, published, sent)} == {TRACE}
    assert received.parent_span_id.hex() == "00f067aa0ba902b7"
    assert (published.parent_span_id, sent.parent_span_id) == (received.span_id, published.span_id)
    assert shop.requests[0].headers["traceparent"] == f"00-{TRACE}-{sent.span_id.hex()}-01"
    told = {each.key: each.value.string_value for each in sent.attributes}
    assert (told["messaging.system"], told["messaging.destination.name"]) == ("crossdock", "Shop")
    assert re.fullmatch(r"[0-9a-f-]{36}", told["messaging.message.id"])


def test_span_of_a_delivery_that_fails_tells_the_code_and_no_reason(
    office: Opened, shop: Partner, collector: Partner
) -> None:
    port = free_port()
    office(application(port, shop_port(shop, retry={"count": 0})))
    shop.respond = lambda _: (400, b"hunter2")

    assert ask(port, "/tell", traceparent=PARENT).status_code == 202
    until(lambda: "send Shop" in spans(collector))

    span = spans(collector)["send Shop"]
    assert {each.key: each.value.string_value for each in span.attributes}["error.type"] == "partner-refused"
    assert span.status.code == 2
    assert all(b"hunter2" not in request.body for request in collector.requests)


def test_request_without_a_trace_begins_one_where_spans_are_recorded(
    office: Opened, shop: Partner, collector: Partner
) -> None:
    port = free_port()
    office(application(port, shop_port(shop)))

    assert ask(port, "/ask").status_code == 200
    until(lambda: len(spans(collector)) == 3)

    assert len({span.trace_id for span in spans(collector).values()}) == 1
    assert "traceparent" in shop.requests[0].headers


def test_collector_that_is_away_hinders_nobody(
    office: Opened, shop: Partner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    port = free_port()
    office(application(port, shop_port(shop)))

    assert ask(port, "/ask", traceparent=PARENT).status_code == 200
    assert not [
        record for record in caplog.records if record.name.startswith("crossdock") and record.levelname == "ERROR"
    ]


@pytest.mark.parametrize(
    "variables",
    [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}],
)
def test_nothing_is_recorded_unless_somebody_asks(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    tracer = from_environment()

    with tracer.span("send", "Port", Trace(PARENT)) as span:
        assert span.trace == Trace(PARENT)
    assert not tracer.enabled


def test_unknown_exporter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")

    with pytest.raises(UsageError, match="names 'pigeon', which is not installed"):
        from_environment()


def test_header_that_the_author_of_a_port_writes_stays() -> None:
    context = with_trace(Context(), Trace(PARENT, STATE))
    message = Message(message_id(1, 1, 1), context, (Part("body", b""),))
    given_headers = {"TraceParent": "mine"}

    headers, _ = Headers(given_headers, "text/plain", Credentials()).of(message)

    assert [value for name, value in headers if name.lower().startswith(b"trace")] == [b"mine"]


@given(parent=st.text() | st.just(PARENT), state=st.text(max_size=600) | st.none())
def test_only_what_a_header_can_hold_is_carried(parent: str, state: str | None) -> None:
    trace = as_trace(parent, state)

    if trace is not None:
        carried = trace.parent + trace.state
        assert carried.isascii()
        assert all(letter.isprintable() or letter == "\t" for letter in carried)
        assert len(trace.state) <= 512
        assert trace_of(with_trace(Context(), trace)) == trace
    else:
        assert parent != PARENT


def test_state_that_is_none_is_found_out_as_quickly_as_one_that_is() -> None:
    assert as_trace(PARENT, "a" * 511 + "\xe9") == Trace(PARENT)
    assert as_trace(PARENT, "a\t" * 255 + "a" + "\n") == Trace(PARENT)
