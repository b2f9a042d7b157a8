"""`/problems/CODE`: what a code means and what to do. It is the `type` of problems of the API, and nobody signs in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from crossdock.api.problems import ProblemError
from crossdock.console.page import FOLDER, render

routes = APIRouter(include_in_schema=False)


@cache
def codes() -> Mapping[str, Mapping[str, str]]:
    """By code what it `means` and what to `do`, as the tables in `docs/reference` say."""
    found: Mapping[str, Mapping[str, str]] = json.loads((FOLDER / "codes.json").read_text())
    return found


@routes.get("/problems/{code}")
def code_page(request: Request, code: str) -> HTMLResponse:
    known = codes().get(code)
    if known is None:
        raise ProblemError(404, "not-found", "There is no such code.")
    return render(request, "code.html", code=code, means=_marked(known["means"]), do=_marked(known["do"]))


def _marked(text: str) -> Markup:
    """What is between backticks stands out."""
    pieces = text.split("`")
    made = [Markup('<span class="mono">{}</span>').format(piece) if n % 2 else piece for n, piece in enumerate(pieces)]
    return Markup().join(made)
