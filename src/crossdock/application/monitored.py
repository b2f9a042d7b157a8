"""Lets others see how a process is, if that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from crossdock.messagebox.agent import Agent
from crossdock.monitoring.server import MetricsServer
from crossdock.monitoring.watch import Watch
from crossdock.settings import Settings
from crossdock.tracing import from_environment


def trace_messages(stack: ExitStack, agent: Agent) -> None:
    """Record spans until the stack is left, if the environment asks for them."""
    agent.tracer = from_environment()
    stack.callback(agent.tracer.close)


def serve_metrics(
    stack: ExitStack, settings: Settings, agent: Agent, in_hand: Callable[[], Mapping[int, int]], *, maintains: bool
) -> MetricsServer | None:
    """`/metrics` and `/health` until the stack is left. `in_hand` says what each host of ours holds.

    `maintains`: our database user takes samples, and may read them.
    """
    if not settings.metrics:
        return None
    server = MetricsServer(settings.metrics, Watch(agent, in_hand, maintains))
    server.start()
    stack.callback(server.stop)
    return server
