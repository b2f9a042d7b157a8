"""The conformance suite accepts a good adapter, and finds every fault that is built into it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest

from crossdock.adapter.contract import Listing, ReceiveAdapter, Source
from crossdock.errors import TransientError
from crossdock.testing.receive_conformance import ReceiveAdapterConformance


@dataclass
class Notes:
    """A service that has a revision for each of its notes."""

    away: bool = False
    notes: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    writes: int = 0

    def write(self, name: str, content: bytes) -> bytes:
        self.writes += 1
        self.notes[name] = self.writes, content
        return content


class NoteAdapter:
    def __init__(self, service: Notes) -> None:
        self.service = service

    def list(self) -> Listing:
        if self.service.away:
            raise TransientError("the notes cannot be listed")
        notes = self.service.notes.items()
        return Listing(tuple(Source(f"{revision}:{name}".encode(), len(text)) for name, (revision, text) in notes))

    def read(self, identity: bytes) -> bytes | None:
        revision, _, name = identity.decode("utf-8", "replace").partition(":")
        found, content = self.service.notes.get(name, (0, b""))
        return content if str(found) == revision else None

    def acknowledge(self, identity: bytes) -> None:
        if self.read(identity) is not None:
            del self.service.notes[self._key(identity)]

    def name(self, identity: bytes) -> str:
        return f"notes/{self._key(identity)}"

    def _key(self, identity: bytes) -> str:
        return identity.decode("utf-8", "replace").partition(":")[2]


class ReadsWhateverIsThere(NoteAdapter):
    def read(self, identity: bytes) -> bytes | None:
        return self.service.notes.get(self._key(identity), (0, None))[1]


class RemovesWhateverIsThere(NoteAdapter):
    def acknowledge(self, identity: bytes) -> None:
        self.service.notes.pop(self._key(identity), None)


class ComplainsOfWhatIsGone(NoteAdapter):
    def acknowledge(self, identity: bytes) -> None:
        del self.service.notes[self._key(identity)]


class NeverRemoves(NoteAdapter):
    def acknowledge(self, identity: bytes) -> None:
        pass


class RemovesEverything(NoteAdapter):
    def acknowledge(self, identity: bytes) -> None:  # noqa: ARG002
        self.service.notes.clear()


class ListsTwice(NoteAdapter):
    def list(self) -> Listing:
        return Listing(super().list().ready * 2)


class ForgetsOne(NoteAdapter):
    def list(self) -> Listing:
        return Listing(super().list().ready[:2])


class GuessesTheSize(NoteAdapter):
    def list(self) -> Listing:
        return Listing(tuple(replace(source, size=5) for source in super().list().ready))


class TakesTheNameForTheIdentity(NoteAdapter):
    def list(self) -> Listing:
        return Listing(tuple(replace(s, identity=b"0:" + s.identity.split(b":")[1]) for s in super().list().ready))

    def read(self, identity: bytes) -> bytes | None:
        return self.service.notes.get(self._key(identity), (0, None))[1]


class RemembersByItself(NoteAdapter):
    """Identities mean nothing to another process."""

    def __init__(self, service: Notes) -> None:
        super().__init__(service)
        self.known: dict[bytes, bytes] = {}

    def list(self) -> Listing:
        listed = super().list().ready
        self.known = {uuid4().bytes: source.identity for source in listed}
        return Listing(tuple(Source(new, s.size) for new, s in zip(self.known, listed, strict=True)))

    def read(self, identity: bytes) -> bytes | None:
        return super().read(self.known[identity]) if identity in self.known else None


class ReadsOnce(NoteAdapter):
    def read(self, identity: bytes) -> bytes | None:
        content = super().read(identity)
        if content is not None:
            self.service.write(self._key(identity), content)
        return content


class ChangesTheContent(NoteAdapter):
    def read(self, identity: bytes) -> bytes | None:
        content = super().read(identity)
        return None if content is None else content.strip().replace(b"\n", b"")


class CallsEverythingTheSame(NoteAdapter):
    def name(self, identity: bytes) -> str:  # noqa: ARG002
        return "note"


class HidesThatThePlaceIsAway(NoteAdapter):
    def list(self) -> Listing:
        return Listing(()) if self.service.away else super().list()


class TestNotes(ReceiveAdapterConformance):
    kind: Callable[[Notes], ReceiveAdapter] = NoteAdapter

    @pytest.fixture(autouse=True)
    def _service(self) -> None:
        self.service = Notes()

    def make_adapter(self) -> ReceiveAdapter:
        return type(self).kind(self.service)

    def make_unreachable_adapter(self) -> ReceiveAdapter:
        return type(self).kind(Notes(away=True))

    def put(self, name: str, text: str) -> bytes:
        return self.service.write(name, text.encode())

    def replace(self, name: str, text: str) -> bytes:
        return self.service.write(name, text.encode())

    def remove(self, name: str) -> None:
        del self.service.notes[name]


@pytest.mark.parametrize("faulty", NoteAdapter.__subclasses__())
def test_fault_is_found(faulty: type[NoteAdapter]) -> None:
    suite = type("Faulty", (TestNotes,), {"kind": faulty})
    names = [name for name in dir(suite) if name.startswith("test_") and "from_elsewhere" not in name]

    assert not [name for name in names if _fails(TestNotes, name)]
    assert [name for name in names if _fails(suite, name)]


def _fails(suite: type[TestNotes], name: str) -> bool:
    case = suite()
    case.service = Notes()
    try:
        getattr(case, name)()
    except (Exception, pytest.fail.Exception):
        return True
    return False
