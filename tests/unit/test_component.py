"""Code that an application names: found beside it first, and never taken for that of another application."""

from __future__ import annotations

import importlib
import queue
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from crossdock.application.load import load_application
from crossdock.component import load_callable
from crossdock.errors import ApplicationError


def written(folder: Path, packages: Mapping[str, str] | None = None, **modules: str) -> str:
    """A folder with these modules."""
    for name, content in {**(packages or {}), **modules}.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return str(folder)


def test_two_applications_with_modules_of_the_same_name_run_their_own(folder: Path) -> None:
    checks = "import helper\ndef check(): return helper.NAME\n"
    first = written(folder / "first", checks=checks, helper="NAME = 'first'")
    second = written(folder / "second", checks=checks, helper="NAME = 'second'")

    both = [load_callable("checks:check", place)() for place in (first, second, first)]

    assert both == ["first", "second", "first"]
    assert "checks" not in sys.modules
    assert "helper" not in sys.modules


def test_module_is_loaded_once_whatever_names_it(folder: Path) -> None:
    place = written(
        folder / "real", state="class Seen: pass", checks="from state import Seen\ndef check(): return Seen"
    )
    (folder / "link").symlink_to(folder / "real")

    direct = load_callable("state:Seen", place)

    assert load_callable("checks:check", place)() is direct
    assert load_callable("state:Seen", str(folder / "link")) is direct


def test_module_named_like_one_of_python_is_found_beside_the_application_and_nowhere_else(folder: Path) -> None:
    place = written(folder, queue="def check(): return 'mine'", other="import queue\ndef check(): return queue.check()")

    assert load_callable("queue:check", place)() == "mine"
    assert load_callable("other:check", place)() == "mine"
    assert importlib.import_module("queue") is queue
    assert not hasattr(queue, "check")


def test_import_inside_a_function_finds_what_lies_beside_it_too(folder: Path) -> None:
    late = "def check():\n    import helper\n    from helper import NAME\n    return helper.NAME + NAME\n"
    place = written(folder, checks=late, helper="NAME = 'late'")

    assert load_callable("checks:check", place)() == "latelate"


def test_packages_beside_an_application_import_each_other_in_every_way(folder: Path) -> None:
    place = written(
        folder,
        {
            "steps/__init__": "from steps.names import NAME",
            "steps/names": "NAME = 'steps'",
            "steps/deep": "from . import names\nfrom .names import NAME\nimport steps.names as again\nimport steps\n"
            "def check(): return [names.NAME, NAME, again.NAME, steps.names.NAME, steps.NAME]",
            "plain/inner": "import plain.other\ndef check(): return plain.other.NAME",
            "plain/other": "NAME = 'plain'",
        },
    )

    assert load_callable("steps.deep:check", place)() == ["steps"] * 5
    assert load_callable("plain.inner:check", place)() == "plain"


def test_folder_that_has_the_name_of_an_installed_module_is_no_module(folder: Path) -> None:
    (folder / "json").mkdir()
    (folder / "json" / "orders.json").write_text("{}")
    place = written(folder, checks="import json\ndef check(): return json.loads('1')")

    assert load_callable("checks:check", place)() == 1
    assert load_callable("json:loads", place)("2") == 2
    assert load_callable("json:loads", None)("2") == 2


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("checks", "'checks' does not name a function; write it as module:function"),
        (":check", "':check' does not name a function"),
        ("..checks:check", "does not name a function"),
        ("checks:missing", "module 'checks' has no function 'missing'"),
        (
            "checks.inner:check",
            "module 'checks.inner' cannot be imported: ModuleNotFoundError: No module named 'checks.inner'",
        ),
        ("nowhere:check", "module 'nowhere' cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("broken:check", "module 'broken' cannot be imported: NameError: name 'nonsense' is not defined"),
        ("leaving:check", "module 'leaving' cannot be imported: SystemExit: 1"),
    ],
)
def test_what_cannot_be_loaded_is_said_by_the_name_that_was_given(folder: Path, name: str, problem: str) -> None:
    place = written(folder, checks="", broken="nonsense", leaving="raise SystemExit(1)")

    with pytest.raises(ApplicationError) as caught:
        load_callable(name, place)

    assert problem in str(caught.value)


def test_python_applications_have_their_own_modules_beside_them(folder: Path) -> None:
    application = "from crossdock import Application\nimport names\napplication = Application(names.NAME)\n"
    for name in ("first", "second"):
        written(folder / name, application=application, names=f"NAME = {name!r}")

    found = [load_application(folder / name / "application.py").application for name in ("first", "second")]

    assert found == ["first", "second"]
    assert "names" not in sys.modules
