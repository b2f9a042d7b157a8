"""Spans for OpenTelemetry, if somebody asks for them: receive, publish and send, of messages that carry a trace.

Without that a trace is only carried on. The environment variables are those of the SDK.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from crossdock.errors import CrossdockError, UsageError
from crossdock.message.trace import Trace, as_trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OpenTelemetrySpan

Operation = Literal["receive", "publish", "send"]
_ASKING = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_FLUSH_MILLISECONDS = 5000
_NOTHING: Mapping[str, str | int] = MappingProxyType({})

logger = logging.getLogger(__name__)


class Span:
    """One that has begun. `trace` is what whoever comes after it carries."""

    def __init__(self, trace: Trace | None, recorded: OpenTelemetrySpan | None = None) -> None:
        self.trace = trace
        self._recorded = recorded

    def failed(self, code: str) -> None:
        """It ends badly. The code is told, and never a reason: that may quote a message."""
        if self._recorded is not None:
            from opentelemetry.trace import StatusCode

            self._recorded.set_attribute("error.type", code)
            self._recorded.set_status(StatusCode.ERROR)


class Tracer:
    """Threads share it. Without a provider nothing is recorded, and every trace goes on as it came."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer("crossdock")

    @property
    def enabled(self) -> bool:
        return self._tracer is not None

    @contextmanager
    def span(
        self, operation: Operation, name: str, trace: Trace | None, attributes: Mapping[str, str | int] = _NOTHING
    ) -> Iterator[Span]:
        """Until the block is left. `name` is the port or the location. An error that leaves it is its outcome."""
        if self._tracer is None:
            yield Span(trace)
            return
        told = {
            "messaging.system": "crossdock",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": name,
            **attributes,
        }
        # Not made the current one: what happens here happens in many threads, and on event loops.
        recorded = self._tracer.start_span(
            f"{operation} {name}", context=_parent(trace), kind=_kind(operation), attributes=told
        )
        span = Span(_carried(recorded), recorded)
        try:
            yield span
        except BaseException as error:
            span.failed(error.code if isinstance(error, CrossdockError) else type(error).__name__)
            raise
        finally:
            recorded.end()

    def close(self) -> None:
        """What is recorded goes out, for a few seconds at most."""
        if self._provider is not None:
            self._provider.force_flush(_FLUSH_MILLISECONDS)
            self._provider.shutdown()


def from_environment() -> Tracer:
    """Records where `OTEL_TRACES_EXPORTER` or an endpoint for OTLP says so. Raises UsageError if that cannot be."""
    exporters = [each.strip() for each in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if disabled or not any(map(os.environ.get, _ASKING)) or exporters == ["none"]:
        return Tracer()
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    except ImportError:
        logger.warning("Traces are asked for, and OpenTelemetry is not installed: pip install 'crossdock[otel]'")
        return Tracer()
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "crossdock"}
    provider = TracerProvider(resource=Resource.create(named))  # the sampler and the limits are those of the variables
    for name in exporters:
        exporter = _exporter(name)
        assert isinstance(exporter, SpanExporter)
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracer(provider)


def _exporter(name: str) -> Any:
    """By the entry point that OpenTelemetry's packages have for it."""
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        raise UsageError(f"OTEL_TRACES_EXPORTER names {name!r}, which is not installed; otlp and console are.")
    return found[0].load()()


def _parent(trace: Trace | None) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {} if trace is None else {"traceparent": trace.parent, "tracestate": trace.state}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _carried(recorded: OpenTelemetrySpan) -> Trace | None:
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(recorded))
    return as_trace(carrier.get("traceparent"), carrier.get("tracestate"))


def _kind(operation: Operation) -> Any:
    from opentelemetry.trace import SpanKind

    return {"receive": SpanKind.SERVER, "publish": SpanKind.PRODUCER, "send": SpanKind.CLIENT}[operation]
