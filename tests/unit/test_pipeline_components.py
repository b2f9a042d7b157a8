"""Components and disassemblers of one's own, in their stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages import ORDER, location_of, reason, received


def test_components_of_ones_own_run_in_their_stages(folder: Path) -> None:
    own = {"name": "own", "decode": ["components:unmask"], "disassemble": "json", "components": ["components:tag"]}
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own])
    masked = bytes(byte ^ 1 for byte in b'{"region": "NO"}\n{"region": "forbidden"}')

    interchange = received(location, masked)

    [message] = interchange.messages
    assert message.context.get("Region") == "no"
    assert interchange.failures[0].reason == "it comes from a forbidden region"


def test_disassembler_of_ones_own_gives_messages_without_a_type(folder: Path) -> None:
    own = {"name": "halves", "disassemble": "components:halves"}
    location = location_of(folder, location={"pipeline": "halves"}, pipelines=[own])

    messages = received(location, b"abcd").messages

    assert [message.body for message in messages] == [b"ab", b"cd"]
    assert "BTS.MessageType" not in messages[0].context.promoted


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("too_large", "components:too_large gives what cannot be kept: property 'Count' is integer, and"),
        ("listed", "components:listed gives what cannot be kept: property 'Region' cannot be list"),
    ],
)
def test_component_that_writes_what_no_property_can_be_has_the_document_suspended(
    folder: Path, function: str, said: str
) -> None:
    own = {"name": "own", "disassemble": "json", "components": [f"components:{function}"]}
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own])

    assert reason(received(location, b"{}")).startswith(said)


@pytest.mark.parametrize("function", ["nothing", "texts"])
def test_disassembler_that_finds_nothing_or_no_bytes_does_not_make_a_file_vanish(folder: Path, function: str) -> None:
    own = {"name": "own", "disassemble": f"components:{function}"}
    location = location_of(folder, location={"pipeline": "own"}, pipelines=[own])

    failure = received(location, b"abc").failures[0]

    assert failure.message.body == b"abc"
    assert failure.reason in ("the file holds no message", "components:texts gives str instead of bytes")


def test_component_that_says_a_document_failed_is_heard_also_where_a_map_follows(folder: Path) -> None:
    own = {"name": "own", "disassemble": "json", "components": ["components:refused"]}
    maps = [{"from": "Order", "function": "components:doubled"}]
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own], port={"maps": maps})

    assert reason(received(location, b'{"amount": 1}')) == "not today"
