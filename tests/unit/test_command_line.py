"""The command line before any command runs: quick, with a version, and with names for the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from crossdock.administration.names import known_names
from crossdock.home import NAMES
from crossdock.messagebox.agent import Agent
from express import deploy, port

CROSSDOCK = Path(sys.executable).with_name("crossdock")
# None of these is needed to say how to call us; each takes as long as everything else together.
HEAVY = ("pydantic", "psycopg", "pyspark", "numba", "numpy", "pyarrow", "lxml", "httpx", "yaml", "sqlalchemy")
NAMED = {
    "application": ["orders"],
    "port": ["Archive", "Europe"],
    "location": ["OrdersIn.file"],
    "orchestration": ["fulfil"],
}


def modules(code: str) -> set[str]:
    """The top-level modules that are imported once this has run."""
    program = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stderr.split())


def test_help_imports_nothing_that_takes_long() -> None:
    called = "from crossdock.cli.app import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass"

    assert modules(called).intersection(HEAVY) == set()


def test_index_of_a_few_subscriptions_imports_no_pandas() -> None:
    called = (
        "from crossdock.message.property import PropertyType\n"
        "from crossdock.subscription.index.index import SubscriptionIndex\n"
        "from crossdock.subscription.index.rows import filters_of_rows\n"
        "types = {'Region': PropertyType.TEXT}\n"
        "index = SubscriptionIndex.build(filters_of_rows([(7, 0, 0, 'Region', '=', 'NO')], types).items(), types)\n"
        "assert index.match_one({'Region': 'NO'}) == [7]"
    )

    assert "pandas" not in modules(called)


def test_names_from_a_file_import_nothing_that_takes_long() -> None:
    called = (
        "from pathlib import Path\nfrom crossdock.administration.names import known_names\nknown_names(Path('x'), '')"
    )

    assert modules(called).intersection(HEAVY) == set()


def test_version_is_that_of_the_distribution() -> None:
    done = subprocess.run([CROSSDOCK, "--version"], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout.strip() == f"crossdock {version('crossdock')}"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["start", "Eu"], ["Europe"]),
        (["start", ""], ["Archive", "Europe", "fulfil", "orders"]),
        (["disable", "Or"], ["OrdersIn.file"]),
        (["undeploy", "o"], ["orders"]),
        (["publish", "--to", "A"], ["Archive"]),
    ],
)
def test_shell_completes_the_names_of_what_is_deployed(folder: Path, words: list[str], completed: list[str]) -> None:
    home = folder / "home"
    home.mkdir()
    (home / NAMES).write_text(json.dumps(NAMED))
    environment = {
        **os.environ,
        "_CROSSDOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["crossdock", *words]),
        "COMP_CWORD": str(len(words)),
        "CROSSDOCK_HOME": str(home),
    }

    done = subprocess.run([CROSSDOCK], capture_output=True, text=True, env=environment, timeout=120, check=False)

    assert done.stdout.split() == completed, done.stderr


def test_names_come_from_the_database_where_there_is_one(agent: Agent) -> None:
    deploy(agent, port("Europe", "Region = 'EU'"))

    names = known_names(Path("nowhere"), agent.database)

    assert (names["application"], names["port"], names["host"]) == (["orders"], ["Europe"], ["Default"])


def test_where_there_is_nothing_no_name_is_completed(folder: Path) -> None:
    assert known_names(folder, "") == {}
    assert known_names(folder, "postgresql://127.0.0.1:1/none") == {}
