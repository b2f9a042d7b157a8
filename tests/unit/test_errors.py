"""Errors: all of them are in `errors.py`, each has a code, and the reference says of each what to do."""

from __future__ import annotations

import re
from pathlib import Path

from crossdock import errors
from crossdock.errors import CrossdockError, Interruption, Signal

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/crossdock"


def below(kind: type[BaseException]) -> list[type[BaseException]]:
    """The class and those below it in the tree; not what a test made."""
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [kind, *(each for child in children for each in below(child))]


def codes() -> dict[str, str]:
    """The classes by their codes."""
    return {kind.code: kind.__name__ for kind in below(CrossdockError) if issubclass(kind, CrossdockError)}


def test_every_error_of_the_source_is_in_one_file() -> None:
    elsewhere = {
        f"{file.relative_to(SOURCE)}: {line}"
        for file in SOURCE.rglob("*.py")
        if file.name != "errors.py"
        for line in file.read_text().splitlines()
        if re.match(r"\s*class \w*(Error|Exception)\(", line)
    }

    assert elsewhere == set()


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = below(CrossdockError)

    assert len(codes()) == len(kinds)
    assert [code for code in codes() if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


def test_the_tree_at_the_top_shows_every_error_with_its_code() -> None:
    assert errors.__doc__ is not None
    drawn = dict(re.findall(r"([A-Z]\w+) +([a-z]+(?:-[a-z]+)*) {2,}\S", errors.__doc__))
    signals = re.findall(r"^[├└─ ]*(\w+) {3,}", errors.__doc__, re.MULTILINE)

    assert drawn == {name: code for code, name in codes().items()}
    assert {kind.__name__ for kind in (*below(Signal), *below(Interruption))} <= set(signals)


def test_the_reference_says_of_every_code_what_it_means_and_what_to_do() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\S.*\S) \| (\S.*\S) \|$", page, re.MULTILINE)

    assert sorted(code for code, _, _ in rows) == sorted(codes())


def test_statements_write_no_code_that_is_not_one() -> None:
    files = [*(SOURCE / "messagebox").rglob("*.sql")]
    literals = {code for file in files for code in re.findall(r"'([a-z]+(?:-[a-z]+)+)'", file.read_text())}

    assert {"label-missing", "nobody-waits", "instance-ended"} <= literals
    assert literals - {"given-back"} <= set(codes())  # what happened to a reference is no error
