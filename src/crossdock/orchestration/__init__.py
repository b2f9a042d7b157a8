"""Orchestrations: coroutines made durable by recording what they received and replaying it. Read `declare.py` first,
then `process.py` (what an author calls), `run.py` (one instance), `scheduler.py` and `history.py`.

`from crossdock import orchestration` gives this package as soon as it is loaded, so the package is the decorator too.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Decorator(ModuleType):
    def __call__(self, *receives: Any, **options: Any) -> Any:
        from crossdock.orchestration.declare import orchestration

        return orchestration(*receives, **options)


sys.modules[__name__].__class__ = _Decorator
