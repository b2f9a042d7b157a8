"""Crossdock: an open MessageBox on Apache Spark and PostgreSQL.

Importing it is cheap: the names below load their modules when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossdock.application.builder import Application, boolean, datetime, decimal, float_, integer, text
    from crossdock.errors import DeliveryFailed, OrchestrationError, Timeout
    from crossdock.message.message import Message, Part
    from crossdock.orchestration.declare import Correlation, Port, Receive, orchestration
    from crossdock.orchestration.process import Process
    from crossdock.subscription.expression import P

__version__ = "0.1.0"
__all__ = [
    "Application",
    "Correlation",
    "DeliveryFailed",
    "Message",
    "OrchestrationError",
    "P",
    "Part",
    "Port",
    "Process",
    "Receive",
    "Timeout",
    "boolean",
    "datetime",
    "decimal",
    "float_",
    "integer",
    "orchestration",
    "text",
]
_HOMES = {
    "Correlation": "orchestration.declare",
    "DeliveryFailed": "errors",
    "Message": "message.message",
    "OrchestrationError": "errors",
    "P": "subscription.expression",
    "Part": "message.message",
    "Port": "orchestration.declare",
    "Process": "orchestration.process",
    "Receive": "orchestration.declare",
    "Timeout": "errors",
    "orchestration": "orchestration.declare",  # or the package itself, which is the same decorator
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'crossdock' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"crossdock.{_HOMES.get(name, 'application.builder')}"), name)
