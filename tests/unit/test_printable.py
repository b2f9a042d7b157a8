"""Whoever chooses the name of a file does not choose what a terminal or a log shows beside it."""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from crossdock.adapter.file.adapter import FileReceiveAdapter, printable_path
from crossdock.cli import main, output
from crossdock.cli.output import Format, print_rows

HOSTILE = "\x1b]0;pwn\x07\x1b[2J\nERROR: forged\r\x9b2J\u202elog line\u2028.json"
HARMLESS = "Grüße 注文 заказ\u00a0😀.json"


def test_name_of_a_file_is_shown_in_letters_only(folder: Path) -> None:
    file = folder / HOSTILE
    file.write_bytes(b"{}")
    os.utime(file, (time.time() - 3600,) * 2)
    adapter = FileReceiveAdapter(str(folder / "*.json"))

    [source] = adapter.list().ready

    assert adapter.name(source.identity) == (
        str(folder) + r"/\x1b]0;pwn\x07\x1b[2J\nERROR: forged\r\x9b2J\u202elog line\u2028.json"
    )
    assert printable_path(Path(HARMLESS)) == HARMLESS


def test_table_shows_what_controls_a_terminal_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"file": HOSTILE, "reasons": [HOSTILE], "other": HARMLESS}], Format.TABLE, empty="")

    out = capsys.readouterr().out
    assert [letter for letter in out if not letter.isprintable() and letter not in "\n\u00a0"] == []
    assert "ERROR: forged" not in [line.strip()[:13] for line in out.splitlines()]
    assert "注文" in out


def test_json_has_the_values_unchanged_and_what_controls_a_terminal_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"file": HOSTILE, "other": HARMLESS, "half": "\udcff"}]

    print_rows(rows, Format.JSON, empty="")

    out = capsys.readouterr().out
    assert json.loads(out) == rows
    assert [letter for letter in out if not letter.isprintable() and letter not in "\n\u00a0"] == []
    assert HARMLESS in out


def test_record_in_the_log_is_one_line_and_nothing_in_a_traceback_looks_like_a_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("crossdock.test")
    with output.progress():
        logger.error("File %s stays", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logger.exception("It failed on %s", HARMLESS)

    err = capsys.readouterr().err
    assert [letter for letter in err if not letter.isprintable() and letter not in "\n\u00a0"] == []
    records = [line for line in err.splitlines() if not line.startswith("  ")]
    times, told = zip(*(line.split(" ", 1) for line in records), strict=True)
    assert all(datetime.fromisoformat(time).utcoffset() == timedelta(0) for time in times)
    assert told[0].startswith(r"ERROR: File \x1b]0;pwn\x07\x1b[2J\nERROR: forged")
    assert told[1] == f"ERROR: It failed on {HARMLESS}"
    assert "  ValueError: " in err


def test_error_that_ends_a_command_shows_what_controls_a_terminal_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["crossdock", "lint", "\x1b[2J\u202e.yaml"])

    with pytest.raises(SystemExit):
        main()

    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\u202e" not in err
    assert ".yaml" in err
