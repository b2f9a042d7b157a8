"""The logger of an instance: it says everything once, however often the code is replayed."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossdock.orchestration.instance import Instance

    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class Log(_Adapter):
    """Records carry the `instance`. It is silent in a replay, and in code that is being left."""

    def __init__(self, logger: logging.Logger, instance: Instance) -> None:
        super().__init__(logger)
        self._instance = instance

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name that logging has
        silent = self._instance.journal.replaying or self._instance.scheduler.closing
        return not silent and self.logger.isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), "instance": str(self._instance.id)}
        return msg, kwargs
