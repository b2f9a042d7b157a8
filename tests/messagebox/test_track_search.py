"""What the filters of the segments find is what a look at every message finds, for drawn messages and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossdock.maintenance.tracking import PackTrack
from crossdock.message.property import PropertyType, Value
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.track_filter import bits_of, make_filter, may_hold
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter, Operator, Predicate
from express import a_message, publish, rows

TYPES = {
    "Text": PropertyType.TEXT,
    "Whole": PropertyType.INTEGER,
    "Exact": PropertyType.DECIMAL,
    "Near": PropertyType.FLOAT,
    "Yes": PropertyType.BOOLEAN,
    "When": PropertyType.DATETIME,
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Text": st.sampled_from(["NO", "no ", "Straße", "STRASSE", "", "ı", "İ", "no\u0000", "a" * 200]),
    "Whole": st.integers(-3, 3) | st.just(2**62),
    "Exact": st.sampled_from(
        [Decimal("1"), Decimal("1.50"), Decimal("1.5"), Decimal("-0.25"), Decimal("12345678901234.5")]
    ),
    "Near": st.sampled_from([1.0, 1.5, -0.25, 1e300, float("inf")]),
    "Yes": st.booleans(),
    "When": st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 12, 30, 0, 5, tzinfo=UTC)]),
}
NAMES = list(TYPES)
promoted = st.fixed_dictionaries({}, optional=VALUES)


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(NAMES))
    operator = draw(
        st.sampled_from([Operator.EQUAL, Operator.IN, Operator.NOT_EQUAL, Operator.EXISTS, Operator.NOT_EXISTS])
    )
    if operator in (Operator.EXISTS, Operator.NOT_EXISTS):
        return Predicate(name, operator)
    # What PostgreSQL cannot hold no filter has, but a message may.
    value = VALUES[name].filter(lambda each: not isinstance(each, str) or "\0" not in each)
    if operator is Operator.IN:
        return Predicate(name, operator, tuple(draw(st.lists(value, min_size=1, max_size=3))))
    return Predicate(name, operator, draw(value))


groups = st.lists(predicates(), min_size=1, max_size=3).map(tuple)
conditions = st.lists(groups, min_size=1, max_size=3).map(lambda each: Filter(tuple(each)))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    few=st.lists(promoted, max_size=4),
    many=st.lists(promoted, min_size=17, max_size=20),
    wanted=st.lists(conditions, min_size=1, max_size=4),
)
def test_search_finds_what_a_look_at_every_message_finds(
    agent: Agent, few: list[Mapping[str, Value]], many: list[Mapping[str, Value]], wanted: list[Filter]
) -> None:
    if "Text" not in agent.configuration.properties():
        agent.subscriptions.deploy(Deployment("drawn", TYPES, [], [], {"Default": ()}))
    rows(agent.database, "DELETE FROM track_published RETURNING 1")
    first = [a_message(agent, each) for each in few]
    rest = [a_message(agent, each) for each in many]
    for message in first:
        publish(agent, message)
    PackTrack(agent).run_once()
    publish(agent, *rest)

    for condition in wanted:
        expected = {each.id for each in first + rest if Matcher().matches(condition, each.context.promoted)}
        assert {each.id for each in agent.track.search(condition, limit=100).messages} == expected


@given(
    st.dictionaries(
        st.sampled_from(NAMES), st.sets(st.text() | st.integers() | st.decimals(allow_nan=False)), max_size=3
    ),
    st.booleans(),
)
def test_filter_has_every_value_that_it_was_made_of(values: dict[str, set[Any]], case_sensitive: bool) -> None:
    made = make_filter(values, case_sensitive=case_sensitive)

    for name, each in values.items():
        assert all(may_hold(made, bits_of(name, value, case_sensitive=case_sensitive)) for value in each)


def test_filter_has_hardly_any_other_value() -> None:
    made = make_filter({"Number": set(range(10_000))}, case_sensitive=False)

    wrong = sum(may_hold(made, bits_of("Number", value, case_sensitive=False)) for value in range(10_000, 12_000))
    other = sum(may_hold(made, bits_of("Other", value, case_sensitive=False)) for value in range(2_000))

    assert wrong + other < 4_000 * 0.03
