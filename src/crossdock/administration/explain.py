"""Why a message went where it did: every subscription of its day, predicate by predicate, and where each copy is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from uuid import UUID

from crossdock.administration.known_message import (
    Delivery,
    KnownMessage,
    deliveries_of,
    find_message,
    kept_back,
    subscriptions_of,
)
from crossdock.administration.message_state import DeliveryState, state_of
from crossdock.errors import UsageError, brief
from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.version import SubscriptionVersion
from crossdock.subscription.explain import Explanation, GroupVerdict, PredicateVerdict, explain, fewest_misses
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import format_predicate

_NEAREST = 5
_TYPE = "BTS.MessageType"


@dataclass(frozen=True, slots=True)
class ExplainedPredicate:
    """A predicate and the value that it met: None if the message has none, masked if it is personal."""

    predicate: str
    actual: str | None
    holds: bool


@dataclass(frozen=True, slots=True)
class FailedPredicate:
    """A predicate that does not hold, and the value that it met."""

    predicate: str
    actual: str | None


@dataclass(frozen=True, slots=True)
class ExplainedSubscription:
    """What one subscription had to do with the message.

    `matched` is what its filter says. `failed` are the predicates that are missing, of the group that came nearest.
    `state` is where its copy is: queued, claimed, waiting, suspended, held, delivered, completed, terminated, discarded
    and so on; `refused` for lack of `labels`; `not given` if it matched and there was no copy; `unknown` if the
    message is not tracked, so that nobody can tell; `not matched`. `at` is when that happened, or of a copy that waits
    when it is due. `instance` is the running instance that has the copy. `only_addressed`: it has no filter, and gets
    what names it.
    """

    name: str
    application: str | None
    matched: bool
    state: str
    failed: Sequence[FailedPredicate] = ()
    at: datetime | None = None
    attempt: int | None = None
    code: str | None = None
    reason: str | None = None
    labels: Sequence[str] = ()
    instance: str | None = None
    host: str | None = None
    groups: Sequence[Sequence[ExplainedPredicate]] = field(default=(), repr=False)
    only_addressed: bool = False


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """A subscription that failed by few predicates, and how many of its group hold."""

    name: str
    holding: int
    failed: Sequence[FailedPredicate]


@dataclass(frozen=True, slots=True)
class ExplainedMessage:
    """A message and every subscription of its day.

    `filters` says of which day they are: `then`, when it was published, or `now`. `code` and `reason` say why it was
    suspended at once, if so. `tracked` is False for a message that is only in the box: its subscriptions are found by
    the time when it was stored. `erased`: its properties were erased, so what matched is what was decided then, and
    nobody can tell what came near. `left_out` subscriptions did not match and are not among them, if not all were
    wanted.
    """

    id: str
    type: str | None
    received_at: datetime
    location: str | None
    filters: str
    epoch: int | None
    tracked: bool
    code: str | None
    reason: str | None
    subscriptions: Sequence[ExplainedSubscription]
    nearest: Sequence[NearestMiss]
    left_out: int = 0
    erased: bool = False


def explain_message(
    agent: Agent, id_: UUID, *, subscription: str | None = None, now: bool = False, most: int | None = None
) -> ExplainedMessage:
    """By the filters of its day, or by those of now. Raises UsageError for an unknown message or subscription.

    `most`: of the subscriptions that did not match only so many, those that came nearest.
    """
    message = find_message(agent, id_)
    deliveries = deliveries_of(agent, [message])[message.id]
    return explain_known(agent, message, deliveries, subscription=subscription, now=now, most=most)


def explain_known(
    agent: Agent,
    message: KnownMessage,
    deliveries: Sequence[Delivery],
    *,
    subscription: str | None,
    now: bool,
    most: int | None,
) -> ExplainedMessage:
    """The same of a message whose copies were looked at already."""
    versions = agent.subscriptions.versions() if now else subscriptions_of(agent, message)
    rows = _rows(agent, message, versions, deliveries, most if subscription is None else None)
    left_out = max(0, len(versions) - len(rows)) if subscription is None else 0
    nearest = [] if message.erased else _nearest(rows)
    if subscription is not None:
        known = [row.name for row in rows]
        rows, nearest = [row for row in rows if row.name == subscription], []
        if not rows:
            raise UsageError(_unknown_subscription(subscription, known, now=now))
    tracked = message.tracked
    return ExplainedMessage(
        str(message.id),
        message.type,
        message.at,
        message.location,
        "now" if now else "then",
        None if tracked is None else tracked.epoch,
        tracked is not None,
        *kept_back(message, deliveries),
        rows,
        nearest,
        left_out,
        message.erased,
    )


def _rows(
    agent: Agent,
    message: KnownMessage,
    versions: Sequence[SubscriptionVersion],
    deliveries: Sequence[Delivery],
    most: int | None,
) -> list[ExplainedSubscription]:
    """A row for each subscription, then one for each running instance that was given the message."""
    types = PropertyRegistry(agent.configuration.properties())
    case_sensitive = agent.configuration.case_sensitive()
    promoted = message.context.promoted
    chosen = versions
    if most is not None:
        chosen = _nearest_versions(message, versions, Matcher(case_sensitive), most)
    verdicts = {
        each.subscription_id: explain(each.whole, promoted, types, case_sensitive=case_sensitive) for each in chosen
    }
    begun = {
        route.instance
        for route in message.routes
        if route.subscription_id in verdicts
        and _matches(message, route.subscription_id, verdicts[route.subscription_id])
    }
    # The running instances that waited for the message, unlike those that it began.
    joined = {route.instance for route in message.routes if route.instance is not None} - begun
    rows = []
    for version in chosen:
        verdict = verdicts[version.subscription_id]
        own = [each for each in deliveries if each.service_id == version.service_id and each.instance not in joined]
        rows.append(_row(message, version, verdict, own[-1] if own else None))
    shown = {row.name for row in rows}
    others = [each for each in deliveries if each.instance in joined or each.service not in shown]
    return rows + [_instance_row(each) for each in others if each.service is not None]


def _nearest_versions(
    message: KnownMessage, versions: Sequence[SubscriptionVersion], matcher: Matcher, most: int
) -> list[SubscriptionVersion]:
    """All that matched, and of the others those with the fewest predicates that fail, in the order that they had."""
    concerned = {route.subscription_id for route in message.routes} | message.refusals.keys()
    promoted = message.context.promoted
    misses = {}
    for each in versions:
        if each.subscription_id not in concerned and not matcher.matches(each.address, promoted):
            missed = fewest_misses(each.filter, promoted, matcher)
            if missed != 0:
                misses[each.subscription_id] = 1_000 if missed is None else missed
    left_out = set(sorted(misses, key=misses.__getitem__)[most:])
    return [each for each in versions if each.subscription_id not in left_out]


def _matches(message: KnownMessage, subscription: int, verdict: Explanation) -> bool:
    """What the filter says; where that takes values that are erased or may not be read, what was decided then."""
    used = {each.predicate.property for group in verdict.groups for each in group.predicates}
    if message.erased or not message.hidden.isdisjoint(used):
        return subscription in message.refusals or subscription in {route.subscription_id for route in message.routes}
    return verdict.matches


def _row(
    message: KnownMessage, version: SubscriptionVersion, verdict: Explanation, delivery: Delivery | None
) -> ExplainedSubscription:
    declared = Explanation(verdict.groups[len(version.address.groups) :])
    matched = _matches(message, version.subscription_id, verdict)
    state, labels = _state(message, version, delivery, matched=matched)
    group = None if matched else declared.nearest_miss or verdict.nearest_miss
    return ExplainedSubscription(
        version.service,
        version.application,
        matched,
        state.state,
        _failed(message, group),
        state.at,
        state.attempt,
        state.code,
        state.reason,
        labels,
        state.instance,
        state.host,
        [
            [ExplainedPredicate(*_shown(message, each), holds=each.holds) for each in group.predicates]
            # Nobody asked for the address, unless the message has it or there is nothing else.
            for group in (verdict.groups if verdict.matches > declared.matches else declared.groups or verdict.groups)
        ],
        not declared.groups,
    )


def _state(
    message: KnownMessage, version: SubscriptionVersion, delivery: Delivery | None, *, matched: bool
) -> tuple[DeliveryState, Sequence[str]]:
    if delivery is not None:
        return state_of(delivery), ()
    if (labels := message.refusals.get(version.subscription_id)) is not None and matched:
        return DeliveryState("refused", reason=f"its host lacks the label {', '.join(labels)}"), labels
    if not matched:
        return DeliveryState("not matched"), ()
    if any(route.subscription_id == version.subscription_id for route in message.routes):
        return DeliveryState("settled", reason="what became of it is not known any more"), ()
    return DeliveryState("not given" if message.tracked is not None else "unknown"), ()


def _instance_row(delivery: Delivery) -> ExplainedSubscription:
    state = state_of(delivery)
    return ExplainedSubscription(
        str(delivery.service),
        None,
        True,
        state.state,
        (),
        state.at,
        state.attempt,
        state.code,
        state.reason,
        (),
        None if delivery.instance is None else str(delivery.instance),
        state.host,
    )


def _nearest(rows: Sequence[ExplainedSubscription]) -> list[NearestMiss]:
    """The fewest failed predicates first, and among equals those that ask for the same message type."""

    def rank(row: ExplainedSubscription) -> tuple[int, bool, int, str]:
        other_type = any(failed.predicate.startswith(_TYPE) for failed in row.failed)
        return len(row.failed), other_type, -_holding(row), row.name

    misses = sorted((row for row in rows if not row.matched and row.failed and not row.only_addressed), key=rank)
    return [NearestMiss(row.name, _holding(row), row.failed) for row in misses[:_NEAREST]]


def _holding(row: ExplainedSubscription) -> int:
    """How many predicates hold of the group that came nearest."""
    groups = [sum(each.holds for each in group) for group in row.groups if _misses(group) == len(row.failed)]
    return max(groups, default=0)


def _misses(group: Sequence[ExplainedPredicate]) -> int:
    return sum(not each.holds for each in group)


def _failed(message: KnownMessage, group: GroupVerdict | None) -> list[FailedPredicate]:
    return [] if group is None else [FailedPredicate(*_shown(message, each)) for each in group.failing]


def _shown(message: KnownMessage, verdict: PredicateVerdict) -> tuple[str, str | None]:
    actual = message.shown(verdict.predicate.property, verdict.actual)
    return format_predicate(verdict.predicate), None if actual is None else brief(actual)


def _unknown_subscription(name: str, known: Sequence[str], *, now: bool) -> str:
    close = get_close_matches(name, known, 1)
    day = "is enlisted now" if now else "was enlisted when the message was published"
    meant = f" Did you mean {close[0]!r}?" if close else " See them all without the name."
    return f"No subscription {name!r} {day}.{meant}"
