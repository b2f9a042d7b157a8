"""Every error Crossdock raises on purpose, in one tree.

CrossdockError
├── ApplicationError        the declared application is wrong; nothing was started          (exit code 2)
│   ├── FilterError         a filter cannot be read or does not fit its properties; carries the place in the text
│   └── PropertyError       a property is declared wrongly or twice with different types
├── UsageError              the command was called wrongly, or names something that does not exist  (exit code 2)
├── UnavailableError        Java, Spark or PostgreSQL cannot be used here; says what to do    (exit code 1)
│   └── HomeInUseError      another process works in this home
├── TransientError          it may work later: retry
└── TerminalError           it will not work by itself: suspend
    ├── DocumentError       bytes that are no message: they do not parse, or are empty
    └── PromotionError      a value that does not fit the property it is promoted to

A message names the artefact, what happened and what to do next, in one sentence.
"""

from __future__ import annotations


class CrossdockError(Exception):
    """The root of the tree."""

    exit_code = 1


class ApplicationError(CrossdockError):
    """The declared application is refused before anything starts."""

    exit_code = 2


class FilterError(ApplicationError):
    """A filter is refused. `text` and `position` point at the place, where the filter was written as text.

    `constant` is the number of the constant that is wrong, if it is not the property or the operator.
    """

    def __init__(
        self, reason: str, *, text: str | None = None, position: int | None = None, constant: int | None = None
    ) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        self.constant = constant
        super().__init__(reason)

    def pointed(self) -> str:
        """The filter with a caret under the place that is wrong; empty if there is no place to show."""
        if self.text is None or self.position is None:
            return ""
        before = self.text[: self.position]
        line_start = before.rfind("\n") + 1
        line = self.text[line_start:].split("\n", 1)[0]
        return f"{line}\n{' ' * (self.position - line_start)}^"


class PropertyError(ApplicationError):
    """A property declaration is refused."""


class UsageError(CrossdockError):
    """The command cannot mean anything as it was given."""

    exit_code = 2


class UnavailableError(CrossdockError):
    """Something Crossdock stands on is missing or does not work."""


class HomeInUseError(UnavailableError):
    """Another process runs in the same home."""


class TransientError(CrossdockError):
    """It may work later: retry."""


class TerminalError(CrossdockError):
    """It will not work by itself: suspend."""


class DocumentError(TerminalError):
    """These bytes are not a message."""


class PromotionError(TerminalError):
    """A value does not fit the property it is promoted to."""
