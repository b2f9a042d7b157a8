"""What lint finds in filters, and what it leaves alone."""

from __future__ import annotations

import pytest

from crossdock.message.property import PropertyRegistry, PropertyType
from crossdock.subscription.lint import lint
from crossdock.subscription.text import parse_filter

T = PropertyType
REGISTRY = PropertyRegistry(
    {
        "Region": T.TEXT,
        "Amount": T.DECIMAL,
        "Flags": T.INTEGER,
        "When": T.DATETIME,
        "Urgent": T.BOOLEAN,
        "Ratio": T.FLOAT,
    }
)


def kinds(*texts: str, promoted: frozenset[str] = frozenset(REGISTRY.declared)) -> list[str]:
    filters = {f"P{n}": parse_filter(REGISTRY, text) for n, text in enumerate(texts)}
    return [finding.kind for finding in lint(filters, promoted)]


@pytest.mark.parametrize(
    "text",
    [
        "Amount > 5 AND Amount < 3", "Amount > 5 AND Amount <= 5", "Flags > 3 AND Flags < 4", "Amount = 5 AND Amount = 6",
        "Region = 'EU' AND Region != 'eu '", "Region = 'EU' AND NOT EXISTS(Region)", "EXISTS(Region) AND NOT EXISTS(Region)",
        "Region IN ('EU', 'US') AND Region IN ('NO', 'SE')", "Region LIKE 'A%' AND Region LIKE 'B%'",
        "Region LIKE 'New %' AND Region NOT LIKE 'new%'", "Urgent != TRUE AND Urgent != FALSE", "Flags & 4 AND Flags = 3",
        "Flags & 0", "When < '2026-01-01' AND When > '2026-01-01'", "Region = 'EU' AND Amount > 5 AND Amount < 3",
        "Ratio < 1 AND Ratio > 2", "Flags > 9223372036854775807", "Flags & 16 AND NOT Flags & 16",
    ],
)  # fmt: skip
def test_contradiction_is_found(text: str) -> None:
    assert kinds(text) == ["contradiction"]


@pytest.mark.parametrize(
    "text",
    [
        "EXISTS(Region) OR NOT EXISTS(Region)", "Amount < 5 OR Amount >= 5", "Amount < 5 OR Amount > 3 OR NOT EXISTS(Amount)",
        "Region = 'EU' OR Region != 'EU' OR Amount > 5", "Urgent = TRUE OR Urgent = FALSE", "Region LIKE 'A%' OR Region NOT LIKE 'a%'",
    ],
)  # fmt: skip
def test_filter_that_is_always_true_is_found(text: str) -> None:
    assert kinds(text) == ["always true"]


@pytest.mark.parametrize(
    "text",
    [
        "Amount > 5 AND Amount < 6", "Flags > 3 AND Flags < 5", "Region = 'EU' OR Region = 'US'", "EXISTS(Amount)",
        "Region LIKE 'New %' AND Region != 'New York'", "Flags & 2 AND Flags > 100 AND Flags < 200", "Ratio < 1 OR Ratio >= 1",
        "Region LIKE 'A%' AND Region NOT LIKE 'AB%' AND Region != 'A'", "Urgent != TRUE", "Amount != 5", "MessageType = 'Order'",
        "Amount > 12345678901234567890 AND Amount < 12345678901234567891", "Flags & 112 AND NOT Flags & 16 AND NOT Flags & 64",
        "Region > 'a' AND Region < 'b'", "Flags & 4 OR NOT Flags & 4",
    ],
)  # fmt: skip
def test_filter_that_tells_messages_apart_is_left_alone(text: str) -> None:
    assert kinds(text) == []


def test_duplicates_are_found_whatever_their_order_and_case() -> None:
    assert kinds("Region = 'EU' AND Amount > 5 OR Flags & 1", "Flags & 1 OR Amount > 5 AND Region IN ('eu')") == [
        "duplicate"
    ]


def test_property_that_no_schema_promotes_is_found() -> None:
    assert kinds("Region = 'EU' AND Amount > 5", promoted=frozenset({"Region"})) == ["not promoted"]
