"""The meaning of predicates, one rule per test."""

from __future__ import annotations

from decimal import Decimal

import pytest

from crossdock.message.property import PropertyRegistry, PropertyType, Value
from crossdock.subscription.match import Matcher
from crossdock.subscription.predicate import Filter
from crossdock.subscription.text import parse_filter

REGISTRY = PropertyRegistry(
    {"Region": PropertyType.TEXT, "Amount": PropertyType.DECIMAL,
     "Flags": PropertyType.INTEGER, "Ratio": PropertyType.FLOAT}
)  # fmt: skip


def matches(text: str, *, case_sensitive: bool = False, **promoted: Value) -> bool:
    return Matcher(case_sensitive).matches(parse_filter(REGISTRY, text), promoted)


@pytest.mark.parametrize("text", ["Amount = 5", "Amount != 5", "NOT Amount = 5", "EXISTS(Amount)", "Amount IN (1, 2)"])
def test_absent_property_satisfies_no_predicate(text: str) -> None:
    assert not matches(text, Region="EU")


def test_absent_property_satisfies_not_exists() -> None:
    assert matches("NOT EXISTS(Amount)", Region="EU")


def test_text_compares_without_case_and_trailing_blanks() -> None:
    assert matches("Region = 'eu'", Region="EU  ")
    assert matches("Region = 'EU '", Region="eu")
    assert not matches("Region = 'EU'", Region=" EU")
    assert not matches("Region = 'eu'", case_sensitive=True, Region="EU")


@pytest.mark.parametrize("case_sensitive", [False, True])
@pytest.mark.parametrize("ending", ["\t", "\n", "\r\n", "\v", "\f", "\x1f", "\x85", "\xa0", "\u2003", "\u3000"])
def test_only_blanks_are_left_out_at_the_end_of_text(ending: str, case_sensitive: bool) -> None:
    assert not matches("Region = 'EU'", case_sensitive=case_sensitive, Region=f"EU{ending}")
    assert matches("Region > 'EU'", case_sensitive=case_sensitive, Region=f"EU{ending}")
    assert matches(f"Region = 'EU{ending}'", case_sensitive=case_sensitive, Region=f"EU{ending} ")


def test_empty_text_is_a_value() -> None:
    assert matches("EXISTS(Region)", Region="")
    assert matches("Region = ' '", Region="")


def test_prefix_keeps_its_blank() -> None:
    assert matches("Region LIKE 'New %'", Region="NEW YORK")
    assert not matches("Region LIKE 'New %'", Region="Newark")


def test_decimals_are_exact() -> None:
    assert matches("Amount < 1000", Amount=Decimal("999.9999999999999991"))
    assert not matches("Amount >= 1000", Amount=Decimal("999.9999999999999991"))


def test_nan_exists_and_satisfies_nothing_else() -> None:
    assert matches("EXISTS(Ratio)", Ratio=float("nan"))
    assert not matches("Ratio != 5", Ratio=float("nan"))
    assert not matches("Ratio < 5 OR Ratio >= 5", Ratio=float("nan"))


def test_minus_zero_is_zero() -> None:
    assert matches("Ratio = 0", Ratio=-0.0)


def test_bitwise_and_asks_for_any_common_bit() -> None:
    assert matches("Flags & 6", Flags=2)
    assert not matches("Flags & 6", Flags=8)
    assert matches("NOT Flags & 6", Flags=8)


def test_filter_or_group_without_predicates_matches_nothing() -> None:
    assert not Matcher().matches(Filter(()), {"Region": "EU"})
    assert not Matcher().matches(Filter(((),)), {"Region": "EU"})
