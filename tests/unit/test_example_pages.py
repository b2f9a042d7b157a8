"""The pages of the documentation print the examples as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "examples").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_prints_the_files_that_it_names(page: Path) -> None:
    printed = re.findall(r"`examples/([\w.]+)`:\n\n```\w+\n(.*?)```\n", page.read_text(), re.DOTALL)

    assert printed
    for name, code in printed:
        assert code == (ROOT / "examples" / name).read_text(), f"{page.name} prints another {name}"
