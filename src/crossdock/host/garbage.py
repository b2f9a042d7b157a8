"""Garbage collection in a process that hands over messages all day."""

from __future__ import annotations

import gc
from functools import cache


@cache  # once in a process: what lives by then is what was imported, and stays
def spare_what_is_loaded() -> None:
    """Let the collector look at what comes and goes, and not, again and again, at everything that was imported.

    That took a quarter of the time of an orchestration's step, and came as a pause in the middle of deliveries.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)
