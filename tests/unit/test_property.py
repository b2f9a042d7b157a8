"""Values are exactly what their text says, or an error."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.errors import PromotionError, PropertyError
from crossdock.message.context import Context
from crossdock.message.message import message_id
from crossdock.message.property import PropertyRegistry, PropertyType, Value, format_value, parse_value

T = PropertyType


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (T.TEXT, " as it is ", " as it is "),
        (T.INTEGER, "9223372036854775807", 2**63 - 1),
        (T.INTEGER, "-9223372036854775808", -(2**63)),
        (T.DECIMAL, "999.9999999999999991", Decimal("999.9999999999999991")),
        (T.DECIMAL, "12.50", Decimal("12.50")),
        (T.DECIMAL, "1e3", Decimal(1000)),
        (T.DECIMAL, "99999999999999999999.999999999999999999", Decimal("99999999999999999999.999999999999999999")),
        (T.DECIMAL, "1.5000000000000000000000", Decimal("1.5")),
        (T.DECIMAL, "-99999999999999999999.9999999999999999990000", Decimal("-99999999999999999999.999999999999999999")),
        (T.BOOLEAN, "true", True),
        (T.BOOLEAN, "0", False),
        (T.DATETIME, "2026-01-01T00:30:00+01:00", datetime(2025, 12, 31, 23, 30, tzinfo=UTC)),
        (T.DATETIME, "2026-01-01T00:30:00", datetime(2026, 1, 1, 0, 30, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_value_is_taken_from_its_text(type_: PropertyType, text: str, value: Value) -> None:
    assert parse_value(type_, text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (T.INTEGER, "9223372036854775808"), (T.INTEGER, "1.0"), (T.INTEGER, ""), (T.INTEGER, "١٢"),
        (T.INTEGER, "1_000"), (T.DECIMAL, "lots"), (T.DECIMAL, "NaN"), (T.DECIMAL, "1e999"), (T.DECIMAL, "1e9999999999"),
        (T.DECIMAL, "0.0000000000000000001"), (T.DECIMAL, "100000000000000000000"), (T.FLOAT, "1,5"), (T.FLOAT, "1e999"),
        (T.BOOLEAN, "yes"), (T.BOOLEAN, ""), (T.DATETIME, "yesterday"), (T.DATETIME, "2026-13-01"),
        (T.DATETIME, "0001-01-01T00:00:00+23:00"),
    ],
)  # fmt: skip
def test_value_that_does_not_fit_is_an_error(type_: PropertyType, text: str) -> None:
    with pytest.raises(PromotionError):
        parse_value(type_, text)


values = (
    st.text()
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.decimals(Decimal(-(10**19)), Decimal(10**19), places=18, allow_nan=False)
    | st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.just(UTC))
)


@given(st.dictionaries(st.sampled_from("abc"), values), st.dictionaries(st.sampled_from("xyz"), values))
def test_context_survives_storage(promoted: dict[str, Value], written: dict[str, Value]) -> None:
    context = Context(promoted, written)

    assert Context.from_json(context.to_json()) == context


@given(values)
def test_formatted_value_parses_back(value: Value) -> None:
    from crossdock.message.property import type_of

    assert parse_value(type_of(value), format_value(value)) == value


def test_decimal_keeps_no_more_digits_than_its_type_has() -> None:
    assert str(parse_value(T.DECIMAL, "2." + "0" * 41)) == "2." + "0" * 18


def test_writing_demotes_and_writing_nothing_removes() -> None:
    context = Context().promote("Amount", 5)

    assert context.write("Amount", 6) == Context({}, {"Amount": 6})
    assert context.write("Amount", None) == Context()


def test_property_cannot_be_declared_with_two_types_or_two_spellings_or_hide_the_system() -> None:
    registry = PropertyRegistry({"Amount": T.DECIMAL})

    registry.declare("Amount", T.DECIMAL)
    with pytest.raises(PropertyError, match="already declared as decimal"):
        registry.declare("Amount", T.TEXT)
    with pytest.raises(PropertyError, match="only by case"):
        registry.declare("AMOUNT", T.DECIMAL)
    with pytest.raises(PropertyError, match="system property"):
        registry.declare("MessageType", T.TEXT)
    with pytest.raises(PropertyError, match="no usable name"):
        registry.declare("Total-Amount", T.DECIMAL)


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**36 - 1), st.integers(0, 2**38 - 1))
def test_message_id_is_a_version_8_uuid_ordered_by_sequence_and_position(seq: int, position: int, box: int) -> None:
    made = message_id(box, seq, position)

    assert made.version == 8
    assert made == message_id(box, seq, position)
    if position + 1 < 2**36:
        assert made < message_id(0, seq, position + 1)
    if seq + 1 < 2**48:
        assert made < message_id(0, seq + 1, 0)


@pytest.mark.parametrize("text", ["1e400000000", "1e-400000000", "1e99", "-9e39"])
def test_number_that_would_fill_the_memory_when_printed_is_read_from_the_store_as_text(text: str) -> None:
    context = Context.from_json(json.dumps({"promoted": {"Amount": {"decimal": text}}, "written": {}}))

    assert context.get("Amount") == text
