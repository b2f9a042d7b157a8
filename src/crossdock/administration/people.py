"""The rights of people who ask through the console: a role, and grants, for all applications or for one."""

from __future__ import annotations

from collections.abc import Iterable

from crossdock.errors import UsageError

ROLES = ("viewer", "operator", "administrator")
GRANTS = ("bodies", "edit")
_IMPLIED = {"operator": ("viewer",), "bodies": ("viewer",), "edit": ("viewer", "bodies")}


def rights_of(role: str, grants: Iterable[str] = (), application: str | None = None) -> frozenset[str]:
    """The limit of a person, as an `Actor` has it. Everybody sees everything but bodies. Raises UsageError."""
    if role not in ROLES:
        raise UsageError(f"There is no role {role!r}. Choose one of: {', '.join(ROLES)}.")
    for grant in grants:
        if grant not in GRANTS:
            raise UsageError(f"There is no grant {grant!r}. Choose one of: {', '.join(GRANTS)}.")
    if application is not None and role == "administrator":
        raise UsageError("An administrator is one of all applications: leave --application out.")
    return _closed((name, application) for name in (role, *grants))


def read_rights(text: str) -> frozenset[str]:
    """Rights as they are written in a line: `operator`, or `viewer,bodies:Shop`. Raises UsageError."""
    wanted = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, _, application = each.partition(":")
        if name not in (*ROLES, *GRANTS):
            raise UsageError(f"There is no right {name!r} in {text!r}. Choose of: {', '.join((*ROLES, *GRANTS))}.")
        wanted.append((name, application or None))
    if not wanted:
        raise UsageError(f"There is no right in {text!r}. Choose of: {', '.join((*ROLES, *GRANTS))}.")
    return _closed(wanted)


def _closed(wanted: Iterable[tuple[str, str | None]]) -> frozenset[str]:
    """With what each implies. To see is for all applications, and so is to administer."""
    found: set[str] = set()
    for name, application in wanted:
        found.update(_spelled(each, application) for each in (name, *_IMPLIED.get(name, ())))
    return frozenset(found)


def _spelled(name: str, application: str | None) -> str:
    return name if application is None or name in ("viewer", "administrator") else f"{name}:{application}"
