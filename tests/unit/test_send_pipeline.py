"""The send pipeline: maps and components, then encoding; a message for which there is nothing to do is not even read."""

from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from crossdock.errors import DocumentError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, Part, StreamedPart
from crossdock.pipeline import send
from crossdock.pipeline.build_send import send_pipeline
from send_pipelines import ID, a_message, definition_of, pipelines_of, refusal, sent


def unread() -> StreamedPart:
    def opened() -> BytesIO:
        raise AssertionError("it was read")

    return StreamedPart("body", opened)


# Nothing to do


def test_pipeline_without_stages_gives_the_message_itself_and_reads_nothing(folder: Path) -> None:
    pipeline = send_pipeline(pipelines_of(folder).sending("Out", None, []))
    message = Message(ID, Context({"BTS.MessageType": "Order"}), (unread(),))

    assert pipeline.execute(message) is message


def test_message_of_a_type_without_a_map_is_not_read(folder: Path) -> None:
    pipeline = send_pipeline(definition_of(folder, maps=[{"from": "Order", "to": "Bill", "function": "steps:bill"}]))
    message = Message(ID, Context({"BTS.MessageType": "Other"}), (unread(),))

    assert pipeline.execute(message) is message


def test_large_body_goes_through_stages_only_up_to_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "LIMIT_BYTES", 1_000)
    pipeline = send_pipeline(definition_of(folder, encode=["gzip"]))
    parts = [(StreamedPart("body", lambda size=size: BytesIO(b"x" * size)),) for size in (1_000, 1_001)]  # type: ignore[misc]

    assert gzip.decompress(pipeline.execute(Message(ID, Context(), parts[0])).body) == b"x" * 1_000
    with pytest.raises(DocumentError, match="more than 1,000 bytes, and can only be passed through"):
        pipeline.execute(Message(ID, Context(), parts[1]))


# Maps and components


def test_map_replaces_the_body_and_the_type_and_nothing_else(folder: Path) -> None:
    message = a_message(b'{"amount": 5}')

    made = send_pipeline(
        definition_of(folder, maps=[{"from": "Order", "to": "Bill", "function": "steps:bill"}])
    ).execute(message)

    assert made.parts == (Part("body", b'{"total": 5}'), Part("picture", b"\x89"))
    assert made.id == ID
    assert made.context == message.context.promote("BTS.MessageType", "Bill")


def test_stylesheet_is_chosen_by_type_and_a_map_without_a_target_leaves_none(folder: Path) -> None:
    maps = [
        {"from": "Order", "to": "Bill", "function": "steps:bill"},
        {"from": "Purchase", "to": "Invoice", "xslt": "invoice.xsl"},
        {"from": "Sale", "function": "steps:bill"},
    ]
    pipeline = send_pipeline(definition_of(folder, maps=maps))

    invoice = pipeline.execute(a_message(b"<Order><amount>5</amount></Order>", "Purchase"))
    nameless = pipeline.execute(a_message(b'{"amount": 5}', "Sale"))

    assert invoice.body.strip() == b"<Invoice><total>10</total></Invoice>"
    assert invoice.context.get("BTS.MessageType") == "Invoice"
    assert nameless.context.get("BTS.MessageType") is None


def test_map_that_fails_or_makes_something_else_is_refused(folder: Path) -> None:
    maps = [{"from": "Order", "to": "Bill", "function": "steps:bill"}]

    assert refusal(folder, b"{}", maps=maps) == "the map steps:bill fails on it: KeyError: 'amount'"
    assert "what the map makes of it cannot be used: property 'Total'" in refusal(
        folder, b'{"amount": "much"}', maps=maps
    )
    assert refusal(folder, b"no XML", maps=[{"from": "Order", "to": "Invoice", "xslt": "invoice.xsl"}]).startswith(
        "the document is not XML: "
    )


def test_components_come_after_the_map_and_before_encoding(folder: Path) -> None:
    maps = [{"from": "Order", "to": "Bill", "function": "steps:bill"}]

    made = send_pipeline(
        definition_of(folder, maps=maps, components=["steps:shout"], encode=["steps:reverse", "gzip"])
    ).execute(a_message(b'{"amount": 5}'))

    assert gzip.decompress(made.body) == b'{"TOTAL": 5}'[::-1]
    assert made.context.get("Loud") == "yes"
    assert made.context.labels == {"secret"}


@pytest.mark.parametrize(
    ("stage", "name", "reason"),
    [
        ("components", "refuse", "not today"),
        ("components", "mark", "it is marked"),
        ("components", "broken", "steps:broken fails on it: ZeroDivisionError: oops"),
        ("components", "nothing", "steps:nothing gives NoneType instead of Document"),
        ("components", "text", "steps:text gives a body that is str instead of bytes"),
        ("encode", "length", "steps:length gives int instead of bytes"),
    ],
)
def test_function_that_fails_is_named(stage: str, name: str, reason: str, folder: Path) -> None:
    chosen: dict[str, Any] = {stage: [f"steps:{name}"]}

    assert refusal(folder, b"{}", **chosen) == reason


def test_component_may_ask_for_another_attempt(folder: Path) -> None:
    with pytest.raises(TransientError, match="the key server is away"):
        sent(folder, b"{}", components=["steps:wait"])


# Encoding


def test_same_message_gives_the_same_compressed_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sent(folder, b"content" * 9, encode=["gzip"])
    monkeypatch.setattr("time.time", lambda: 1.0)

    assert sent(folder, b"content" * 9, encode=["gzip"]) == first
    assert gzip.decompress(first) == b"content" * 9


def test_text_is_written_in_a_character_set_before_it_is_compressed(folder: Path) -> None:
    body = '{"name": "Blåbær"}'.encode()

    assert sent(folder, body, assemble="json", charset="latin-1") == body.decode().encode("latin-1")
    assert (
        gzip.decompress(sent(folder, body, charset="utf-16-le", encode=["gzip"])).decode("utf-16-le") == body.decode()
    )
    assert refusal(folder, "ab€".encode(), charset="latin-1") == (
        "character 3 of the body is '€', which latin-1 does not have"
    )
    assert refusal(folder, b"a\xff", charset="latin-1") == "the body is not UTF-8: byte 2 is 0xff"
