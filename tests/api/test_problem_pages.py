"""The type of a problem is a page of the console: it says what the documentation says, to everybody.

`python tests/api/test_problem_pages.py` writes what the pages say anew from the documentation.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console_box import Seeded
from console_fixtures import box
from crossdock.api.problems import OWN_CODES
from crossdock.console.page import FOLDER
from crossdock.console.pages import install
from served import served

__all__ = ["box"]

DOCS = Path(__file__).parents[2] / "docs/reference"
CODES = FOLDER / "codes.json"
_ROW = re.compile(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def documented() -> dict[str, dict[str, str]]:
    """What a code means and what to do, as the tables of the documentation say it."""
    found: dict[str, dict[str, str]] = {}
    for code, means, what_to_do in _ROW.findall(_LINK.sub(r"\1", (DOCS / "errors.md").read_text())):
        found.setdefault(code, {"means": means, "do": what_to_do})
    for code, _, means in _ROW.findall(_LINK.sub(r"\1", (DOCS / "api.md").read_text())):
        if code in OWN_CODES:
            found[code] = {"means": f"{means[0].upper()}{means[1:]}.", "do": ""}
    return dict(sorted(found.items()))


def as_written() -> str:
    return json.dumps(documented(), indent=1, ensure_ascii=False) + "\n"


def test_pages_say_what_the_documentation_says() -> None:
    assert documented().keys() >= OWN_CODES
    assert CODES.read_text() == as_written()


def test_every_type_of_a_problem_is_a_page_that_nobody_has_to_sign_in_for(database: str, box: Seeded) -> None:
    with served(database, install=install) as console, console.client() as nobody:
        refused = nobody.get("/api/v1/ports")
        told = nobody.get(refused.json()["type"])
        pages = {code: nobody.get(f"/problems/{code}") for code in documented()}
        with console.as_role("administrator") as administrator:
            wrong = administrator.get("/api/v1/messages", params={"where": "Nothing = 1"}).json()
            message = administrator.get(f"/messages/{box.suspended}").text

    assert refused.headers["content-type"] == "application/problem+json"
    assert "Nobody has signed in" in told.text
    assert {page.status_code for page in pages.values()} == {200}
    assert "crossdock start NAME" in pages["port-stopped"].text
    assert wrong["type"] == f"/problems/{wrong['code']}"
    assert 'href="/problems/port-stopped"' in message


@pytest.mark.parametrize("code", ["no-such-code", "<script>", "..%2Fcodes.json"])
def test_a_code_that_is_none_is_not_found_and_not_repeated(database: str, code: str) -> None:
    with served(database, install=install) as console, console.client() as nobody:
        answer = nobody.get(f"/problems/{code}")

    assert answer.status_code == 404
    assert "<script>" not in answer.text


if __name__ == "__main__":
    CODES.write_text(as_written())
