"""The wheel, installed outside the clone: it has every file that it needs, and says how it is called there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
PATIENCE = 600


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with what it stands on from ours: to install that anew takes minutes."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "dist", ROOT],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    if "hatchling" in built.stderr and "No matching distribution" in built.stderr:
        pytest.skip("no index has hatchling, which builds the wheel")
    assert built.returncode == 0, built.stderr
    venv.create(folder / "venv", with_pip=False)
    [wheel] = (folder / "dist").glob("*.whl")
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    # Files named .pth in a folder that a .pth names are not read: the clone itself stays out of sight.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python", "install", "--quiet", "--no-deps",
         "--ignore-installed", wheel],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    return folder / "venv"


def call(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [installed / "bin" / "crossdock", *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip


def test_installed_wheel_has_every_file_and_runs_the_demo_as_it_says(installed: Path, folder: Path) -> None:
    where = subprocess.run(
        [installed / "bin" / "python", "-c", "import crossdock; print(crossdock.__file__)"],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    demo = call(installed, folder, "demo", "--orders", "50")

    assert Path(where.stdout.strip()).is_relative_to(installed)
    assert demo.returncode == 0, demo.stderr
    assert_demo_looked_after_its_messages(demo.stdout, folder / ".demo")
    tries = re.findall(r"^  (\S*crossdock .*)$", demo.stdout.partition("Try next")[2], re.MULTILINE)
    assert len(tries) == 6, demo.stdout
    for line in tries:
        program, command, *arguments = shlex.split(line)
        assert Path(folder / program).resolve() == (installed / "bin" / "crossdock").resolve()
        ends = ["--until-idle"] if command == "run" else []
        tried = call(installed, folder, command, *arguments, *ends)
        assert tried.returncode in ((0, 3) if ends else (0,)), (line, tried.stderr)
        assert "Traceback" not in tried.stderr


def assert_demo_looked_after_its_messages(told: str, folder: Path) -> None:
    """Port stopped and started, message mended, instance paid: as it says, and as the files say."""
    [kept] = re.findall(r"^NewCustomers  stopped  started +(\d+) *$", told, re.MULTILINE)
    new_customers = list((folder / "out" / "new-customers").iterdir())
    [mended] = re.findall(r"^Now it is there: (.*)$", told, re.MULTILINE)
    shipped = [json.loads(each.read_text()) for each in (folder / "out" / "shipping").iterdir()]

    assert 0 < int(kept) == len(new_customers)
    assert json.loads((folder.parent / mended).read_text())["id"] == "NO-COUNTRY-1"
    assert {"id": "LARGE-1"} in shipped
    assert re.search(r"^NewCustomers +0 +\d+$", told, re.MULTILINE), told
