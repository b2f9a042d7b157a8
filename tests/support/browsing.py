"""A browser for the console. Whatever it complains about, in its console or by a failed request, fails the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from console_server import ServedConsole, served
from partner import Partner, Request, partner
from seeded import Shop

CHROMIUM = Path("/usr/bin/chromium")
_LEFT = "net::ERR_ABORTED"  # a page that is left closes its stream, and a download ends the navigation that began it
_MISSING = "there is no Chromium to drive: install it with `apt-get install --no-install-recommends chromium`"
_ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a file of tests. While it is open, nobody else in this process can run an event loop of its own."""
    if not CHROMIUM.exists():
        pytest.skip(_MISSING)
    expect.set_options(timeout=60_000)  # what is waited for comes; a busy machine takes its time
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield started
        started.close()


@contextmanager
def choosy_partner() -> Iterator[Partner]:
    """The partner of the shop: it takes only orders that say their currency, and no parcels."""

    def answer(request: Request) -> tuple[int, bytes]:
        if request.path.startswith("/parcels"):
            return 503, b"later"
        return (200, b"") if b"currency" in request.body else (422, b"an order needs a currency")

    with partner() as made:
        made.respond = answer
        yield made


@pytest.fixture
def outside() -> Iterator[Partner]:
    with choosy_partner() as made:
        yield made


@pytest.fixture
def shop(database: str, folder: Path, outside: Partner) -> Iterator[Shop]:
    """At work, with faults."""
    made = Shop(database, folder, outside.address)
    with made.open():
        made.seed()
        yield made
    made.office.agent.close()


@pytest.fixture
def console(shop: Shop) -> Iterator[ServedConsole]:
    with served(shop.office.settings) as made:
        yield made


class Tabs:
    """Pages of one person. `check` says what the browser complained about; `expected` failures are left out."""

    def __init__(self, context: BrowserContext, console: ServedConsole) -> None:
        self.complaints: list[str] = []
        self.expected: list[str] = []
        self.context = context
        self.console = console
        self.page = self.open(console.entrance)

    def open(self, address: str) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: self._heard(said.type in ("error", "warning"), f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self._heard(True, str(error)))
        page.on("response", lambda answer: self._heard(answer.status >= 400, f"{answer.status} {answer.url}"))
        page.on(
            "requestfailed", lambda request: self._heard(request.failure != _LEFT, f"{request.failure} {request.url}")
        )
        page.goto(address)
        return page

    def go(self, path: str) -> Page:
        self.page.goto(self.console.address + path)
        return self.page

    def _heard(self, is_bad: bool, text: str) -> None:
        if is_bad:
            self.complaints.append(text)

    def check(self) -> None:
        left = [each for each in self.complaints if not any(known in each for known in self.expected)]
        assert not left, f"the browser complained: {left}"


def a11y(page: Page) -> list[str]:
    """What axe finds on a page."""
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"]]


@pytest.fixture
def tabs(browser: Browser, console: ServedConsole) -> Iterator[Tabs]:
    """Signed in by the address that the console prints."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made = Tabs(context, console)
    yield made
    context.close()
    made.check()


@pytest.fixture
def coloured(browser: Browser, console: ServedConsole, tabs: Tabs) -> Iterator[Callable[[str], Tabs]]:
    """The same person with a browser that prefers light or dark."""
    del console
    contexts = []

    def open_with(scheme: str) -> Tabs:
        context = browser.new_context(storage_state=tabs.context.storage_state(), color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        return Tabs(context, ServedConsole(tabs.console.address, tabs.console.address))

    yield open_with
    for context in contexts:
        context.close()
