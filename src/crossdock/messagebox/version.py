"""Versions of subscriptions: what each asked for in every epoch of which a message is tracked.

Whoever changes subscriptions writes them in the same transaction (`Subscriptions`, statement `keep_versions`), so a
message can be explained by the filters of its day.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from crossdock.messagebox.stored_filter import read_groups
from crossdock.subscription.predicate import Filter


@dataclass(frozen=True, slots=True)
class SubscriptionVersion:
    """A subscription from one epoch until another, in which it was gone or asked for something else.

    `address` has the one group by which a message names the port or its group, `filter` the groups that were declared.
    It matches by either.
    """

    subscription_id: int
    service_id: int
    service: str
    application: str
    address: Filter
    filter: Filter
    priority: int
    from_epoch: int
    until_epoch: int | None
    from_at: datetime
    until_at: datetime | None

    @classmethod
    def from_row(cls, *, predicate: str, **columns: Any) -> SubscriptionVersion:
        address, filter_ = _read(predicate)
        return cls(address=address, filter=filter_, **columns)

    @property
    def whole(self) -> Filter:
        """What the matcher looks at: the address or the filter."""
        return Filter((*self.address.groups, *self.filter.groups))


@lru_cache(maxsize=32_768)
def _read(predicate: str) -> tuple[Filter, Filter]:
    """The address and the filter. The page of every message asks for them all, and they rarely change."""
    rows = json.loads(predicate)
    return read_groups([row for row in rows if row[0] == 0]), read_groups([row for row in rows if row[0] > 0])
