"""Try a filter on recent traffic before it is deployed: what a port would gain, lose, and leave to nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from crossdock.administration.audit import since_of
from crossdock.administration.condition import filter_of, search_personal
from crossdock.errors import ContextError, UsageError
from crossdock.message.context import Context
from crossdock.message.property import Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.track import Tracked
from crossdock.messagebox.version import SubscriptionVersion
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter

MOST = 10_000
_SAMPLES = 10
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """One of the messages that a filter was tried on."""

    id: str
    type: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class TriedFilter:
    """What became of recent messages by another filter.

    Of `looked_at` messages it matches `matched`. Compared with the filter that the port has now the port would gain
    `gained` and lose `lost`. Nobody else would get `unrouted` of the lost ones. The samples are the newest.
    """

    filter: str
    port: str | None
    before: str | None
    looked_at: int
    since: datetime | None
    matched: int
    gained: int
    lost: int
    unrouted: int
    gained_samples: Sequence[SampleMessage]
    lost_samples: Sequence[SampleMessage]
    unrouted_samples: Sequence[SampleMessage]


def try_filter(
    agent: Agent, text: str, *, port: str | None = None, since: str | None = None, limit: int = 1_000
) -> TriedFilter:
    """By the subscriptions of now, on the newest tracked messages, at most `limit` of them.

    Without a port all that the filter matches is gained. Raises UsageError for a filter that cannot be read, or a port
    that has no subscription.
    """
    filter_ = filter_of(agent, text)
    search_personal(agent, filter_, agreed=False)
    versions = agent.subscriptions.versions()
    mine = _subscription(versions, port)
    matcher = Matcher(agent.configuration.case_sensitive())
    address = () if mine is None else mine.address.groups
    after_filter = Filter((*address, *filter_.groups))
    router, found = None, _Found()
    for message in _recent(agent, since, min(limit, MOST)):
        promoted = _promoted(message)
        before = mine is not None and matcher.matches(mine.whole, promoted)
        after = matcher.matches(after_filter, promoted)
        found.looked_at, found.matched, found.oldest = found.looked_at + 1, found.matched + after, message.at
        if after and not before:
            found.gained.append(message)
        elif before and not after:
            found.lost.append(message)
            router = router or agent.router()  # made only where it is needed: of many subscriptions that takes long
            others = {each.id for each in router.route(router.usable(promoted))}
            if mine is not None and others <= {mine.subscription_id}:
                found.unrouted.append(message)
    return found.shown(str(filter_), port, None if mine is None else str(mine.filter))


class _Found:
    def __init__(self) -> None:
        self.looked_at = self.matched = 0
        self.oldest: datetime | None = None
        self.gained: list[Tracked] = []
        self.lost: list[Tracked] = []
        self.unrouted: list[Tracked] = []

    def shown(self, filter_: str, port: str | None, before: str | None) -> TriedFilter:
        counts = (self.matched, len(self.gained), len(self.lost), len(self.unrouted))
        gained, lost, unrouted = (
            [_sample(message) for message in each[:_SAMPLES]] for each in (self.gained, self.lost, self.unrouted)
        )
        return TriedFilter(filter_, port, before, self.looked_at, self.oldest, *counts, gained, lost, unrouted)


def _subscription(versions: Iterable[SubscriptionVersion], port: str | None) -> SubscriptionVersion | None:
    if port is None:
        return None
    found = next((each for each in versions if each.service == port), None)
    if found is None:
        raise UsageError(f"There is no subscription of {port!r}: it is not enlisted. See: crossdock get subscriptions")
    return found


def _recent(agent: Agent, since: str | None, limit: int) -> Iterable[Tracked]:
    when = None if since is None else since_of(since)
    oldest = agent.configuration.clock() - when if isinstance(when, timedelta) else when
    before: str | None = None
    left = limit
    while left > 0:
        page = agent.track.search(None, since=oldest, limit=min(_PAGE, left), before=before)
        yield from page.messages
        left -= len(page.messages)
        before = page.before
        if before is None:
            return


def _promoted(message: Tracked) -> dict[str, Value]:
    try:
        return dict(Context.from_json(msgspec.json.encode(message.context)).promoted)
    except ContextError:
        return {}


def _sample(message: Tracked) -> SampleMessage:
    type_ = _promoted(message).get("BTS.MessageType")
    return SampleMessage(str(message.id), None if type_ is None else str(type_), message.at)
