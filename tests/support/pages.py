"""The documents, and the commands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_HISTORY = ("docs/decisions", "docs/history")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"`(crossdock [^`]+)`", re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CURRENT = [page for page in PAGES if not name(page).startswith(_HISTORY)]


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in _BLOCK.findall(page.read_text()) if language in languages]


def typed(page: Path) -> Iterator[str]:
    """The commands in the blocks of a page, as they are typed."""
    for block in blocks(page, "", "console", "sh", "bash", "shell"):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            command = re.sub(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/bin/)?", "", line.strip())
            if command.startswith("crossdock ") and not re.match(r"crossdock: ", command):
                yield command


def named(page: Path) -> Iterator[str]:
    """What stands between backticks in sentences, with at least one option or argument."""
    prose = _BLOCK.sub("", page.read_text())
    for quoted in _NAMED.findall(prose):
        if not quoted.startswith(("crossdock …", "crossdock -")):  # whatever command
            yield " ".join(quoted.split())
