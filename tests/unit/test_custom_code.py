"""What code of an application's own gives: checked after each component, so that a bad document fails alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from crossdock.receive.location import ReceiveLocation
from stages import ORDER, location_of, received

GIVES = """
import datetime
import enum
from decimal import Decimal
from crossdock.pipeline.document import Document

class Region(str, enum.Enum):
    NORTH = "NO"

def promoting(**values):
    def component(document):
        if document.promoted.get("Region") == "good":
            return document
        return document.changed(promoted={**document.promoted, **values})
    return component

def changing(**changes):
    return lambda document: document if document.promoted.get("Region") == "good" else document.changed(**changes)

long_text = promoting(Region="x" * 257)
long_enough = promoting(Region="x" * 256)
half = promoting(Region="\\ud800")
text_amount = promoting(Amount="12.50")
float_amount = promoting(Amount=0.1)
whole_amount = promoting(Amount=7)
far_amount = promoting(Amount=10**5000)
truth = promoting(Region=True)
listed = promoting(Region=["NO"])
nothing = promoting(Region=None)
numbered = changing(promoted={5: "x"})
unmapped = changing(promoted=["Region"])
system = promoting(**{"BTS.InterchangeSequenceNumber": "first"})
naive = promoting(Seen=datetime.datetime(2026, 1, 2, 3, 4, 5))
too_early = promoting(Seen=datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=5))))
enumerated = promoting(Region=Region.NORTH)
unknown = promoting(Elsewhere=3)
text_body = changing(body="text")
other_type = changing(type="Other")
no_type = changing(type=None)
numeric_type = changing(type=5)
other_promoted_type = promoting(**{"BTS.MessageType": "Other"})
only_region = changing(promoted={"Region": "NO"})
gives_none = lambda document: document if document.promoted.get("Region") == "good" else None
long_note = changing(written={"Note": "x" * 1000})

def typed(content):
    return [Document(line, "Typed", {"Amount": Decimal(1)}) for line in content.splitlines()]

def lists(content):
    return [Document(b"1", "Typed", {"Region": ["NO"]}), Document(b"2", "Typed", {"Region": "NO"})]

def decodes_to_text(content):
    return content.decode()
"""


def of(folder: Path, function: str, **options: Any) -> ReceiveLocation:
    (folder / "gives.py").write_text(GIVES)
    own: Mapping[str, Any] = {"name": "own", "disassemble": "json", "components": [f"gives:{function}"], **options}
    schemas = [ORDER] if own["disassemble"] == "json" else []
    return location_of(folder, *schemas, location={"pipeline": "own"}, pipelines=[own])


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("long_text", "gives what cannot be kept: property 'Region' has 257 characters, and 256 is the most"),
        ("half", "gives what cannot be kept: property 'Region' is no text that can be written as UTF-8"),
        ("text_amount", "gives what cannot be kept: property 'Amount' is decimal, and not text"),
        ("float_amount", "gives what cannot be kept: property 'Amount' is decimal, and not float"),
        ("far_amount", "gives what cannot be kept: property 'Amount' is"),
        ("truth", "gives what cannot be kept: property 'Region' is text, and not boolean"),
        ("listed", "gives what cannot be kept: property 'Region' cannot be list"),
        ("nothing", "gives what cannot be kept: property 'Region' cannot be NoneType"),
        ("numbered", "gives what cannot be kept: the name of a property is text, not 5"),
        ("unmapped", "gives what cannot be kept: properties are a mapping, not list"),
        ("system", "gives what cannot be kept: property 'BTS.InterchangeSequenceNumber' is integer, and not text"),
        ("too_early", "gives what cannot be kept: property 'Seen' is out of all bounds: date value out of range"),
        ("text_body", "gives a body that is str instead of bytes"),
        ("numeric_type", "gives what cannot be kept: the type of a message is text, not int"),
        ("gives_none", "gives NoneType instead of a Document"),
    ],
)
def test_document_that_a_component_makes_unusable_fails_alone_and_names_the_component(
    folder: Path, function: str, said: str
) -> None:
    interchange = received(of(folder, function), b'{"region": "good", "amount": 1}\n{"region": "bad"}')

    [message] = interchange.messages
    [failure] = interchange.failures
    assert (message.context.get("Region"), message.body) == ("good", b'{"region": "good", "amount": 1}')
    assert failure.reason.startswith(f"gives:{function} {said}")
    assert failure.message.body == b'{"region": "bad"}'


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        ("long_enough", "Region", "x" * 256),
        ("whole_amount", "Amount", Decimal(7)),
        ("naive", "Seen", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("enumerated", "Region", "NO"),
        ("unknown", "Elsewhere", 3),
        ("long_note", "Note", "x" * 1000),
    ],
)
def test_value_that_fits_is_kept_as_its_property_has_it(folder: Path, function: str, name: str, value: object) -> None:
    [message] = received(of(folder, function), b'{"region": "other"}').messages

    found = message.context.get(name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("function", "type_"),
    [("other_type", "Other"), ("other_promoted_type", "Other"), ("no_type", None), ("only_region", "Order")],
)
def test_message_type_follows_the_type_of_the_document(folder: Path, function: str, type_: str | None) -> None:
    [message] = received(of(folder, function), b'{"region": "other"}').messages

    assert message.context.promoted.get("BTS.MessageType") == type_


def test_map_is_chosen_by_the_type_that_a_component_gives(folder: Path) -> None:
    (folder / "gives.py").write_text(GIVES)
    own = {"name": "own", "disassemble": "json", "components": ["gives:other_promoted_type"]}
    maps = [{"from": "Other", "function": "components:doubled"}]
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own], port={"maps": maps})

    [message] = received(location, b'{"amount": 2}').messages

    assert message.body == b'{"total": 4}'


def test_document_of_ones_own_disassembler_has_its_type_and_fails_alone(folder: Path) -> None:
    typed = received(of(folder, "", disassemble="gives:typed", components=[]), b"a\nb")
    lists = received(of(folder, "", disassemble="gives:lists", components=[]), b"a\nb")

    assert [message.context.promoted["BTS.MessageType"] for message in typed.messages] == ["Typed", "Typed"]
    assert [message.body for message in lists.messages] == [b"2"]
    assert lists.failures[0].reason == "gives:lists gives what cannot be kept: property 'Region' cannot be list"
    assert lists.failures[0].message.body == b"1"


def test_decoder_that_gives_no_bytes_is_named(folder: Path) -> None:
    own = {"decode": ["gives:decodes_to_text"], "components": []}

    [failure] = received(of(folder, "", **own), b"{}").failures

    assert failure.reason == "gives:decodes_to_text gives str instead of bytes"
