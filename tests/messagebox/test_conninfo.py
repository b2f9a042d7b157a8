"""The address of the MessageBox's database: what is wrong with it is said without it, and its password stays at home."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark import cloudpickle

from crossdock.dataflow.receive import receive_ranges
from crossdock.dataflow.source import IntakeReader
from crossdock.errors import CrossdockError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.conninfo import Travelling
from walk import CROSSDOCK

WHOLE = "postgresql://box:geheim@db.example:5433/crossdock?sslmode=require"
WRONG = [
    "postgresql://u:geheim@h:port/d",
    "postgresql://u:geheim%@h/d",
    "postgresql://u:geheim/x@h/d",
    "postgresql://u:12/geheim@h/d",
    "postgresql://u:x@geheim@127.0.0.1:1/d",
    "postgresql://u:x geheim@h/d",
    "postgresql://u:geheim\x00@h/d",
    "postgresql://h/d?geheim=1",
    "postgresql://[geheim",
    "mysql://u:geheim@h/d",
    "host=h passwort=geheim",
    "host=h password=x geheim",
    "host=h password='geheim",
    "geheim",
]


# As Spark does.
pickled: Callable[[object], bytes] = cloudpickle.dumps


@pytest.mark.parametrize("database", WRONG)
def test_what_is_wrong_with_an_address_is_said_without_it(database: str) -> None:
    with pytest.raises(CrossdockError) as caught:
        Agent(database).box.server_version()

    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(caught.value.__cause__)
    assert caught.value.exit_code == 2


@pytest.mark.process
def test_commands_do_not_print_the_password_of_a_database_that_is_away() -> None:
    for database in ("postgresql://u:geheim@127.0.0.1:1/d", "postgresql://u:x/geheim@127.0.0.1:1/d"):
        command = [str(CROSSDOCK), "get", "ports", "--database", database]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        assert result.returncode in (1, 2)
        assert result.stderr.startswith("crossdock: The database ")
        assert "geheim" not in result.stdout + result.stderr


def test_password_does_not_travel_to_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROSSDOCK_DATABASE", raising=False)
    travelling = Travelling.to_other_machines(WHOLE)

    sent = pickled(receive_ranges(travelling, Path("index"))) + pickle.dumps(IntakeReader(travelling, 1))

    assert b"db.example" in sent
    assert b"geheim" not in sent
    kept = {"user": "box", "host": "db.example", "port": "5433", "dbname": "crossdock", "sslmode": "require"}
    assert conninfo_to_dict(travelling.arrived()) == kept


@pytest.mark.parametrize(
    ("own", "used"),
    [
        (WHOLE, True),
        ("host=db.example port=5433 dbname=crossdock user=box password=geheim", True),
        (WHOLE.replace("db.example", "other.example"), False),
        (WHOLE.replace("/crossdock", "/other"), False),
        (WHOLE.replace("box", "somebody"), False),
    ],
)
def test_executor_takes_the_password_of_its_own_environment_for_that_database_only(
    monkeypatch: pytest.MonkeyPatch, own: str, used: bool
) -> None:
    monkeypatch.setenv("CROSSDOCK_DATABASE", own)
    travelling = Travelling.to_other_machines(WHOLE)

    assert (travelling.arrived() == own) is used
    assert used or "geheim" not in travelling.arrived()


def test_address_stays_as_it_is_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSDOCK_DATABASE", WHOLE.replace("geheim", "other"))

    assert Travelling(WHOLE).arrived() == WHOLE
