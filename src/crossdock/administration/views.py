"""Saved views: searches for messages that people keep under a name, in the MessageBox, and share by a link."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from crossdock.administration.condition import filter_of, personal_names
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.console import SavedView

__all__ = ["SavedView", "Views"]

_FIELDS = ("q", "type", "port", "state", "since", "until")
_NAME_LIMIT, _QUERY_LIMIT, _MOST = 60, 4_000, 100


class Views:
    """`service.views`. Whoever may see messages keeps views of its own."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def list(self) -> Sequence[SavedView]:
        """Those of the person who asks, by name."""
        return self._agent.console.views()

    def find(self, id_: str) -> SavedView:
        """Also one of somebody else. Raises UsageError."""
        found = self._agent.console.find_view(_uuid(id_))
        if found is None:
            raise UsageError(f"There is no saved view {id_}: its owner may have deleted it.")
        return found

    def save(self, name: str, query: str) -> SavedView:
        """Keep a search, instead of the one that had the name. What is no field of the search is left out."""
        name = name.strip()
        if not name or len(name) > _NAME_LIMIT or not name.isprintable():
            raise UsageError(f"A saved view has a name of 1 to {_NAME_LIMIT} printable characters.")
        fields = dict(parse_qsl(query.lstrip("?")))
        if "personal" in fields or self._asks_personal(fields.get("q", "")):
            raise UsageError("A search by personal properties is not kept: who may not see the values could read them.")
        asked = urlencode([(field, text) for field, text in fields.items() if field in _FIELDS])
        if len(asked) > _QUERY_LIMIT:
            raise UsageError(f"A saved view has at most {_QUERY_LIMIT:,} characters.")
        if "\0" in asked or "%00" in asked:
            raise UsageError("A search has no character 0.")
        saved = self._agent.console.save_view(name, asked, _MOST)
        if saved is None:
            raise UsageError(f"You have {_MOST} saved views: delete one first.")
        return saved

    def delete(self, name: str) -> None:
        """Links to it lead nowhere from here on. Raises UsageError."""
        if not self._agent.console.delete_view(name):
            raise UsageError(f"There is no saved view {name!r} of yours.")

    def _asks_personal(self, where: str) -> bool:
        try:
            return bool(where and personal_names(self._agent, filter_of(self._agent, where)))
        except UsageError:  # the id of a message, or what its owner has not finished
            return False


def _uuid(id_: str) -> UUID:
    try:
        return UUID(id_)
    except ValueError as error:
        raise UsageError(f"There is no saved view {id_}: this is no id.") from error
