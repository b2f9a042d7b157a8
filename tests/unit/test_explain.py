"""An explanation shows every predicate with what it met, and says the same as the specification."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings

from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.subscription.explain import explain, format_explanation
from crossdock.subscription.match import Matcher
from crossdock.subscription.nearest import Catalog
from crossdock.subscription.predicate import Filter, Group
from crossdock.subscription.text import parse_filter
from index_cases import TYPES, groups, messages

REGISTRY = PropertyRegistry({"Region": PropertyType.TEXT, "Amount": PropertyType.DECIMAL})


def lines(text: str, **promoted: Value) -> list[str]:
    return format_explanation(explain(parse_filter(REGISTRY, text), promoted, REGISTRY))


def test_a_match_shows_what_held() -> None:
    assert lines("Region = 'EU' AND Amount >= 1000", Region="eu", Amount=Decimal(1000)) == [
        "matches",
        "  group 1 holds",
        "    yes  Region = 'EU'    (Region is text 'eu')",
        "    yes  Amount >= 1000    (Amount is decimal 1000)",
    ]


def test_the_nearest_miss_is_the_group_with_the_fewest_failures() -> None:
    shown = lines(
        "Region = 'EU' AND Amount >= 1000 OR Region = 'US' AND Amount < 5", Region="US", Amount=Decimal("12.50")
    )

    assert shown == [
        "does not match",
        "  group 1 fails",
        "    no   Region = 'EU'    (Region is text 'US')",
        "    no   Amount >= 1000    (Amount is decimal 12.50)",
        "  group 2 fails (nearest miss)",
        "    yes  Region = 'US'    (Region is text 'US')",
        "    no   Amount < 5    (Amount is decimal 12.50)",
    ]


def test_an_absent_property_is_named_absent() -> None:
    assert "    no   Amount != 5    (Amount is absent)" in lines("Amount != 5", Region="EU")


def test_a_filter_without_groups_has_no_near_miss() -> None:
    explanation = explain(Filter(), {"Region": "EU"}, REGISTRY)

    assert explanation.nearest_miss is None
    assert format_explanation(explanation) == ["does not match: the filter has no groups"]


@settings(max_examples=200, deadline=None)
@given(written=groups(), promoted=messages())
def test_an_explanation_says_what_the_specification_says(
    written: tuple[Group, ...], promoted: dict[str, Value]
) -> None:
    explanation = explain(Filter(written), promoted, TYPES)

    assert explanation.matches == Matcher().matches(Filter(written), promoted)
    assert format_explanation(explanation)


def test_a_long_value_is_told_in_short() -> None:
    """The role of a host may promote a megabyte, and a thousand filters may meet it."""
    types = PropertyRegistry([("Region", PropertyType.TEXT)])
    filters = [(f"P{number}", parse_filter(types, f"Region = '{number}' AND Region LIKE 'y%'")) for number in range(9)]
    catalog = Catalog(filters, types, case_sensitive=False, correlations=[("Flow", "case", ["Region"], ["Order"])])

    misses = catalog.nearest_misses({"Region": "x" * 100_000, "BTS.MessageType": "Order"})

    assert len(misses) == 5
    assert max(len(line) for miss in misses for line in miss.failing) < 5_000
