"""How values are written on pages: numbers, rates, ages, sizes, times, and states with their icon and tone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from markupsafe import Markup

from crossdock.administration.condition import AGREEING
from crossdock.administration.message_ids import short_id

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_MESSAGE = 8  # the version of the UUIDs of messages
_TONES: Mapping[str, tuple[str, str]] = {
    # state: tone, icon. The word is always there besides: nobody has to tell colours apart.
    "suspended": ("bad", "alert"),
    "unrouted": ("bad", "fork"),
    "failed": ("bad", "cross"),
    "refused": ("bad", "lock"),
    "not given": ("bad", "cross"),
    "died": ("bad", "cross"),
    "lost": ("bad", "cross"),
    "stuck": ("bad", "alert"),
    "NONE": ("bad", "cross"),
    "removed": ("bad", "minus"),
    "lost match": ("bad", "minus"),
    "waiting": ("wait", "clock"),
    "retried": ("wait", "repeat"),
    "postponed": ("wait", "clock"),
    "stopped": ("wait", "pause"),
    "disabled": ("wait", "pause"),
    "cancelling": ("wait", "undo"),
    "cancelled": ("wait", "undo"),
    "throttled": ("wait", "clock"),
    "silent": ("wait", "clock"),
    "stopping": ("wait", "pause"),
    "changed": ("wait", "edit"),
    "delivered": ("good", "check"),
    "completed": ("good", "check"),
    "answered": ("good", "check"),
    "started": ("good", "play"),
    "enabled": ("good", "play"),
    "running": ("good", "play"),
    "done": ("good", "check"),
    "published": ("good", "check"),
    "received": ("good", "inbox"),
    "added": ("good", "plus"),
    "matched": ("good", "check"),
    "queued": ("calm", "queue"),
    "held": ("calm", "inbox"),
    "claimed": ("calm", "arrow"),
    "not matched": ("calm", "minus"),
    "unenlisted": ("calm", "minus"),
    "terminated": ("calm", "stop"),
    "discarded": ("calm", "trash"),
    "replaced": ("calm", "edit"),
    "edited": ("calm", "edit"),
    "resumed": ("calm", "repeat"),
    "settled": ("calm", "check"),
    "stored": ("calm", "inbox"),
    "unchanged": ("calm", "minus"),
    "begun": ("calm", "arrow"),
}


def tone(state: str | None) -> str:
    """good, wait, bad or calm: which colour a state has."""
    return _TONES.get(state or "", ("calm", "dot"))[0]


def icon_of(state: str | None) -> str:
    return _TONES.get(state or "", ("calm", "dot"))[1]


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """So many in a second."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def age(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 1:
        return "< 1 s"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def took(seconds: float | None) -> str:
    """A short time, such as that of an attempt."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else age(seconds)


def size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("there is a last unit")


def short(id_: str | None) -> str:
    """A message as `48213-0`, as commands print it; of another id the end, where it differs from others."""
    if id_ is None:
        return ""
    try:
        uuid = UUID(id_)
    except ValueError:
        return id_
    return short_id(uuid) if uuid.version == _MESSAGE else f"…{id_[-12:]}"


def is_message_id(text: str) -> bool:
    try:
        return UUID(text).version == _MESSAGE
    except ValueError:
        return False


def clock(at: datetime | None, *, seconds: bool = True) -> Markup:
    """A time in UTC, which the script of the page shows as the reader wants it."""
    if at is None:
        return Markup("–")
    utc = at.astimezone(UTC)
    text = utc.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")
    iso = utc.isoformat(timespec="milliseconds")
    return Markup('<time class="number nowrap" datetime="{}" data-seconds="{}" title="{} UTC">{}</time>').format(
        iso, int(seconds), text, text
    )


def utc_time(at: datetime) -> str:
    """The time of the day for pictures, which have little room. The script of the page shows it in the chosen zone."""
    return at.astimezone(UTC).strftime("%H:%M:%S")


def times(text: str) -> Markup:
    """A sentence whose times the reader sees in the zone of their choice, like all other times."""
    made, end = Markup(), 0
    for found in _TIME.finditer(text):
        try:
            at = clock(datetime.fromisoformat(found.group()))
        except (ValueError, OverflowError):  # it only looks like a time, or is none in UTC
            continue
        made += Markup.escape(text[end : found.start()]) + at
        end = found.end()
    return made + Markup.escape(text[end:])


def count(value: int, noun: str, plural: str | None = None) -> str:
    """`1 attempt`, `2 attempts`; `plural` where an s does not make it."""
    return f"{value:,} {noun if value == 1 else plural or f'{noun}s'}"


def file(source: str) -> str:
    """The name of a file at the end of its path; anything else as it is."""
    return source.rstrip("/").rpartition("/")[2] or source


def may_agree(problem: str | None) -> bool:
    """Whether a search was refused only until somebody agrees to search by personal properties."""
    return problem is not None and AGREEING in problem


def query(**values: object) -> str:
    """`?a=b` of what is there; nothing of what is None, False or empty."""
    said = {name.rstrip("_"): str(value) for name, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(said)}" if said else ""
