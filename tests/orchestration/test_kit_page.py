"""The page about testing orchestrations: its tests run as they are printed, in a pytest of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_tests_on_the_page_pass_as_they_are_printed(folder: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "test-an-orchestration.md").read_text()
    for name, code in re.findall(r"```(?:python|yaml)\n# (\w+\.(?:py|yaml))\n(.*?)```", page, re.DOTALL):
        (folder / name).write_text(code)
    for name in ("shop.py", "fulfilment.py"):
        shutil.copy(ROOT / "examples" / name, folder / name)

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, "-c", "/dev/null"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 passed" in result.stdout
