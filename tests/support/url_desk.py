"""A desk with the command line, at the MessageBox itself or at its console."""

from __future__ import annotations

from typer.testing import CliRunner

from crossdock.cli.app import app
from crossdock.errors import CrossdockError
from served import Served


class UrlDesk:
    """Runs a command on the MessageBox, or at its console."""

    def __init__(self, console: Served, token: str) -> None:
        self._here = ["--database", console.database]
        self._there = ["--url", console.url, "--token", token]

    def here(self, *words: str) -> tuple[int, str]:
        return self._run(*words, *self._here)

    def there(self, *words: str) -> tuple[int, str]:
        return self._run(*words, *self._there)

    @staticmethod
    def _run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, words)
        if isinstance(done.exception, CrossdockError):
            return done.exception.exit_code, str(done.exception)
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        return done.exit_code, done.stdout
