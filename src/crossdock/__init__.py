"""Crossdock: an open MessageBox on Apache Spark and PostgreSQL.

Importing it is cheap: the names below load their modules when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossdock.application.builder import Application, boolean, datetime, decimal, float_, integer, text
    from crossdock.subscription.expression import P

__version__ = "0.1.0"
__all__ = ["Application", "P", "boolean", "datetime", "decimal", "float_", "integer", "text"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'crossdock' has no attribute {name!r}")
    from importlib import import_module

    home = "crossdock.subscription.expression" if name == "P" else "crossdock.application.builder"
    return getattr(import_module(home), name)
