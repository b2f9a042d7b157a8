"""What a message gives to code: its type, its properties by their short names, and its body as JSON or XML."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock import Message
from crossdock.errors import DocumentError
from crossdock.message.context import Context
from crossdock.message.document import write_json
from crossdock.message.message import POSITIONS, RANDOM_BITS, MessageId, Part, ids_at, message_id, short_id


def a_message(body: bytes = b"{}") -> Message:
    context = Context({"BTS.MessageType": "Order", "OrderId": "A1"}, {"BTS.InterchangeID": "i", "Hint": False})
    return Message(MessageId(uuid4()), context, (Part("body", body),))


def test_properties_are_found_by_short_names_promoted_or_written() -> None:
    message = a_message()

    assert message.type == "Order"
    assert (message["OrderId"], message["Hint"], message["InterchangeID"]) == ("A1", False, "i")
    assert "OrderId" in message
    assert "Region" not in message


def test_a_property_that_a_message_lacks_is_told_in_a_sentence() -> None:
    message = a_message()

    with pytest.raises(KeyError, match=f"message {message.id} of type 'Order' has no property 'Region'"):
        message["Region"]


def test_numbers_of_json_are_exact_and_written_back_as_they_were() -> None:
    body = b'{"amount":12.50,"exact":999.9999999999999991,"count":12345678901234567890123}'
    value = a_message(body).json()

    assert value == {
        "amount": Decimal("12.50"),
        "exact": Decimal("999.9999999999999991"),
        "count": 12345678901234567890123,
    }
    assert write_json(value) == body


def test_a_byte_order_mark_is_no_part_of_json() -> None:
    assert a_message(b"\xef\xbb\xbf[1]").json() == [1]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_body_that_is_not_json_is_told_so(body: bytes) -> None:
    with pytest.raises(DocumentError, match="the body is not JSON"):
        a_message(body).json()


@pytest.mark.parametrize("value", [Decimal("NaN"), {"a": Decimal("Infinity")}, object(), {1, object()}])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(DocumentError, match="it cannot be written as JSON"):
        write_json(value)


def test_xml_is_an_element_tree() -> None:
    assert a_message(b"<order><id>7</id></order>").xml().findtext("id") == "7"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<a", "the body is not XML"),
        (b"", "the body is not XML"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "document type declaration"),
    ],
)
def test_xml_that_is_broken_or_brings_entities_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(DocumentError, match=told):
        a_message(body).xml()


@given(
    bits=st.integers(0, 2**RANDOM_BITS - 1), sequence=st.integers(0, 2**48 - 1), position=st.integers(0, POSITIONS - 1)
)
def test_short_id_has_the_places_of_an_id(bits: int, sequence: int, position: int) -> None:
    id_ = message_id(bits, sequence, position)
    lowest, highest = ids_at(sequence, position)

    assert short_id(id_) == f"{sequence}-{position}"
    assert lowest <= id_ <= highest
    assert {short_id(lowest), short_id(highest)} == {short_id(id_)}


@pytest.mark.parametrize(
    "number", ["1e999999999", "-1E-999999999", "0e999999999", "1e99999999999999999999", "1." + "1" * 10_000]
)
def test_number_that_would_hold_the_process_for_hours_is_refused(number: str) -> None:
    with pytest.raises(DocumentError, match="the body has a number that is too large or too long: "):
        a_message(f'{{"lines": [{{"amount": {number}}}]}}'.encode()).json()


def test_large_numbers_are_exact() -> None:
    assert a_message(b"[1e400, 0.1e-400, 1.50]").json() == [Decimal("1e400"), Decimal("1e-401"), Decimal("1.50")]
