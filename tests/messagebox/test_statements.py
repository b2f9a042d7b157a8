"""Statements are in `sql/`, each under its name; modules hold none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from crossdock.messagebox.statement import statements

STORE = Path(__file__).parents[2] / "src/crossdock/messagebox"
# These make statements, create the schema, set sessions up, or write rows by COPY.
MAY_HOLD_SQL = {"statement.py", "host_functions.py", "migrate.py", "database.py", "copy.py"}
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE)\b")


def texts(module: Path) -> list[str]:
    """The texts in the code of a module, without docstrings."""
    tree = ast.parse(module.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    found = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in found if text not in docstrings]


@pytest.mark.parametrize("module", sorted(STORE.glob("*.py")), ids=lambda module: str(module.name))
def test_no_module_holds_statements(module: Path) -> None:
    if module.name not in MAY_HOLD_SQL:
        assert [text for text in texts(module) if SQL.search(text)] == []


def test_every_statement_is_run_by_somebody() -> None:
    code = "\n".join(module.read_text() for module in STORE.glob("*.py"))
    unused = {name for name in statements() if f'"{name}"' not in code}

    assert unused == {"delete_messages", "delete_parts"}  # whose names are put together from what is deleted
