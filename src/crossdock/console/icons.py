"""Icons of 16 by 16, as paths: drawn inline, so that a page needs no further request and no font."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

_PATHS: Mapping[str, str] = {
    "alert": "M8 2.2 14.4 13.4H1.6L8 2.2ZM8 6.5v3.2M8 11.6v.1",
    "archive": "M2 3h12v3H2zM3 6v7.5h10V6M6.5 9h3",
    "arrow": "M3 8h10M9 4l4 4-4 4",
    "back": "M13 8H3M7 4 3 8l4 4",
    "check": "m3 8.5 3.5 3.5L13 4.5",
    "clock": "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 5v3.2l2 1.3",
    "cross": "m4 4 8 8M12 4l-8 8",
    "dot": "M8 7.9v.2",
    "download": "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M2.8 13.3h10.4",
    "edit": "M10.6 3 13 5.4 5.8 12.6 2.8 13.2l.6-3L10.6 3Z",
    "eye": "M1.5 8S4 3.8 8 3.8 14.5 8 14.5 8 12 12.2 8 12.2 1.5 8 1.5 8ZM8 9.7a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4Z",
    "flask": "M6 2h4M6.7 2v4.3L3 12.6c-.3.7.1 1.4.9 1.4h8.2c.8 0 1.2-.7.9-1.4L9.3 6.3V2M4.8 10h6.4",
    "fork": "M8 14V9M8 9 3.5 4.5M8 9l4.5-4.5M3.5 7.5v-3h3M12.5 7.5v-3h-3",
    "help": "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM6.3 6.3c0-2.2 3.5-2.2 3.5 0 0 1.4-1.8 1.4-1.8 2.8M8 11.3v.1",
    "home": "M2.2 7.3 8 2.5l5.8 4.8M4 6.5v7h8v-7",
    "inbox": "M2 9.5 4 3h8l2 6.5V13H2V9.5Zm0 0h3.5l1 1.8h3l1-1.8H14",
    "link": "M6.8 9.2a2.6 2.6 0 0 0 3.7 0l2.2-2.2a2.6 2.6 0 0 0-3.7-3.7l-.9.9M9.2 6.8a2.6 2.6 0 0 0-3.7 0L3.3 9a2.6 2.6 0 0 0 3.7 3.7l.9-.9",
    "list": "M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.1M2.5 8h.1M2.5 12h.1",
    "lock": "M4 7.2h8v6H4zM5.8 7V5a2.2 2.2 0 0 1 4.4 0v2",
    "mail": "M2 3.7h12v8.6H2zM2.3 4.2 8 8.8l5.7-4.6",
    "menu": "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
    "minus": "M4 8h8",
    "moon": "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7Z",
    "out": "M9.5 2.5H13v11H9.5M2.5 8h7M6.8 5.2 9.6 8l-2.8 2.8",
    "pause": "M5.5 4v8M10.5 4v8",
    "person": "M8 8a2.8 2.8 0 1 0 0-5.6A2.8 2.8 0 0 0 8 8ZM2.8 14c.4-2.8 2.5-4.2 5.2-4.2s4.8 1.4 5.2 4.2",
    "play": "M5 3.5v9L12.5 8 5 3.5Z",
    "plan": "M3.5 2h6l3 3v9h-9V2ZM9.3 2v3.2h3.2M6 8.5h4M8 6.5v4M6 12.3h4",
    "plus": "M8 3.5v9M3.5 8h9",
    "queue": "M2.5 4h11M2.5 8h7.5M2.5 12h4.5",
    "repeat": "M13 7A5.2 5.2 0 0 0 3.3 5.8M3 3v3h3M3 9a5.2 5.2 0 0 0 9.7 1.2M13 13v-3h-3",
    "route": "M4 5a1.7 1.7 0 1 0 0-3.4A1.7 1.7 0 0 0 4 5ZM12 14.4a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4ZM4 5v3.5c0 2.5 1.5 4.2 4 4.2h2.2M5.7 3.3H9c2 0 3 1 3 3V8",
    "search": "M7.2 12A4.8 4.8 0 1 0 7.2 2.4 4.8 4.8 0 0 0 7.2 12ZM10.8 10.8l3 3",
    "server": "M2.5 2.8h11v4.2h-11zM2.5 9h11v4.2h-11zM5 4.9h.1M5 11.1h.1",
    "shield": "M8 1.8 13.2 4v4c0 3-2.2 5.2-5.2 6.2C5 13.2 2.8 11 2.8 8V4L8 1.8ZM5.8 8l1.6 1.6 2.8-3",
    "star": "m8 2 1.8 3.8 4.2.6-3 2.9.7 4.2L8 11.5l-3.7 2 .7-4.2-3-2.9 4.2-.6L8 2Z",
    "steps": "M3.5 4.2h.1M3.5 8h.1M3.5 11.8h.1M6.5 4.2h6M6.5 8h4M6.5 11.8h5",
    "stop": "M4.5 4.5h7v7h-7z",
    "sun": "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6ZM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
    "trash": "M2.8 4.2h10.4M6 4V2.5h4V4M4.2 4.5l.6 9h6.4l.6-9",
    "undo": "M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M6 3.5l-3 3 3 3",
}  # fmt: skip


def icon(name: str) -> Markup:
    """Decoration: what it means is said in words beside it."""
    return Markup(
        '<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d="{}"/></svg>'
    ).format(_PATHS[name])


def icon_path(name: str) -> str:
    """The path alone, for pictures."""
    return _PATHS[name]
