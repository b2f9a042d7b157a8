"""Pictures that the server draws, and how values are written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from crossdock.administration.trace import Traced, TraceEvent
from crossdock.console import shown
from crossdock.console.edit import difference
from crossdock.console.journey import Box, picture_of
from crossdock.console.page import Notice, Notices, local
from crossdock.console.sparkline import spark

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def a_journey(copies: int = 2, children: int = 0) -> Traced:
    events = [
        TraceEvent(NOON, "received", location="OrdersIn", source="/in/a.json"),
        TraceEvent(NOON, "published", copies=copies),
    ]
    for number in range(copies):
        failed = number == 0
        events.append(
            TraceEvent(
                NOON + timedelta(seconds=1),
                "suspended" if failed else "delivered",
                f"Port{number}",
                attempt=1,
                code="refused" if failed else None,
                reason="The partner said no." if failed else None,
                claimed_at=NOON,
                sequence=number,
            )
        )
    made = Traced("1-1", "message", "Order", NOON, events)
    made.children = [Traced(f"2-{n}", "message", "Answer", NOON) for n in range(children)]
    return made


def by_title(boxes: list[Box]) -> dict[str, Box]:
    return {box.title: box for box in boxes}


def test_journey_goes_from_its_source_by_the_message_to_every_copy() -> None:
    picture = picture_of(a_journey())

    boxes = by_title(list(picture.boxes))
    assert list(boxes) == ["OrdersIn", "Order", "Port0", "Port1"]
    assert boxes["OrdersIn"].x < boxes["Order"].x < boxes["Port0"].x == boxes["Port1"].x
    assert len(picture.edges) == 3


def test_copy_that_failed_says_so_by_word_and_code_and_reason() -> None:
    failed = by_title(list(picture_of(a_journey()).boxes))["Port0"]

    assert failed.word == "suspended"
    assert [line.text for line in failed.lines] == ["try 1 suspended, 1.0 s", "refused", "The partner said no."]


def test_long_reason_takes_a_few_lines_and_is_told_whole_to_who_points_at_it() -> None:
    reason = "The partner answered 422 Unprocessable Entity: an order needs a currency, and this one has none at all."
    traced = a_journey(copies=1)
    traced.events = [*traced.events[:-1], replace(traced.events[-1], reason=reason)]

    _, _, *lines = by_title(list(picture_of(traced).boxes))["Port0"].lines

    assert [line.text for line in lines] == [
        "The partner answered 422",
        "Unprocessable Entity: an order",
        "needs a currency, and this one…",
    ]
    assert {line.full for line in lines} == {reason}


def test_boxes_do_not_cover_each_other() -> None:
    boxes = list(picture_of(a_journey(copies=9, children=5)).boxes)

    for box in boxes:
        others = [each for each in boxes if each is not box and each.x == box.x]
        assert all(each.y >= box.y + box.height or each.y + each.height <= box.y for each in others)


def test_large_journey_is_cut_and_says_by_how_much() -> None:
    picture = picture_of(a_journey(copies=300))

    assert len(picture.boxes) <= 82
    assert picture.left_out >= 218


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.2, "< 1 s"), (59, "59 s"), (180, "3 min"), (10_000, "3 h"), (200_000, "2 d")]
)
def test_ages_are_short(value: float | None, text: str) -> None:
    assert shown.age(value) == text


@pytest.mark.parametrize(("count", "text"), [(None, "–"), (5, "5 B"), (2048, "2.0 KB"), (3 * 1024**3, "3.0 GB")])
def test_sizes_are_short(count: int | None, text: str) -> None:
    assert shown.size(count) == text


def test_plural_is_that_of_the_word() -> None:
    assert [shown.count(each, "attempt") for each in (0, 1, 1_000)] == ["0 attempts", "1 attempt", "1,000 attempts"]
    assert [shown.count(each, "delivery", "deliveries") for each in (1, 2)] == ["1 delivery", "2 deliveries"]


def test_address_leaves_out_what_was_not_asked() -> None:
    assert shown.query(q="a = 'b'", type_="Order", state="", before=None) == "?q=a+%3D+%27b%27&type=Order"


def test_times_in_a_sentence_are_shown_like_all_times_and_its_text_as_text() -> None:
    shown_text = shown.times("<b> until 2026-05-01T14:00:00+02:00, not 2026-99-01T00:00:00Z")

    assert str(shown_text).startswith(
        '&lt;b&gt; until <time class="number nowrap" datetime="2026-05-01T12:00:00.000+00:00"'
    )
    assert str(shown_text).endswith(">2026-05-01 12:00:00</time>, not 2026-99-01T00:00:00Z")


def test_line_of_nothing_is_not_drawn() -> None:
    assert spark([0, 0, 0]) is None
    assert spark([0, 4]) is not None


def test_notice_is_shown_once() -> None:
    notices = Notices()
    name = notices.put(Notice("done"))

    assert notices.take(name) == Notice("done")
    assert notices.take(name) is None
    assert notices.take("made up") is None


@pytest.mark.parametrize("address", ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere", None])
def test_nobody_is_sent_elsewhere(address: str | None) -> None:
    assert local(address, "/ports") == "/ports"


def test_difference_of_a_body_is_shown_line_by_line() -> None:
    lines = difference('{\n "a": 1\n}', '{\n "a": 2\n}')

    assert [(line.kind, line.text) for line in lines if line.kind != "same"] == [
        ("removed", '- "a": 1'),
        ("added", '+ "a": 2'),
    ]


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_time_that_is_none_in_utc_is_a_text(text: str) -> None:
    """What an instance waits for is told by its host."""
    assert shown.times(f"until {text}!") == f"until {text}!"
