"""What every page is made with: the templates, which escape everything, and notices that outlive a redirect."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crossdock.administration.message_ids import is_instance_id
from crossdock.console import shown
from crossdock.console.icons import icon, icon_path

FOLDER = Path(str(files("crossdock.console")))
_NOTICES_KEPT = 1_000
_SEE_OTHER = 303


@dataclass(frozen=True, slots=True)
class Notice:
    """What became of an act, shown once on the next page. `tone` is good, wait or bad."""

    text: str
    tone: str = "good"


class Notices:
    """Those that wait for their page. An address carries a random name of a notice, never its text."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Notice] = OrderedDict()

    def put(self, notice: Notice) -> str:
        name = secrets.token_urlsafe(9)
        with self._lock:
            self._kept[name] = notice
            while len(self._kept) > _NOTICES_KEPT:
                self._kept.popitem(last=False)
        return name

    def take(self, name: str | None) -> Notice | None:
        with self._lock:
            return None if name is None else self._kept.pop(name, None)


def environment() -> Environment:
    """Autoescape is on for every template; a name that is not there is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(icon=icon, icon_path=icon_path, query=shown.query)
    made.tests["in_system"] = lambda name: "." in name and name != "BTS.MessageType"
    made.tests.update(message_id=shown.is_message_id, instance_id=is_instance_id)
    made.filters.update(
        number=shown.number,
        rate=shown.rate,
        age=shown.age,
        took=shown.took,
        size=shown.size,
        short=shown.short,
        count=shown.count,
        file=shown.file,
        clock=shown.clock,
        times=shown.times,
        utc_time=shown.utc_time,
        tone=shown.tone,
        icon_of=shown.icon_of,
    )
    return made


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page. `person` and `notice` are there in every template."""
    pages: Environment = request.app.state.pages
    notices: Notices = request.app.state.notices
    text = pages.get_template(template).render(
        request=request,
        path=request.url.path,
        person=getattr(request.state, "person", None),
        notice=notices.take(request.query_params.get("notice")),
        **values,
    )
    return HTMLResponse(text, status_code=status)


def redirect(request: Request, to: str, text: str, tone: str = "good") -> RedirectResponse:
    """After an act: show what became of it on another page, which can be loaded again without acting again."""
    notices: Notices = request.app.state.notices
    name = notices.put(Notice(text, tone))
    path, mark, fragment = to.partition("#")
    joined = f"{path}{'&' if '?' in path else '?'}notice={name}{mark}{fragment}"
    return RedirectResponse(joined, status_code=_SEE_OTHER)


def local(address: str | None, otherwise: str) -> str:
    """An address on this server to go back to; anything else is not followed."""
    if address is None or not address.startswith("/") or address.startswith(("//", "/\\")):
        return otherwise
    return address
