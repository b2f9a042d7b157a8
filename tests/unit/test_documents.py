"""The documents: lines that fit, links that lead somewhere, and files that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "crossdock"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# What was decided, and what was measured, stays as it was written.
HISTORY = ("docs/decisions", "docs/history", "CHANGELOG.md")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|sql))`")
_FIGURE = re.compile(r"\d[\d,.]*(?: %| times| ms)?")
_WIDTH = 120
_WITH_AN_APPLICATION = ("files", "databases", "flat-files", "dynamic-ports")


def prose(document: Path) -> Iterator[tuple[int, str]]:
    """The lines outside tables and code, with their numbers."""
    code = False
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("|"):
            yield number, line


def tables(document: Path) -> str:
    return "\n".join(line for line in document.read_text().splitlines() if line.startswith("|"))


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_lines_of_a_document_fit(document: Path) -> None:
    assert [number for number, line in prose(document) if len(line) > _WIDTH] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    links = _LINK.findall(document.read_text())

    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", [each for each in DOCUMENTS if not name(each).startswith(HISTORY)], ids=name)
def test_files_that_a_document_names_are_there(document: Path) -> None:
    files = set(_FILE.findall(document.read_text()))
    places = (ROOT, SOURCE, ROOT / "src", SOURCE / "messagebox")

    assert sorted(file for file in files if not any((place / file).exists() for place in places)) == []


@pytest.mark.parametrize("page", ["tutorial", *(f"how-to/{each}" for each in _WITH_AN_APPLICATION)])
def test_application_of_a_page_can_be_deployed(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    [application] = re.findall(r"```yaml\n(application:.*?)```", text, re.DOTALL)
    (tmp_path / "application.yaml").write_text(application)
    for module in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        (tmp_path / "replies.py").write_text(module)

    loaded = load_application(tmp_path / "application.yaml")
    deployment = deployment_of(loaded, tmp_path / "application.yaml", text_limit=256)

    assert deployment.ports


def test_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 55


def test_application_in_the_readme_is_the_example() -> None:
    [application] = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    assert yaml.safe_load(application) == yaml.safe_load((ROOT / "examples" / "orders.yaml").read_text())


def test_figures_in_the_readme_are_those_of_the_benchmarks() -> None:
    readme, benchmarks = (set(_FIGURE.findall(tables(ROOT / name))) for name in ("README.md", "docs/benchmarks.md"))

    assert sorted(readme - benchmarks) == [], "the table of docs/benchmarks.md does not have these"
