"""Pages that search by personal properties: who may not see the values is refused, who may agrees first."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from console_box import Seeded, seeded
from crossdock.console.pages import install
from crossdock.messagebox.agent import Agent
from express import rows
from served import SAME_ORIGIN, Served, served

PATHS = {"/suspended": "Region != 'NO'", "/instances": "Region = 'IN'", "/messages": "Region = 'IN'"}
BOX = 'type="checkbox" name="personal"'


@pytest.fixture
def box(agent: Agent) -> Seeded:
    made = seeded(agent)
    rows(agent.database, "UPDATE property SET personal = true WHERE name = 'Region' RETURNING 1")
    return made


@pytest.fixture
def console(box: Seeded) -> Iterator[Served]:
    with served(box.agent.database, install=install) as made:
        yield made


def test_page_refuses_who_may_not_see_the_values_and_offers_nothing(console: Served) -> None:
    with console.as_role("operator") as client:
        for path, filter_ in PATHS.items():
            page = client.get(path, params={"q": filter_})

            assert page.status_code == 400
            assert "to search by it takes the right bodies" in page.text
            assert BOX not in page.text, path


def test_page_asks_who_may_see_the_values_and_then_finds(console: Served, box: Seeded) -> None:
    with console.as_role("operator", "bodies") as client:
        for path, filter_ in PATHS.items():
            asked = client.get(path, params={"q": filter_})
            found = client.get(path, params={"q": filter_, "personal": "true"})

            assert (asked.status_code, found.status_code) == (400, 200), path
            assert BOX in asked.text
            assert f'{BOX} value="true" checked' in found.text
            assert "1 shown" in found.text
    assert len(box.agent.audit.list(action="search")) == 3


@pytest.mark.parametrize("agreed", [False, True])
def test_acts_on_all_that_was_found_take_what_was_agreed_with_them(console: Served, agreed: bool) -> None:
    asked = {"q": "Region = 'Stopped'", "personal": "true" if agreed else "false"}
    with console.as_role("operator", "bodies") as client:
        page = client.get("/suspended", params=asked).text
        form = dict(re.findall(r'<input type="hidden" name="(q|personal)" value="([^"]*)"', page))
        sent = {**asked, **({"personal": form["personal"]} if agreed else {})}
        answers = [
            client.post("/suspended/preview", data={"action": "terminate", **sent}, headers=SAME_ORIGIN),
            client.post("/suspended/save", data=sent, headers=SAME_ORIGIN),
        ]

    assert [each.status_code for each in answers] == ([200, 200] if agreed else [400, 400])
