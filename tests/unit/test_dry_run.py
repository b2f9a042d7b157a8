"""`crossdock match` and `crossdock lint`: who would get these messages, and which filters look wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from walk import CROSSDOCK, EXAMPLES, Walk

pytestmark = pytest.mark.process

TWO_LOCATIONS = '      - {adapter: file, address: "more/*.jsonl", pipeline: json, name: More}\n'


def matched(walk: Walk, *arguments: str) -> list[dict[str, Any]]:
    result = walk.command("match", "orders.yaml", *arguments, "-o", "json")
    assert result.returncode == 0, result.stderr
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


@pytest.fixture
def walk(folder: Path) -> Walk:
    walk = Walk(folder)
    (folder / "a.json").write_bytes(b'{"id": "1", "region": "eu", "amount": 1000}\n{"id": "2"}\noops\n')
    return walk


def test_match_lists_every_message_of_every_file_with_the_ports_that_would_get_it(walk: Walk, folder: Path) -> None:
    (folder / "b.json").write_bytes(b'[{"id": "3", "region": "EU", "amount": "999.9999999999999991"}]')

    rows = matched(walk, "a.json", "b.json")

    assert [{name: row[name] for name in ("file", "index", "type", "matches")} for row in rows] == [
        {"file": "a.json", "index": 0, "type": "Order", "matches": ["EuropeLarge", "Archive"]},
        {"file": "a.json", "index": 1, "type": "Order", "matches": ["Archive"]},
        {"file": "a.json", "index": 2, "type": "Order", "matches": []},
        {"file": "b.json", "index": 0, "type": "Order", "matches": ["Archive"]},
    ]
    assert "line 3 is not JSON" in rows[2]["error"]
    assert not walk.home.exists()


def test_match_explains_why_and_why_not(walk: Walk) -> None:
    result = walk.command("match", "orders.yaml", "a.json", "--explain")

    assert result.returncode == 0
    assert "no   Amount >= 1000    (Amount is absent)" in result.stdout
    assert "yes  Amount >= 1000    (Amount is decimal 1000)" in result.stdout


def test_location_is_named_or_the_only_one_whose_mask_fits(walk: Walk, folder: Path) -> None:
    text = (EXAMPLES / "orders.yaml").read_text()
    (folder / "orders.yaml").write_text(text.replace("send_ports:", TWO_LOCATIONS + "send_ports:"))
    (folder / "a.txt").write_bytes(b"{}")

    assert len(matched(walk, "a.json")) == 3
    refused = walk.command("match", "orders.yaml", "a.txt")
    assert (refused.returncode, "fits no receive location; name one with --location" in refused.stderr) == (2, True)
    assert len(matched(walk, "a.txt", "--location", "More")) == 1
    unknown = walk.command("match", "orders.yaml", "a.txt", "--location", "Nowhere")
    assert (unknown.returncode, "declared: OrdersIn.file, More" in unknown.stderr) == (2, True)
    missing = walk.command("match", "orders.yaml", "missing.json")
    assert (missing.returncode, "missing.json cannot be read" in missing.stderr) == (2, True)


def test_file_in_the_folder_of_a_location_needs_no_location_to_be_named(walk: Walk, folder: Path) -> None:
    text = (EXAMPLES / "orders.yaml").read_text()
    other = TWO_LOCATIONS.replace("*.jsonl", "*.json")
    (folder / "orders.yaml").write_text(text.replace("send_ports:", other + "send_ports:"))
    for name in ("in", "more"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "a.json").write_bytes(b'{"id": "1"}')

    assert len(matched(walk, "more/a.json", "in/a.json")) == 2
    refused = walk.command("match", "orders.yaml", "a.json")
    assert (refused.returncode, "fits more than one receive location" in refused.stderr) == (2, True)


def test_lint_finds_what_looks_wrong_and_says_so_by_its_exit_code(walk: Walk, folder: Path) -> None:
    assert walk.command("lint", "orders.yaml").returncode == 0
    text = (EXAMPLES / "orders.yaml").read_text().replace("Amount >= 1000", "Amount >= 1000 AND Amount < 10")
    (folder / "orders.yaml").write_text(text)

    result = walk.command("lint", "orders.yaml", "-o", "json")

    assert result.returncode == 1
    assert [(row["port"], row["kind"]) for row in json.loads(result.stdout)] == [("EuropeLarge", "contradiction")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run"], "Missing argument 'APP'. See: crossdock run --help"),
        (["lint", "orders.yaml", "-o", "xml"], "'xml' is not one of 'table', 'json'. See: crossdock lint --help"),
        (["bogus"], "No such command 'bogus'. See: crossdock --help"),
        (["match", "orders.yaml", "a.json", "--bogus"], "No such option: --bogus. See: crossdock match --help"),
        (["get", "ports", "-o", "xml"], "'-o' / '--output': 'xml' is not one of 'table', 'json',"),
        (["get", "messages", "--after", "5"], "--after is for: crossdock get suspended"),
        (["get", "ports", "--personal"], "--personal is for: crossdock get instances|suspended|messages"),
        (["get", "ports", "--limit", "5"], "--limit is for: crossdock get suspended|messages|waiting|audit"),
        (["get", "suspended", "--by", "code", "--port", "A"], "--by counts all that is suspended: leave --port out."),
        (["match", "orders.yaml", "missing.json"], "missing.json cannot be read: No such file or directory."),
        (["doctor", "--home", "/proc/here"], "The home /proc/here cannot be used: No such file or directory."),
        (["get", "everything"], "There is nothing called 'everything' to list."),
        (["get", "ports"], "There is no MessageBox in .crossdock."),
        (["lint", "missing.yaml"], "There is no application file missing.yaml."),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(walk: Walk, arguments: list[str], sentence: str) -> None:
    result = walk.command(*arguments)

    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_answers_without_importing_spark() -> None:
    script = "import sys; sys.argv = ['crossdock', '--help']\ntry:\n  from crossdock.cli import main; main()\nexcept SystemExit: pass\nprint('pyspark' in sys.modules, 'psycopg' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert CROSSDOCK.exists()
    assert result.stdout.rstrip().endswith("False False")


def test_ctrl_c_while_the_commands_are_loaded_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise KeyboardInterrupt")  # in the middle of an import
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from crossdock.cli import main; main()"

    result = subprocess.run([sys.executable, "-c", script, "lint"], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_ports_of_a_group_are_matched_and_not_taken_for_repeated_filters(walk: Walk, folder: Path) -> None:
    text = (EXAMPLES / "orders.yaml").read_text()
    text += (
        "send_port_groups: [{name: Both, ports: [EuropeLarge, Archive], filter: \"Region = 'eu' OR OrderId = '2'\"}]\n"
    )
    (folder / "orders.yaml").write_text(text)

    lint = walk.command("lint", "orders.yaml")
    first = matched(walk, "a.json")[0]

    assert (lint.returncode, lint.stdout.strip()) == (0, "Nothing looks wrong.")
    assert first["matches"] == ["EuropeLarge", "Archive", "Both/EuropeLarge", "Both/Archive"]


def test_match_shows_who_would_get_the_report_on_a_failed_message(walk: Walk, folder: Path) -> None:
    text = (
        (EXAMPLES / "orders.yaml")
        .read_text()
        .replace("  - name: OrdersIn\n", "  - name: OrdersIn\n    failed_messages: route\n")
    )
    text += '  - {name: Failed, adapter: file, address: "failed/%MessageID%", filter: EXISTS(ErrorReport.ErrorType)}\n'
    (folder / "orders.yaml").write_text(text)

    rows = matched(walk, "a.json")

    assert [row["matches"] for row in rows][2] == ["Failed"]
