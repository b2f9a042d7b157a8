"""The Containerfile and the compose file: they run commands that there are, as nobody in particular."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from crossdock.cli.app import app
from crossdock.messagebox.migrate import NEWEST_SERVER, OLDEST_SERVER

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "container"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "crossdock"}


def instructions() -> list[tuple[str, str]]:
    """(instruction, the rest) of the Containerfile, with lines that go on joined."""
    text = re.sub(r"\\\n", " ", (FOLDER / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def test_image_copies_files_that_there_are_and_every_file_that_the_build_needs() -> None:
    copied = [
        source
        for instruction, rest in instructions()
        if instruction == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {project["readme"], *project["license-files"], "pyproject.toml", "constraints.txt", "src"} <= set(copied)


def test_image_runs_crossdock_as_a_user_of_its_own_on_a_python_that_fits() -> None:
    stages = [rest.split()[0] for instruction, rest in instructions() if instruction == "FROM"]
    said = dict(instructions())
    found = re.search(r"python:(\d+)\.(\d+)-", stages[-1])

    assert found is not None
    assert (3, 11) <= (int(found[1]), int(found[2])) <= (3, 13)
    assert len(set(stages)) == 1  # what is built on one is run on the same
    assert said["USER"] not in ("", "root", "0")
    assert json.loads(said["ENTRYPOINT"]) == ["crossdock"]
    assert re.search(r"\bCROSSDOCK_HOME=/\S+", said["ENV"])


@pytest.mark.parametrize("name", OURS)
def test_service_runs_a_command_that_there_is_with_no_more_rights_than_it_needs(name: str) -> None:
    service = OURS[name]
    command, *arguments = service["command"]
    known = get_command(app).commands  # type: ignore[attr-defined]

    assert known[command].make_context(command, [*arguments], resilient_parsing=True)
    assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
    assert service["environment"]["CROSSDOCK_DATABASE"].startswith("postgresql://")
    assert "${CROSSDOCK_PASSWORD:?" in service["environment"]["CROSSDOCK_DATABASE"]


def test_processes_wait_for_the_deployment_and_that_for_a_database_of_a_version_that_fits() -> None:
    services = COMPOSE["services"]
    version = int(services["database"]["image"].rpartition(":")[2])

    assert OLDEST_SERVER <= version <= NEWEST_SERVER
    assert services["deploy"]["depends_on"]["database"]["condition"] == "service_healthy"
    for name in ("pipeline", "host"):
        assert services[name]["depends_on"]["deploy"]["condition"] == "service_completed_successfully"
    build = services["deploy"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == FOLDER / "Containerfile"
