"""What pages are made of: vendored files as they were published, no address of others, nothing inline."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

CONSOLE = Path(__file__).parents[2] / "src/crossdock/console"
VENDOR = CONSOLE / "static/vendor"
TEMPLATES = sorted((CONSOLE / "templates").glob("*.html"))
OWN = sorted([*(CONSOLE / "static").glob("*.*"), *TEMPLATES])


def test_vendored_files_are_those_whose_checksums_are_kept() -> None:
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    kept = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {file.name: sha256(file.read_bytes()).hexdigest() for file in VENDOR.iterdir() if file.name != "SHA256SUMS"}

    assert there == kept


def test_every_vendored_library_comes_with_its_licence() -> None:
    libraries = {file.name.partition("-")[0] for file in VENDOR.iterdir() if file.suffix in (".js", ".css")}

    assert libraries == {"htmx", "uplot"}
    assert all("ermission" in (VENDOR / f"{name}-LICENSE.txt").read_text() for name in libraries)


@pytest.mark.parametrize("file", OWN, ids=lambda file: str(file.name))
def test_no_page_asks_another_machine(file: Path) -> None:
    addresses = re.findall(r"https?://[^\s\"'<]+", file.read_text())

    assert [each for each in addresses if not each.startswith("http://www.w3.org/")] == []


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: str(file.name))
def test_nothing_is_inline_and_nothing_is_unescaped(file: Path) -> None:
    text = file.read_text()

    assert re.findall(r"\sstyle=|\son[a-z]+=\"|<style|javascript:", text) == []
    assert re.findall(r"<script(?![^>]*\ssrc=)", text) == []
    assert re.findall(r"\|\s*safe\b|autoescape\s+false", text) == []
