"""Every page of the console in a real browser, over a real MessageBox with faults in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

import databases
from browsing import Tabs, a11y, browser, choosy_partner, coloured, console, tabs
from console_server import ServedConsole
from seeded import Shop

__all__ = ["browser", "coloured", "console", "tabs"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def shop(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One for all pages: to look at it changes nothing, and what is added stays by itself."""
    name = f"crossdock_pages_{os.getpid()}"
    with choosy_partner() as outside:
        made = Shop(databases.create(server, name, template), tmp_path_factory.mktemp("shop"), outside.address)
        with made.open():
            made.seed()
            yield made
        made.office.agent.close()
    databases.drop(server, name)


def addresses(shop: Shop) -> dict[str, str]:
    """One address for each page."""
    suspended = shop.suspended_at("Partner")[0]
    instance = next(each.id for each in shop.service.instances() if each.state == "running")
    tried = "/ports/try?port=EuropeLarge&filter=MessageType+%3D+%27Order%27+AND+Amount+%3E%3D+4000"
    return {
        "overview": "/",
        "messages": "/messages",
        "message": f"/messages/{suspended}",
        "parts": f"/messages/{suspended}/parts",
        "suspended": "/suspended",
        "suspended by subscriber": "/suspended?by=port&code=port-stopped",
        "suspended by type": "/suspended?by=type",
        "edit": f"/suspended/{suspended}/edit?port=Partner",
        "ports": "/ports",
        "try": tried,
        "instances": "/instances",
        "instance": f"/instances/{instance}",
        "plan": "/plan",
        "audit": "/audit",
        "hosts": "/hosts",
        "code": "/problems/port-stopped",
        "sign in": "/sign-in",
    }


def test_axe_finds_nothing_on_any_page_in_light_or_dark_and_no_page_is_wider_than_a_telephone(
    shop: Shop, tabs: Tabs, coloured: Callable[[str], Tabs]
) -> None:
    pages = addresses(shop)

    for scheme in ("light", "dark"):
        with_scheme = coloured(scheme)
        for name, path in pages.items():
            page = with_scheme.go(path)
            page.wait_for_load_state("load")
            assert page.evaluate("document.documentElement.dataset.theme") == scheme
            assert a11y(page) == [], f"{name} in {scheme}"
            if scheme == "light":
                page.set_viewport_size({"width": 390, "height": 844})
                wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                page.set_viewport_size({"width": 1280, "height": 900})
                assert wider <= 0, f"{name} is {wider} px too wide"
        with_scheme.check()
    assert tabs.complaints == []


def test_overview_is_live_and_its_numbers_lead_to_lists(shop: Shop, tabs: Tabs) -> None:
    page = tabs.go("/")
    expect(page.locator("[data-live-state]")).to_have_text("Live", timeout=60_000)
    before = page.locator("a.figure [data-live=suspended]").inner_text()

    shop.order(77, "EU", 9_999)
    shop.settled()
    shop.sampled()

    expect(page.locator("a.figure [data-live=suspended]")).to_have_text(str(int(before) + 1), timeout=60_000)
    page.locator("a.figure[href='/suspended']").click()
    expect(page.locator("h1")).to_have_text("Suspended")
    page.go_back()
    page.get_by_role("link", name="port-stopped").click()
    expect(page.locator("[data-rows] tr")).to_have_count(1)
    expect(page.locator("[data-rows]")).to_contain_text("Customs")


def test_every_number_of_the_overview_leads_to_a_list_with_what_it_counts(shop: Shop, tabs: Tabs) -> None:
    shop.settled()
    shop.sampled()
    page = tabs.go("/")
    counted = page.locator("a.figure, td a[data-cell]")
    targets = {str(each.get_attribute("href")) for each in counted.all()}

    for target in sorted(targets):
        page = tabs.go(target)
        assert page.get_by_role("alert").count() == 0, target
    page = tabs.go("/suspended")
    listed = page.locator("[data-rows] tr").count()
    expect(page.locator("[data-live=suspended_all]")).to_have_text(str(listed))
    failed = sum(each.state == "suspended" for each in shop.service.instances())
    expect(page.locator(".links [data-live=suspended_instances]")).to_have_text(str(failed))
    page = tabs.go("/")
    page.locator("tr", has_text="fulfil").locator("[data-cell=suspended]").click()
    expect(page.locator("[data-rows] tr")).to_have_count(failed)


def test_audit_leads_to_the_message_that_somebody_acted_on(shop: Shop, tabs: Tabs) -> None:
    message = shop.suspended_at("Partner")[0]
    tabs.go(f"/messages/{message}/parts")

    page = tabs.go("/audit?action=read")
    page.locator(f"[data-rows] a[href='/messages/{message}']").first.click()

    expect(page.locator("h1")).to_contain_text("Order")


def test_message_is_found_by_a_filter_and_its_page_says_who_got_it_and_who_did_not(shop: Shop, tabs: Tabs) -> None:
    page = tabs.go("/messages")

    page.keyboard.press("/")
    page.keyboard.type("OrderId = 'ORD-000901'")
    page.keyboard.press("Enter")
    expect(page.locator("[data-rows] tr")).to_have_count(1)
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("Enter")

    expect(page.locator("h1")).to_contain_text("Order")
    picture = page.locator(".picture svg")
    expect(picture).to_contain_text("OrdersIn")
    expect(picture).to_contain_text("Archive")
    why = page.locator("details", has=page.locator(".why-name", has_text=re.compile("^EuropeLarge$")))
    expect(why).to_contain_text("Region = 'EU' (is CH)")
    page.get_by_role("link", name="Filters of now").click()
    expect(page.locator(".choice [aria-current]", has_text="now")).to_be_visible()
    page.get_by_role("link", name="Show the parts").click()
    expect(page.locator("#parts-shown pre")).to_contain_text('"region": "CH"')
    assert any(row.action == "read" for row in shop.service.audit(limit=20))


def test_search_that_cannot_be_read_says_what_is_wrong_and_keeps_what_was_written(tabs: Tabs) -> None:
    tabs.expected.append("400")

    page = tabs.go("/messages?q=Region+%3D")

    expect(page.get_by_role("alert")).to_have_text("a constant is missing at the end\nRegion =\n         ^")
    expect(page.locator("#q")).to_have_value("Region =")


def test_search_is_exported_and_kept_as_a_view(shop: Shop, tabs: Tabs) -> None:
    page = tabs.go("/messages?type=Order&q=Region+%3D+%27US%27")
    shown = page.locator("[data-rows] tr").count()

    with page.expect_download() as csv:
        page.get_by_role("link", name="CSV").click()
    with page.expect_download() as lines:
        page.get_by_role("link", name="JSON lines").click()
    page.get_by_text("Save this view").click()
    page.get_by_label("Name of the view").fill("Americans")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_contain_text("The view Americans is saved")
    tabs.go("/messages").get_by_role("link", name="Americans", exact=True).click()
    expect(page.locator(".view [aria-current]")).to_have_text("Americans")

    assert csv.value.path().read_bytes().count(b"\r\n") == shown + 1
    kept = [json.loads(line) for line in lines.value.path().read_text().splitlines()]
    assert {row["type"] for row in kept} == {"Order"}
    assert len(kept) == shown
    expect(page.locator("#q")).to_have_value("Region = 'US'")
    assert shop.service.messages(where="Region = 'US'").messages[0].id == kept[0]["id"]
    page.get_by_role("link", name="Link to the view Americans").click()
    expect(page.locator("#q")).to_have_value("Region = 'US'")
    page.get_by_role("button", name="Delete the view Americans").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_role("group", name="Saved views")).to_have_text("No saved views yet")


def test_keys_change_the_theme_and_the_zone_and_show_help(tabs: Tabs) -> None:
    page = tabs.go("/messages")
    theme = page.evaluate("document.documentElement.dataset.theme")

    page.keyboard.press("t")
    page.keyboard.press("u")
    page.keyboard.press("?")

    assert page.evaluate("document.documentElement.dataset.theme") != theme
    expect(page.locator("[data-zone]")).to_have_text("Local")
    expect(page.locator("dialog#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.locator("h1")).to_have_text("Suspended")


def test_keys_go_through_rows_choose_them_and_find_the_search(tabs: Tabs) -> None:
    page = tabs.go("/suspended")
    rows = page.locator("[data-rows] tr")

    for key in "jjkjx":
        page.keyboard.press(key)

    expect(page.locator("[data-rows] tr.at")).to_have_count(1)
    assert rows.nth(1).evaluate("row => row.classList.contains('at')")
    expect(rows.nth(1).locator("input[type=checkbox]")).to_be_checked()
    expect(page.locator("[data-chosen]")).to_have_text("1 chosen")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("j?")
    expect(page.locator("#q")).to_have_value("j?")
    tabs.go("/hosts")
    page.keyboard.press("/")
    expect(page.locator("h1")).to_have_text("Messages")


def test_every_time_is_shown_in_utc_or_as_in_the_place_of_the_reader(
    shop: Shop, tabs: Tabs, browser: Browser, console: ServedConsole
) -> None:
    context = browser.new_context(storage_state=tabs.context.storage_state(), timezone_id="Asia/Kathmandu")
    reader = Tabs(context, ServedConsole(console.address, console.address))

    page = reader.go(f"/messages/{shop.suspended_at('Partner')[0]}")
    [time, picture] = [page.locator(".head time").first, page.locator(".picture [data-at]").first]
    utc = (time.inner_text(), picture.text_content())
    page.keyboard.press("u")

    expect(page.locator("[data-zone]")).to_have_text("Local")
    local = datetime.fromisoformat(utc[0]) + timedelta(hours=5, minutes=45)
    assert time.inner_text() == f"{local:%Y-%m-%d %H:%M:%S}"
    assert picture.text_content() == f"{local:%H:%M:%S}"
    page.reload()
    expect(page.locator("[data-zone]")).to_have_text("Local")
    for name, path in addresses(shop).items():
        left = reader.go(path).locator("main").inner_text()
        assert not re.search(r"\d{4}-\d\d-\d\dT\d\d:", left), f"{name} has a time that stays in UTC"
    reader.check()
    context.close()


def test_no_state_is_told_by_its_colour_alone(shop: Shop, tabs: Tabs) -> None:
    for name, path in addresses(shop).items():
        page = tabs.go(path)
        states = page.locator(".state")
        assert all(text.strip() for text in states.all_text_contents()), name
        assert states.locator("svg.icon").count() == states.count(), name
        for edge in page.locator(".picture .box.bad").all():
            assert "suspended" in str(edge.locator("xpath=..").text_content()), name


def test_page_of_nothing_is_an_error_page_with_the_sentence(tabs: Tabs) -> None:
    tabs.expected.append("40")

    page = tabs.go("/messages/00000000-0001-8000-8000-000000000000")

    expect(page.get_by_role("alert")).to_contain_text("00000000-0001-8000-8000-000000000000")
    expect(page.get_by_role("link", name="Back")).to_be_visible()


def test_who_has_not_signed_in_is_shown_where_to(tabs: Tabs) -> None:
    page = tabs.go("/suspended")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("Sign in")

    tabs.go("/suspended?by=port")

    expect(page.locator("h1")).to_have_text("Sign in")
    assert page.locator("input[name=next]").first.input_value() == "/suspended?by=port"
    page.get_by_label("Token").fill("made up")
    page.get_by_role("button", name="Sign in").first.click()
    expect(page.get_by_role("alert")).to_contain_text("wrong")


def test_hostile_names_and_bodies_are_shown_as_text(shop: Shop, tabs: Tabs) -> None:
    hostile = "<script>document.title='taken'</script>\"'><img src=x onerror=alert(1)>\u202egnp"
    body = json.dumps({"id": hostile, "region": "EU", "amount": 6000, "customer": "{{ 7 * 7 }}"}).encode()
    shown = shop.receive("hostile.json", body)
    odd = shop.receive(
        "odd.json",
        b'{"id": "odd", "customer": "a\\u0000b", "region": "EU", "amount": 6000, "x": "' + b"y" * 1_000_000 + b'"}',
    )
    shop.settled()
    shop.sampled()

    page = tabs.go(f"/messages/{shown}")
    expect(page.locator("#context + *, dl.facts").first).to_be_visible()
    expect(page.locator("body")).to_contain_text("<script>document.title='taken'</script>")
    page.get_by_role("link", name="Show the parts").click()
    expect(page.locator("#parts-shown pre")).to_contain_text("onerror=alert(1)")
    expect(page.locator("#parts-shown pre")).to_contain_text("{{ 7 * 7 }}")
    _is_not_taken(page)
    page = tabs.go(f"/messages/{odd}/parts")
    expect(page.locator("main")).to_contain_text("The first 64 KB are shown")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().stat().st_size > 1_000_000
    for path in ("/suspended", "/messages", "/ports", "/", "/audit"):
        _is_not_taken(tabs.go(path))


def _is_not_taken(page: Page) -> None:
    assert page.title() != "taken"
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0
