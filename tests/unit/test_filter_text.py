"""Filter text: what it means, what it prints back as, and where its errors point."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from crossdock.errors import FilterError
from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.subscription.expression import P, compile_expression
from crossdock.subscription.predicate import filter_of_groups, groups_of_filter
from crossdock.subscription.text import parse_filter

REGISTRY = PropertyRegistry(
    {
        "Region": PropertyType.TEXT,
        "Amount": PropertyType.DECIMAL,
        "Flags": PropertyType.INTEGER,
        "When": PropertyType.DATETIME,
        "Urgent": PropertyType.BOOLEAN,
        "Ratio": PropertyType.FLOAT,
        "Customer.Name": PropertyType.TEXT,
        "Not": PropertyType.INTEGER,
    }
)


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("Region = 'EU'", "Region = 'EU'"),
        ("MessageType = 'Order'", "BTS.MessageType = 'Order'"),
        ("Amount BETWEEN 1 AND 2.50", "Amount >= 1 AND Amount <= 2.50"),
        ("NOT (Region = 'EU' OR Amount < 3)", "Region != 'EU' AND Amount >= 3"),
        ("NOT Region IN ('EU', 'US')", "Region != 'EU' AND Region != 'US'"),
        ("Region IS NOT NULL", "EXISTS(Region)"),
        ("Region IS NULL", "NOT EXISTS(Region)"),
        ("Urgent = true AND (Region = 'EU' OR Region = 'US')",
         "Urgent = TRUE AND Region = 'EU' OR Urgent = TRUE AND Region = 'US'"),
        ("Customer.Name LIKE 'New %'", "Customer.Name LIKE 'New %'"),
        (r"Region NOT LIKE 'A\_%'", r"Region NOT LIKE 'A\_%'"),
        ("Flags & 4 AND NOT Flags & 8", "Flags & 4 AND NOT Flags & 8"),
        ("When < '2026-01-01T00:00:00+02:00'", "When < '2025-12-31T22:00:00Z'"),
        ("Region = 'O''Hara'", "Region = 'O''Hara'"),
        ("Not IN (5) AND Not IS NULL AND NOT Not = 5", "Not IN (5) AND NOT EXISTS(Not) AND Not != 5"),
        ("NOT Not IN (5, 6) OR Not BETWEEN 1 AND 2", "Not != 5 AND Not != 6 OR Not >= 1 AND Not <= 2"),
        ("Amount = 99999999999999999999.123456789012345678", "Amount = 99999999999999999999.123456789012345678"),
    ],
)  # fmt: skip
def test_text_prints_back_as_text_that_means_the_same(written: str, printed: str) -> None:
    parsed = parse_filter(REGISTRY, written)

    assert str(parsed) == printed
    assert parse_filter(REGISTRY, printed) == parsed
    assert filter_of_groups(REGISTRY, groups_of_filter(parsed)) == parsed


def test_python_and_text_build_the_same_filter() -> None:
    python = (P.MessageType == "Order") & ~(P.Amount < 3) | P["Customer.Name"].exists() & P.Flags.in_([1, 2])

    text = "MessageType = 'Order' AND Amount >= 3 OR EXISTS(Customer.Name) AND Flags IN (1, 2)"

    assert compile_expression(REGISTRY, python) == parse_filter(REGISTRY, text)


@pytest.mark.parametrize(
    ("written", "reason", "position"),
    [
        ("Amuont > 3", "did you mean 'Amount'?", 0),
        ("Amount = 'much'", "property 'Amount' is decimal, and 'much' is not a decimal", 9),
        ("Region = 5", "property 'Region' is text, and 5 is not", 9),
        ("Region = TRUE", "property 'Region' is text", 9),
        ('Region = "EU"', "single quotes", 9),
        ("Region = EU", "single quotes: 'EU'", 9),
        ("Region = 'EU' AND", "the filter ends here", 17),
        ("Region = 'EU", "no closing quote", 9),
        ("(Region = 'EU'", "expected ')'", 14),
        ("Region = 'EU' Amount = 5", "expected AND, OR or the end", 14),
        ("Region LIKE '%x'", "LIKE takes a prefix", 12),
        ("Amount LIKE 'x%'", "LIKE needs a text property", 0),
        ("Region & 4", "& needs an integer property", 0),
        ("Urgent < TRUE", "booleans have no order", 0),
        ("Region = NULL", "nothing equals NULL", 9),
        ("ReceiveLocationName = 'x'", "only written", 0),
        ("Ratio = 'NaN'", "NaN, which equals nothing", 8),
        ("Amount = 1.0000000000000000001", "does not fit a decimal", 9),
        ("Flags = 1.5", "'1.5' is not an integer", 8),
        ("Region IN ('EU', 5)", "property 'Region' is text, and 5 is not", 17),
        ("Amount BETWEEN 1 AND 'x'", "'x' is not a decimal", 21),
        ("Region = 'a\0b'", "text that cannot be stored", 9),
        ("", "the filter is empty", 0),
        ("(" * 200 + "Amount = 1" + ")" * 200, "nested more than 50 deep", 50),
    ],
)  # fmt: skip
def test_error_says_what_is_wrong_and_points_at_the_place(written: str, reason: str, position: int) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(REGISTRY, written)

    assert reason in str(caught.value)
    assert caught.value.position == position


def test_expression_used_as_a_bool_is_refused() -> None:
    with pytest.raises(FilterError, match="no truth value"):
        bool((P.Region == "EU") and (P.Amount > 5))


def test_filter_that_needs_too_many_groups_is_refused_but_in_takes_hundreds_of_values() -> None:
    product = " AND ".join(f"(Region = 'a{n}' OR Region = 'b{n}')" for n in range(9))
    many = ", ".join(f"'C{n}'" for n in range(300))

    with pytest.raises(FilterError, match="256 is the most"):
        parse_filter(REGISTRY, product)

    assert len(parse_filter(REGISTRY, f"Region IN ({many})").groups) == 1


def test_filter_that_would_explode_is_refused_before_it_does() -> None:
    with pytest.raises(FilterError, match="more than 256 groups"):
        parse_filter(REGISTRY, " AND ".join(f"(Region = 'a{n}' OR Region = 'b{n}')" for n in range(60)))


def test_long_filter_takes_time_in_proportion_to_its_length() -> None:
    """Counted, not timed: how often predicates are compared with others."""
    compared = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG001
        nonlocal compared
        compared += event == "call" and frame.f_code.co_name == "__hash__"

    text = " AND ".join(f"Region != 'r{number}'" for number in range(500))
    sys.setprofile(count)
    try:
        parsed = parse_filter(REGISTRY, text)
    finally:
        sys.setprofile(None)

    assert [len(group) for group in parsed.groups] == [500]
    assert compared < 5_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" AND ".join(f"Flags != {number}" for number in range(10_001)), "more than 10,000 predicates"),
        (" AND ".join([*(f"(Flags = {n} OR Amount = {n})" for n in range(10)),
                       *(f"Region != 'r{n}'" for n in range(5_000))]), "more than 256 groups"),
    ],
    ids=["long", "long-and-wide"],
)  # fmt: skip
def test_filter_that_would_grow_out_of_hand_is_refused_at_once(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        parse_filter(REGISTRY, text)


def test_predicates_stay_in_the_order_in_which_they_are_written() -> None:
    written = "Region != 'A' AND Flags = 1 AND (Amount = 1 OR Amount = 2) AND Ratio > 1 AND Region != 'A'"

    [first, second] = parse_filter(REGISTRY, written).groups

    assert [each.property for each in first] == ["Region", "Flags", "Amount", "Ratio"]
    assert [each.property for each in second] == ["Region", "Flags", "Amount", "Ratio"]
