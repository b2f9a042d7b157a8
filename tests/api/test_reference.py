"""The page about the API: it has every operation with its right, and every code."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import FastAPI

from crossdock.api.app import API
from crossdock.api.problems import OWN_CODES
from crossdock.api.routes import api_routes
from who_may import ALLOWED, EDITORS, EVERYBODY, OPERATORS, READERS

PAGE = (Path(__file__).parents[2] / "docs/reference/api.md").read_text()
RIGHTS = {
    "viewer": EVERYBODY,
    "operator": OPERATORS,
    "bodies": READERS,
    "edit": EDITORS,
    "administrator": {"administrator"},
}


def test_the_page_has_every_operation_with_the_right_that_it_takes() -> None:
    app = FastAPI()
    app.include_router(api_routes(), prefix=API)
    described = {
        (f"{verb.upper()} {path.removeprefix(API)}", operation["operationId"]): ALLOWED[operation["operationId"]]
        for path, operations in app.openapi()["paths"].items()
        for verb, operation in operations.items()
    }
    rows = re.findall(r"^\| `([A-Z]+ /\S+)` \| `(\w+)` \| `(\w+)` \| \S", PAGE, re.MULTILINE)

    assert {(request, name): RIGHTS[right] for request, name, right in rows} == described


def test_the_page_has_every_code_of_the_console() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \| \d{3} \| ", PAGE, re.MULTILINE)) == OWN_CODES
