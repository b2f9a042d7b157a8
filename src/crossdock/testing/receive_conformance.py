"""What every receive adapter promises, as tests. Derive a class whose name starts with Test and fill in the hooks.

The hooks play the partner, who puts things where the adapter finds them. `name` is up to you: a file name, a key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import pytest

from crossdock.adapter.contract import ReceiveAdapter, Source
from crossdock.errors import TransientError


class ReceiveAdapterConformance(ABC):
    """Lists, reads and acknowledges as `adapter/contract.py` says, whatever happens in between."""

    @abstractmethod
    def make_adapter(self) -> ReceiveAdapter:
        """A new adapter object for the same place, as another process would make it."""

    @abstractmethod
    def make_unreachable_adapter(self) -> ReceiveAdapter:
        """An adapter for a place that is away."""

    @abstractmethod
    def put(self, name: str, text: str) -> bytes:
        """Something new and complete to read under this name; gives the bytes that reading it must give."""

    @abstractmethod
    def replace(self, name: str, text: str) -> bytes:
        """Other content under a name that is there; gives the bytes that reading it must give."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """The partner takes it away again."""

    def present(self) -> int:
        """How many sources another process finds."""
        return len(self.make_adapter().list().ready)

    def test_empty_place_lists_nothing(self) -> None:
        listing = self.make_adapter().list()

        assert (listing.ready, listing.incomplete) == ((), 0)

    def test_everything_that_was_put_is_listed_once_with_its_content(self) -> None:
        put = sorted(self.put(name, text) for name, text in (("1", "first"), ("2", "zwölf €"), ("3", 'a "b"\n\\c')))
        adapter = self.make_adapter()

        ready = adapter.list().ready

        assert len({source.identity for source in ready}) == len(ready) == 3
        assert sorted(adapter.read(source.identity) or b"" for source in ready) == put

    def test_same_content_under_two_names_is_two_sources(self) -> None:
        self.put("1", "same")
        self.put("2", "same")

        assert len({source.identity for source in self.make_adapter().list().ready}) == 2

    def test_size_is_that_of_the_content(self) -> None:
        content = self.put("1", "zwölf €")

        assert self._only().size == len(content)

    def test_identity_stays_the_same_between_listings_and_processes(self) -> None:
        self.put("1", "first")
        adapter = self.make_adapter()

        assert adapter.list().ready == adapter.list().ready == self.make_adapter().list().ready

    def test_reading_changes_nothing(self) -> None:
        content = self.put("1", "first")
        source, adapter = self._only(), self.make_adapter()

        assert [adapter.read(source.identity) for _ in range(3)] == [content] * 3
        assert self._only() == source

    def test_new_content_under_the_same_name_is_a_new_source(self) -> None:
        self.put("1", "first")
        before = self._only()
        content = self.replace("1", "other")
        after = self._only()

        assert after.identity != before.identity
        assert self.make_adapter().read(before.identity) is None
        assert self.make_adapter().read(after.identity) == content

    def test_what_vanished_reads_as_nothing_and_is_acknowledged_without_complaint(self) -> None:
        self.put("1", "first")
        source, adapter = self._only(), self.make_adapter()
        self.remove("1")

        assert adapter.read(source.identity) is None
        adapter.acknowledge(source.identity)
        assert self.present() == 0

    def test_acknowledged_source_is_not_listed_or_read_again(self) -> None:
        self.put("1", "first")
        source, adapter = self._only(), self.make_adapter()

        adapter.acknowledge(source.identity)

        assert self.present() == 0
        assert adapter.read(source.identity) is None

    def test_acknowledging_one_leaves_the_others(self) -> None:
        self.put("1", "first")
        source, adapter = self._only(), self.make_adapter()
        content = self.put("2", "second")

        adapter.acknowledge(source.identity)

        assert adapter.read(self._only().identity) == content

    def test_acknowledging_twice_is_harmless(self) -> None:
        self.put("1", "first")
        source, adapter = self._only(), self.make_adapter()

        for each in (adapter, adapter, self.make_adapter()):
            each.acknowledge(source.identity)

        assert self.present() == 0

    def test_acknowledging_what_was_replaced_meanwhile_keeps_the_new(self) -> None:
        self.put("1", "first")
        source, adapter = self._only(), self.make_adapter()
        content = self.replace("1", "other")

        adapter.acknowledge(source.identity)

        assert adapter.read(self._only().identity) == content

    def test_same_name_after_acknowledging_is_a_new_source(self) -> None:
        self.put("1", "first")
        before = self._only()
        self.make_adapter().acknowledge(before.identity)
        content = self.put("1", "second")
        after = self._only()

        self.make_adapter().acknowledge(before.identity)

        assert after.identity != before.identity
        assert self.make_adapter().read(after.identity) == content

    def test_another_process_reads_and_acknowledges_what_the_first_listed(self) -> None:
        content = self.put("1", "first")
        source = self._only()

        assert self.make_adapter().read(source.identity) == content
        self.make_adapter().acknowledge(source.identity)
        assert self.present() == 0

    @pytest.mark.parametrize("identity", [b"elsewhere", b"1:2:3:/nowhere/a.json", b"\xff:\xff:\xff"])
    def test_identity_from_elsewhere_reads_as_nothing(self, identity: bytes) -> None:
        """The location may have had another adapter or address when the source was listed."""
        content = self.put("1", "first")
        adapter = self.make_adapter()

        adapter.acknowledge(identity)

        assert adapter.read(identity) is None
        assert isinstance(adapter.name(identity), str)
        assert adapter.read(self._only().identity) == content

    def test_name_is_text_that_tells_sources_apart(self) -> None:
        self.put("1", "first")
        self.put("2", "second")
        adapter = self.make_adapter()

        names = {adapter.name(source.identity) for source in adapter.list().ready}

        assert len(names) == 2
        assert all(name.encode("utf-8") for name in names)

    def test_place_that_is_away_is_worth_another_try(self) -> None:
        with pytest.raises(TransientError, match=r"\w"):
            self.make_unreachable_adapter().list()

    def _only(self) -> Source:
        [source] = self.make_adapter().list().ready
        return source
