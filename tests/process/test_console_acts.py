"""What people mend with the console: deliveries, filters, applications, instances. Each act in a real browser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import expect

from browsing import Tabs, a11y, browser, outside, shop, tabs
from console_server import ServedConsole
from office import written
from partner import Partner
from seeded import Shop
from walk import CROSSDOCK, until

__all__ = ["browser", "outside", "shop", "tabs"]

pytestmark = pytest.mark.process


@pytest.fixture
def console(shop: Shop) -> Iterator[ServedConsole]:
    """A real process, opened by the address that it prints."""
    settings = shop.office.settings
    where = ["--database", settings.database, "--home", str(settings.home)]
    with subprocess.Popen(
        [CROSSDOCK, "console", "--listen", "127.0.0.1:0", *where], stdout=subprocess.PIPE, text=True, cwd=shop.folder
    ) as process:
        assert process.stdout is not None
        entrance = process.stdout.readline().partition(": ")[2].strip()
        yield ServedConsole(entrance.partition("/?")[0], entrance)
        process.terminate()


def test_suspended_delivery_is_edited_for_one_subscriber_and_delivered_once_and_others_are_untouched(
    shop: Shop, tabs: Tabs, outside: Partner
) -> None:
    message = shop.order(500, "EU", 6_500)
    until(lambda: message in shop.suspended_at("Partner"), 60)
    shop.settled()
    others = set(shop.suspended_at("Partner")) - {message}
    archived = len(written(shop.folder / "out/archive"))
    outside.requests.clear()

    page = tabs.go("/suspended?code=")
    page.get_by_label("Filter on promoted properties").fill("OrderId = 'ORD-000500'")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("[data-rows] tr")).to_have_count(1)
    page.get_by_role("link", name="Edit").click()
    body = page.get_by_label("The body as text")
    body.fill(body.input_value().replace('"amount"', '"currency": "EUR",\n  "amount"'))
    page.get_by_role("button", name="Show the difference").click()
    expect(page.locator(".difference .added")).to_contain_text('"currency": "EUR"')
    page.get_by_role("button", name="Deliver it so").click()

    expect(page.get_by_role("status").first).to_contain_text("edited and queued again")
    until(lambda: len(outside.requests) == 1, 60)
    shop.settled()
    assert b'"currency": "EUR"' in outside.requests[0].body
    assert b"\r" not in outside.requests[0].body
    assert set(shop.suspended_at("Partner")) == others
    assert len(written(shop.folder / "out/archive")) == archived
    assert len(outside.requests) == 1
    page.reload()
    expect(page.locator(".picture svg")).to_contain_text("edited")


def test_chosen_deliveries_are_looked_at_resumed_and_each_has_its_outcome(
    shop: Shop, tabs: Tabs, outside: Partner
) -> None:
    outside.respond = None
    outside.requests.clear()
    waiting = len(shop.suspended_at("Partner"))

    page = tabs.go("/suspended?by=port&port=Partner")
    page.locator("[data-rows] input[type=checkbox]").nth(0).check()
    page.locator("[data-rows] input[type=checkbox]").nth(1).check()
    expect(page.locator("[data-chosen]")).to_have_text("2 chosen")
    page.locator("[data-chosen-bar]").get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).to_have_text("Resume 2 deliveries?")
    assert a11y(page) == []
    assert len(shop.suspended_at("Partner")) == waiting
    page.get_by_label("At most so many in a second").fill("10")
    page.get_by_role("button", name="Resume 2").click()

    expect(page.locator("#operation .state", has_text="done").first).to_be_visible()
    expect(page.locator("#operation tbody tr")).to_have_count(2)
    assert a11y(page) == []
    until(lambda: len(outside.requests) == 2, 60)
    assert len(shop.suspended_at("Partner")) == waiting - 2


def test_slow_operation_is_watched_and_cancelled(shop: Shop, tabs: Tabs) -> None:
    before = len(shop.service.suspended())

    page = tabs.go("/suspended")
    page.get_by_role("button", name="Terminate all").click()
    page.get_by_label("At most so many in a second").fill("1")
    page.get_by_role("button", name=f"Terminate {before}").click()
    expect(page.locator("#operation tbody tr")).not_to_have_count(0)
    page.get_by_role("button", name="Cancel the rest").click()

    expect(page.locator("#operation .state", has_text="cancelled").first).to_be_visible()
    left = len(shop.service.suspended())
    assert 0 < left < before


def test_filter_is_tried_on_recent_messages_and_the_application_applied(shop: Shop, tabs: Tabs) -> None:
    asia = {"name": "Asia", "adapter": "file", "address": "out/asia/%MessageID%", "filter": "Region = 'APAC'"}
    more = {"application": "more", "properties": {"Region": "text"}, "send_ports": [asia]}

    page = tabs.go("/ports")
    page.locator("tr", has_text="EuropeLarge").get_by_role("link", name="Try").click()
    page.get_by_label("Filter", exact=True).fill("MessageType = 'Order' AND Amount >= 3000")
    page.get_by_role("button", name="Try it").click()
    gained = page.locator(".figure", has_text="Gained").locator(".value")
    assert int(gained.inner_text()) > 0
    tabs.go("/plan")
    page.get_by_label("Paste the file").fill(yaml.safe_dump(more))
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("main")).to_contain_text("Plan for more")
    assert a11y(page) == []
    expect(page.locator("tr", has_text="Region = 'APAC'")).to_contain_text("added")
    assert "more" not in [each.name for each in shop.service.applications()]
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("button", name="Yes, do it").click()

    expect(page.get_by_role("status").first).to_contain_text("Application more is applied")
    assert "more" in [each.name for each in shop.service.applications()]


def test_port_is_stopped_after_a_question_and_started(shop: Shop, tabs: Tabs) -> None:
    page = tabs.go("/ports?search=Archive")

    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#confirm-text")).to_contain_text("Stop Archive?")
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("tbody .state", has_text="stopped")).to_be_visible()
    assert [each.state for each in shop.service.ports() if each.name == "Archive"] == ["stopped"]
    page.get_by_role("button", name="Start").click()

    expect(page.locator("tbody .state", has_text="started")).to_be_visible()


def test_instance_is_watched_and_cancelled(shop: Shop, tabs: Tabs) -> None:
    page = tabs.go("/instances?q=OrderId+%3D+%27ORD-000007%27")

    page.locator("[data-rows] a").first.click()
    expect(page.locator(".timeline")).to_contain_text("flows.py:")
    expect(page.locator(".timeline")).to_contain_text("send Bank")
    instance = page.url.rpartition("/")[2]
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Yes, do it").click()

    expect(page.locator("h1, .notice").first).to_be_visible()
    until(lambda: instance not in [each.id for each in shop.service.instances()], 60)


def test_suspended_instance_is_resumed_with_corrected_code_and_another_is_terminated(shop: Shop, tabs: Tabs) -> None:
    shop.order(905, "EU", 13_000)
    until(lambda: len(failed_instances(shop)) == 2, 60)
    flows = shop.folder / "flows.py"
    flows.write_text(flows.read_text().replace('order["Amount"] == 13000', "False"))
    shop.office.deploy(shop.application)
    shop.settled()
    invoiced = len(written(shop.folder / "out/invoices"))

    page = tabs.go("/instances?state=suspended")
    page.locator("[data-rows] a").first.click()
    expect(page.locator(".notice.bad")).to_contain_text("nobody pays 13,000")
    resumed = page.url.rpartition("/")[2]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status").first).to_contain_text("fulfil")
    until(lambda: any(each.id == resumed and each.waits_for for each in shop.service.instances()), 60)
    page.reload()
    expect(page.locator("h1 .state")).to_contain_text("running")
    expect(page.locator(".timeline")).to_contain_text("send Bank")
    [other] = failed_instances(shop)
    tabs.go(f"/instances/{other}")
    page.get_by_role("button", name="Terminate").click()
    expect(page.locator("#confirm-text")).to_contain_text("none of its code is run")
    page.get_by_role("button", name="Yes, do it").click()

    expect(page.locator("h1")).to_have_text("Instances")
    assert other not in [each.id for each in shop.service.instances()]
    shop.settled()
    assert len(written(shop.folder / "out/invoices")) == invoiced + 1
    assert {("resume", resumed), ("terminate", other)} <= {(row.action, row.target) for row in shop.service.audit()}


def failed_instances(shop: Shop) -> list[str]:
    return [each.id for each in shop.service.instances() if each.state == "suspended"]


def test_suspended_messages_are_saved_as_an_archive(shop: Shop, tabs: Tabs, folder: Path) -> None:
    page = tabs.go("/suspended?code=document-invalid")

    with page.expect_download() as download:
        page.get_by_role("button", name="Save all found").click()
    download.value.save_as(folder / "saved.zip")

    assert (folder / "saved.zip").read_bytes()[:2] == b"PK"
    assert any(row.action == "save" for row in shop.service.audit(limit=10))
