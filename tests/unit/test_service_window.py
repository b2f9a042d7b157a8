"""When a service window opens, also on the days when the clock is changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossdock.send.window import ServiceWindow

ZONES = sorted(available_timezones() - {"localtime"})
# Many zones never change their clock: these do, or did, by an hour, by half of one, by a day.
CHANGING = [
    "Europe/Oslo",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Cairo",
    "Pacific/Apia",
]
DAY = 24 * 60


@pytest.mark.parametrize(
    ("start", "end", "zone", "now", "opens"),
    [
        ("08:00", "17:00", "UTC", "2026-11-16T12:00", None),
        ("08:00", "17:00", "UTC", "2026-11-16T08:00", None),
        ("08:00", "17:00", "UTC", "2026-11-16T17:00", "2026-11-17T08:00"),
        ("08:00", "17:00", "UTC", "2026-11-16T03:00", "2026-11-16T08:00"),
        ("22:00", "06:00", "UTC", "2026-11-16T23:00", None),
        ("22:00", "06:00", "UTC", "2026-11-16T05:59", None),
        ("22:00", "06:00", "UTC", "2026-11-16T06:00", "2026-11-16T22:00"),
        ("08:00", "17:00", "Europe/Oslo", "2026-07-01T05:30", "2026-07-01T06:00"),
        ("08:00", "17:00", "Europe/Oslo", "2026-11-16T06:30", "2026-11-16T07:00"),
        ("02:30", "03:30", "Europe/Oslo", "2026-03-29T00:45", "2026-03-29T01:00"),  # 02:30 does not exist that day
        ("02:30", "03:30", "Europe/Oslo", "2026-10-25T00:15", "2026-10-25T00:30"),  # 02:30 comes twice that day
        ("02:30", "03:30", "Europe/Oslo", "2026-10-25T01:15", "2026-10-25T01:30"),
        ("02:15", "02:45", "Europe/Oslo", "2026-10-25T00:50", "2026-10-25T01:15"),
        ("01:30", "02:45", "Europe/Oslo", "2026-10-25T00:50", "2026-10-25T01:00"),  # the clock is put back into it
        ("02:15", "02:45", "Europe/Oslo", "2026-03-29T00:30", "2026-03-30T00:15"),  # none of it is there that day
    ],
)
def test_window_opens_when_its_clock_says(start: str, end: str, zone: str, now: str, opens: str | None) -> None:
    window = ServiceWindow.model_validate({"start": start, "end": end, "zone": zone})

    found = window.opens(datetime.fromisoformat(now).replace(tzinfo=UTC))

    assert found == (None if opens is None else datetime.fromisoformat(opens).replace(tzinfo=UTC))


@settings(max_examples=500)
@given(
    start=st.integers(0, DAY - 1) | st.integers(0, 4 * 60),  # most clocks are changed in the night
    length=st.integers(1, DAY - 1) | st.integers(1, 2 * 60),
    zone=st.sampled_from(CHANGING) | st.sampled_from(ZONES),
    day=st.dates(date(1975, 1, 1), date(2040, 1, 1)),
    changes=st.booleans(),
    into=st.timedeltas(timedelta(0), timedelta(days=2)),
)
def test_window_opens_at_the_first_moment_that_is_inside(
    start: int, length: int, zone: str, day: date, changes: bool, into: timedelta
) -> None:
    window = ServiceWindow(start=clock(start), end=clock(start + length), zone=zone)
    now = (day_before_a_change(zone, day) if changes else midnight(day)) + into

    opens = window.opens(now)

    if opens is None:
        assert inside(window, now)
    else:
        assert opens > now
        assert inside(window, opens)
        assert not any(inside(window, moment) for moment in moments(now, opens))


def clock(minute: int) -> time:
    return time(minute // 60 % 24, minute % 60)


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def day_before_a_change(zone: str, day: date) -> datetime:
    """The next day after which the clock is changed, within a year; the day itself if there is none."""
    days = [midnight(day) + timedelta(days=number) for number in range(367)]
    offsets = [each.astimezone(ZoneInfo(zone)).utcoffset() for each in days]
    return next((each for each, one, other in zip(days, offsets, offsets[1:], strict=False) if one != other), days[0])


def inside(window: ServiceWindow, moment: datetime) -> bool:
    shown = moment.astimezone(ZoneInfo(window.zone)).time()
    return ahead(window.start, shown) < ahead(window.start, window.end)


def ahead(of: time, at: time) -> timedelta:
    """How far a clock has gone on since it showed the first of these."""
    return (datetime.combine(date.min, at) - datetime.combine(date.min, of)) % timedelta(days=1)


def moments(begin: datetime, end: datetime) -> Iterator[datetime]:
    """The beginning, every whole minute up to the end, and the last moment before it."""
    moment = begin
    while moment < end:
        yield moment
        moment = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    yield end - timedelta(microseconds=1)
