"""Saved views: everybody keeps searches of its own in the MessageBox, and others open them by their link."""

from __future__ import annotations

import pytest

from console_box import Seeded
from console_fixtures import box
from crossdock.administration.service import Administration
from crossdock.client import Client
from crossdock.console.pages import install
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from served import SAME_ORIGIN, served

__all__ = ["box"]


def test_views_are_kept_for_one_person_and_opened_by_everybody_who_has_the_link(database: str, box: Seeded) -> None:
    del box
    with (
        served(database, install=install) as made,
        Client(made.url, made.token("kari", "viewer")) as kari,
        Client(made.url, made.token("ola", "viewer")) as ola,
        made.as_role("viewer") as browser,
    ):
        first = kari.save_view("Stuck orders", "?type=Order&state=suspended&notice=left+out")
        ola.save_view("Stuck orders", "state=unrouted")
        again = kari.save_view("Stuck orders", "state=suspended")

        assert (first.query, again.query) == ("type=Order&state=suspended", "state=suspended")
        assert [(each.name, each.query) for each in kari.views()] == [("Stuck orders", "state=suspended")]
        assert [each.query for each in ola.views()] == ["state=unrouted"]
        assert again.id == first.id
        opened = browser.get(f"/views/{first.id}")
        assert (opened.status_code, opened.headers["location"]) == (303, "/messages?state=suspended")
        assert "Stuck orders" not in browser.get("/messages").text
        kari.delete_view("Stuck orders")
        assert kari.views() == []
        with pytest.raises(UsageError, match="no saved view"):
            kari.delete_view("Stuck orders")
        assert browser.get(f"/views/{first.id}").status_code == 404


def test_page_saves_shows_and_deletes_the_views_of_who_looks(database: str, box: Seeded) -> None:
    del box
    with served(database, install=install) as made, made.as_role("viewer") as browser:
        saved = browser.post("/views", data={"name": "<b>Mine", "query": "?type=Order"}, headers=SAME_ORIGIN)
        page = browser.get(saved.headers["location"])
        deleted = browser.post("/views/delete", data={"name": "<b>Mine", "query": "?type=Order"}, headers=SAME_ORIGIN)

        assert saved.headers["location"].startswith("/messages?type=Order&notice=")
        assert "&lt;b&gt;Mine" in page.text
        assert "<b>Mine" not in page.text
        assert deleted.status_code == 303
        assert "No saved views yet" in browser.get("/messages").text


@pytest.mark.parametrize(
    ("name", "query"),
    [
        (" ", ""),
        ("x" * 61, ""),
        ("a\nb", ""),
        ("long", "q=" + "x" * 5_000),
        ("null", "q=%00"),
        ("secret", "personal=true"),
    ],
)
def test_view_that_cannot_be_kept_is_refused(agent: Agent, name: str, query: str) -> None:
    with pytest.raises(UsageError):
        Administration(agent, text_limit=256).views.save(name, query)


def test_nobody_keeps_more_than_a_hundred(agent: Agent) -> None:
    views = Administration(agent, text_limit=256).views
    for number in range(100):
        views.save(f"view {number}", "type=Order")

    with pytest.raises(UsageError, match="delete one first"):
        views.save("one more", "")
    assert views.save("view 7", "state=waiting").query == "state=waiting"
    assert len(views.list()) == 100
