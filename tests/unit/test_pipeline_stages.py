"""What goes around the disassembler: unpacking, pass-through, distinguished fields, failed messages that are routed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from crossdock.errors import DocumentError
from crossdock.pipeline import decode
from crossdock.pipeline.decode import gunzip
from stages import ORDER, location_of, reason, received


def test_compressed_file_is_unpacked_and_a_piece_that_fails_is_not_unpacked_again(folder: Path) -> None:
    location = location_of(folder, ORDER, location={"decode": ["gzip"]})
    plain = b'{"region": "NO", "amount": 1}\n{"amount": "much"}\n'

    interchange = received(location, gzip.compress(plain[:31]) + gzip.compress(plain[31:]))

    [message] = interchange.messages
    [failure] = interchange.failures
    assert (message.context.get("Region"), message.body) == ("NO", b'{"region": "NO", "amount": 1}')
    assert failure.message.body == b'{"amount": "much"}'
    assert failure.message.context.written["BTS.MessageType"] == "Order"  # known, and not to be routed by
    again = location.again(1, failure.message, 1, lambda: failure.message.id)
    assert "'much' is not a decimal" in reason(again)
    assert reason(received(location, plain)) == "the file is not compressed with gzip"
    whole = received(location, plain).failures[0].message
    assert reason(location.again(1, whole, 1, lambda: whole.id)) == "the file is not compressed with gzip"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(b"x" * 2_000_000), "more than 1,000,000 bytes when it is unpacked"),
        (gzip.compress(b"x" * 400_000) * 3, "more than 1,000,000 bytes when it is unpacked"),
        (gzip.compress(b"x" * 100)[:-4], "ends too early"),
        (gzip.compress(b"x" * 100) + b"more", "not gzip all through"),
        (b"\x1f\x8b" + b"nonsense" * 10, "not gzip all through"),
    ],
    ids=["bomb", "bomb in parts", "cut", "more", "nonsense"],
)
def test_what_cannot_be_unpacked_is_said(content: bytes, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        gunzip(content, limit=1_000_000)
    assert decode.LIMIT_BYTES == 256 * 1024 * 1024


def test_compressed_file_of_very_many_members_is_unpacked_in_no_time() -> None:
    assert gunzip(gzip.compress(b"x", mtime=0) * 100_000) == b"x" * 100_000


def test_pass_through_takes_anything(folder: Path) -> None:
    location = location_of(folder, location={"pipeline": "passthrough"})

    [message] = received(location, b"\x00\xff").messages

    assert message.body == b"\x00\xff"


def test_distinguished_field_is_written_and_not_routable(folder: Path) -> None:
    location = location_of(folder, {**ORDER, "distinguished": {"Note": "$.note"}})

    [message] = received(location, b'{"note": "fragile"}').messages

    assert message.context.written["Note"] == "fragile"
    assert "Note" not in message.context.promoted


def test_failed_message_is_routed_where_the_port_says_so(folder: Path) -> None:
    location = location_of(folder, ORDER, port={"failed_messages": "route"})

    interchange = received(location, b'{"region": "NO", "amount": "much"}')

    assert interchange.failures == ()
    [message] = interchange.messages
    context = message.context
    assert set(context.promoted) == {
        "ErrorReport.ErrorType", "ErrorReport.FailureCode", "ErrorReport.FailureCategory", "ErrorReport.MessageType",
        "ErrorReport.ReceivePortName", "ErrorReport.InboundTransportLocation",
    }  # fmt: skip
    assert (context.promoted["ErrorReport.ErrorType"], context.promoted["ErrorReport.MessageType"]) == (
        "FailedMessage",
        "Order",
    )
    assert "'much' is not a decimal" in str(context.written["ErrorReport.Description"])
    assert context.written["BTS.ReceivePortName"] == "In"
