"""The systemd units: they parse, run commands that there are, and give the rights that the documentation promises."""

from __future__ import annotations

import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from typer.main import get_command

from crossdock.cli.app import app
from walk import CROSSDOCK

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
COMMANDS = {
    "crossdock-deploy@.service": "apply",
    "crossdock-host@.service": "host",
    "crossdock-pipeline.service": "pipeline",
    "crossdock-run@.service": "run",
}


def service(unit: Path) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    assert parser.sections() == ["Unit", "Service", "Install"]
    return dict(parser["Service"])


def test_there_is_a_unit_for_each_process_of_its_own() -> None:
    assert [unit.name for unit in UNITS] == sorted(COMMANDS)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_unit_runs_a_command_that_there_is(unit: Path) -> None:
    program, command, *arguments = service(unit)["ExecStart"].split()

    known = get_command(app).commands  # type: ignore[attr-defined]
    assert (Path(program).name, command) == ("crossdock", COMMANDS[unit.name])
    known[command].make_context(command, [*arguments], resilient_parsing=True)
    wanted = [each for each in known[command].params if each.param_type_name == "argument" and each.required]
    assert len(arguments) == len(wanted)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_unit_may_take_leases_of_the_files_of_others_and_nothing_more(unit: Path) -> None:
    rights = service(unit)

    assert rights["AmbientCapabilities"] == rights["CapabilityBoundingSet"] == "CAP_LEASE"
    assert (rights["NoNewPrivileges"], rights["ProtectSystem"], rights["UMask"]) == ("yes", "strict", "0077")
    assert rights["User"] not in ("", "root")
    assert re.fullmatch(r"CROSSDOCK_HOME=%S/crossdock/\S+", rights["Environment"])
    assert rights["StateDirectory"] == "crossdock"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_systemd_finds_nothing_wrong_with_it(unit: Path, folder: Path) -> None:
    copy = folder / unit.name.replace("@", "@One")
    copy.write_text(unit.read_text().replace("/opt/crossdock/bin/crossdock", str(CROSSDOCK)))

    verified = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )

    assert str(unit.name).replace("@", "@One") not in verified.stderr
