"""Versions of orchestrations: what makes a new one, and how one is loaded from its stored source."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from crossdock.errors import ApplicationError
from crossdock.orchestration.bundle import sources_of
from crossdock.orchestration.version import load, version_of

MODULE = '''"""The greeting."""
from crossdock import Message, Port, Process, Receive, orchestration
from prices import price

shop = Port("Shop")

@orchestration(Receive("Order"))
async def greet(process: Process, order: Message) -> int:
    """Greets."""
    return helper(1)

def helper(count: int) -> int:
    return count * price()
'''
PRICES = "def price() -> int:\n    return 10\n"


def written(folder: Path, **modules: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in {"greeting": MODULE, "prices": PRICES, **modules}.items():
        file = folder.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return folder


def digest(folder: Path, **modules: str) -> str:
    return version_of(written(folder, **modules), "greeting:greet").digest


def test_comments_docstrings_and_layout_make_no_new_version(folder: Path) -> None:
    rewritten = MODULE.replace('"""Greets."""\n', '"""Greets somebody."""\n\n    # a comment\n').replace(
        "count * price()", "(count *\n        price())"
    )

    assert digest(folder / "a") == digest(folder / "b", greeting=rewritten)
    assert version_of(folder / "a", "greeting:greet").bundle != version_of(folder / "b", "greeting:greet").bundle


@pytest.mark.parametrize(
    "changed",
    [
        {"greeting": MODULE.replace("helper(1)", "helper(2)")},
        {"greeting": MODULE.replace("count * price()", "count + price()")},
        {"prices": PRICES.replace("10", "11")},
        {"greeting": MODULE.replace('Receive("Order")', 'Receive("Offer")')},
    ],
)
def test_code_of_the_function_its_helpers_and_what_it_imports_makes_a_new_version(
    folder: Path, changed: dict[str, str]
) -> None:
    assert digest(folder / "a") != digest(folder / "b", **changed)


def test_module_that_is_not_imported_makes_no_new_version(folder: Path) -> None:
    assert digest(folder / "a") == digest(folder / "b", unrelated="this is not even Python(")


def test_import_inside_a_function_and_a_relative_one_count(folder: Path) -> None:
    late = MODULE.replace("from prices import price\n", "").replace("count * price()", "__import__('os') and count")
    late += "\ndef other():\n    from package.inner import value\n    return value\n"
    package = {"package__inner": "from .deeper import value\n", "package__deeper": "value = 1\n"}

    before = digest(folder / "a", greeting=late, **package)

    assert before != digest(folder / "b", greeting=late, **{**package, "package__deeper": "value = 2\n"})


def test_bundle_has_the_python_files_beside_the_application_and_nothing_else(folder: Path) -> None:
    written(folder, package__module="x = 1")
    (folder / "orders.json").write_text("{}")
    (folder / "venv").mkdir()
    (folder / "venv" / "pyvenv.cfg").write_text("")
    (folder / "venv" / "installed.py").write_text("")
    (folder / ".crossdock").mkdir()
    (folder / ".crossdock" / "hidden.py").write_text("")

    bundle = version_of(folder, "greeting:greet").bundle

    assert sorted(sources_of(bundle)) == ["greeting.py", "package/module.py", "prices.py"]


def test_two_versions_of_one_module_live_side_by_side(folder: Path) -> None:
    first = version_of(written(folder / "a"), "greeting:greet")
    second = version_of(written(folder / "b", prices=PRICES.replace("10", "11")), "greeting:greet")

    old, new = load(first.bundle, "greeting:greet"), load(second.bundle, "greeting:greet")

    assert old.function.__globals__["helper"](2) == 20
    assert new.function.__globals__["helper"](2) == 22
    assert load(first.bundle, "greeting:greet") is old
    assert "greeting" not in sys.modules
    assert "prices" not in sys.modules


def test_version_is_loaded_though_the_files_are_gone_and_tracebacks_show_its_source(folder: Path) -> None:
    failing = PRICES.replace("return 10", "raise ValueError('no price')")
    version = version_of(written(folder, prices=failing), "greeting:greet")
    (folder / "greeting.py").unlink()
    (folder / "prices.py").unlink()

    greet = load(version.bundle, "greeting:greet")
    try:
        greet.function.__globals__["helper"](1)
    except ValueError as error:
        shown = "".join(traceback.format_exception(error))

    assert "prices.py" in shown
    assert "raise ValueError('no price')" in shown


def test_installed_packages_are_recorded_with_their_versions(folder: Path) -> None:
    version = version_of(written(folder, prices="import msgspec\nimport lxml.etree\n" + PRICES), "greeting:greet")

    assert {"python", "crossdock", "msgspec", "lxml"} <= version.packages.keys()
    assert "prices" not in version.packages


@pytest.mark.parametrize(
    ("prices", "sentence"),
    [
        ("import nowhere_to_be_found\n", "prices.py, line 1: module 'greeting' cannot be loaded: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("raise ValueError('no')\n", "prices.py, line 1: module 'greeting' cannot be loaded: ValueError: no"),
        ("import sys\nsys.exit(3)\n", "module 'greeting' cannot be loaded: SystemExit: 3"),
        ("open('rates.csv')\n", "prices.py, line 1: module 'greeting' cannot be loaded: FileNotFoundError"),
    ],
)  # fmt: skip
def test_version_that_cannot_be_loaded_says_why_in_one_sentence(folder: Path, prices: str, sentence: str) -> None:
    version = version_of(written(folder, prices=prices), "greeting:greet")

    with pytest.raises(ApplicationError) as refused:
        load(version.bundle, "greeting:greet", version.packages)

    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)
    assert "crossdock_version_" not in str(refused.value)


def test_missing_package_is_named_with_the_version_it_was_deployed_with(folder: Path) -> None:
    version = version_of(written(folder, prices="import nowhere_to_be_found\n"), "greeting:greet")

    with pytest.raises(ApplicationError, match=r"\(it was deployed with nowhere 1\.2, here not installed\)"):
        load(version.bundle, "greeting:greet", {"python": "3.11.0", "nowhere": "1.2"})


def test_source_that_is_no_python_is_refused_with_its_line(folder: Path) -> None:
    with pytest.raises(ApplicationError, match=r"^prices\.py, line 2: it is not Python"):
        version_of(written(folder, prices="x = 1\ndef (:\n"), "greeting:greet")


@pytest.mark.parametrize("with_init", [True, False])
def test_orchestration_may_be_in_a_package_that_imports_beside_it(folder: Path, with_init: bool) -> None:
    module = MODULE.replace("from prices import price", "from .prices import price\nimport prices as others")
    written(folder, flows__greeting=module, flows__prices=PRICES.replace("10", "12"))
    if with_init:
        (folder / "flows" / "__init__.py").write_text("")

    version = version_of(folder, "flows.greeting:greet")
    greet = load(version.bundle, "flows.greeting:greet")

    assert greet.function.__globals__["helper"](1) == 12
    assert greet.function.__globals__["others"].price() == 10
