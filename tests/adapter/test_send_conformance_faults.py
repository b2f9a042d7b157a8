"""The suite for send adapters accepts a good one, and finds every fault that is built into it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Barrier
from uuid import uuid4

import pytest

from crossdock.adapter.contract import SendAdapter
from crossdock.errors import CrossdockError, TerminalError, TransientError
from crossdock.message.message import Message, Part
from crossdock.testing.send_conformance import SendAdapterConformance

PASSWORD = "geh@im"


@dataclass
class Letterbox:
    away: bool = False
    refuses: bool = False
    letters: list[tuple[str, bytes]] = field(default_factory=list)

    def put(self, id_: str, body: bytes) -> None:
        if self.away:
            raise ConnectionError(f"me:{PASSWORD} cannot get there")
        if self.refuses:
            raise PermissionError("no letters")
        self.letters.append((id_, body))


class LetterAdapter:
    def __init__(self, box: Letterbox) -> None:
        self.box = box

    def send(self, message: Message, *, attempt: int) -> None:  # noqa: ARG002
        self.put(str(message.id), message.body)

    def put(self, id_: str, body: bytes) -> None:
        try:
            self.box.put(id_, body)
        except ConnectionError:
            raise TransientError("the letterbox is away") from None
        except PermissionError as error:
            raise TerminalError(f"the letter is refused: {error}") from error

    def send_batch(self, messages: Sequence[Message]) -> Sequence[CrossdockError | None]:
        return [self._outcome(message) for message in messages]

    def close(self) -> None:
        pass

    def _outcome(self, message: Message) -> CrossdockError | None:
        try:
            self.send(message, attempt=0)
        except CrossdockError as error:
            return error
        return None


class StripsTheBody(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        super().put(id_, body.strip())


class LeavesOutEmptyBodies(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        if body:
            super().put(id_, body)


class TakesEverythingForText(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        super().put(id_, body.decode("utf-8", "replace").encode())


class SendsTheFirstChunk(LetterAdapter):
    def send(self, message: Message, *, attempt: int) -> None:  # noqa: ARG002
        self.put(str(message.id), next(message.parts[0].chunks(), b""))


class KnowsOnlySmallBodies(LetterAdapter):
    def send(self, message: Message, *, attempt: int) -> None:  # noqa: ARG002
        part = message.parts[0]
        assert isinstance(part, Part)
        self.put(str(message.id), part.body)


class MakesAnIdForEachAttempt(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:  # noqa: ARG002
        super().put(str(uuid4()), body)


class LeavesOutTheSecondAttempt(LetterAdapter):
    def send(self, message: Message, *, attempt: int) -> None:
        if attempt == 0:
            super().send(message, attempt=attempt)


class TellsMessagesApartByTheirContent(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        if body not in [letter for _, letter in self.box.letters]:
            super().put(id_, body)


class SharesWhatThreadsMayNotShare(LetterAdapter):
    together = Barrier(8, timeout=10)  # so that the others come between
    body = b""

    def put(self, id_: str, body: bytes) -> None:
        self.body = body
        self.together.wait()
        super().put(id_, self.body)


class IsClosedForEver(LetterAdapter):
    closed = False

    def close(self) -> None:
        self.closed = True

    def put(self, id_: str, body: bytes) -> None:
        assert not self.closed
        super().put(id_, body)


class HidesThatThePartnerIsAway(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        if not self.box.away:
            super().put(id_, body)


class GivesUpWhenThePartnerIsAway(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        try:
            super().put(id_, body)
        except TransientError as error:
            raise TerminalError(str(error)) from error


class LetsErrorsThrough(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        self.box.put(id_, body)


class TellsThePassword(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        try:
            self.box.put(id_, body)
        except ConnectionError as error:
            raise TransientError(str(error)) from error
        except PermissionError as error:
            raise TerminalError(str(error)) from error


class TellsAStory(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        try:
            super().put(id_, body)
        except TransientError as error:
            raise TransientError(f"Traceback\n{error}") from error


class TriesForEverWhatIsRefused(LetterAdapter):
    def put(self, id_: str, body: bytes) -> None:
        try:
            super().put(id_, body)
        except TerminalError as error:
            raise TransientError(str(error)) from error


class ForgetsTheLastOfABatch(LetterAdapter):
    def send_batch(self, messages: Sequence[Message]) -> Sequence[CrossdockError | None]:
        return [*super().send_batch(messages[:-1]), *[None for _ in messages[-1:]]]


class TestLetters(SendAdapterConformance):
    kind: Callable[[Letterbox], SendAdapter] = LetterAdapter
    password = PASSWORD

    @pytest.fixture(autouse=True)
    def _box(self) -> None:
        self.box = Letterbox()

    def make_adapter(self) -> SendAdapter:
        return type(self).kind(self.box)

    def make_unreachable_adapter(self) -> SendAdapter:
        return type(self).kind(Letterbox(away=True))

    def make_refusing_adapter(self) -> SendAdapter:
        return type(self).kind(Letterbox(refuses=True))

    def received(self) -> Sequence[tuple[str | None, bytes]]:
        return self.box.letters


class TestLettersWithoutAnId(TestLetters):
    """A partner that sees no ids."""

    def received(self) -> Sequence[tuple[str | None, bytes]]:
        return [(None, body) for _, body in self.box.letters]


FOUND_BY = {
    StripsTheBody: "body_arrives_as_it_is",
    LeavesOutEmptyBodies: "large_body_may_be_empty",
    TakesEverythingForText: "bytes_that_are_no_text",
    SendsTheFirstChunk: "large_body_arrives_whole",
    KnowsOnlySmallBodies: "large_body_arrives_whole",
    MakesAnIdForEachAttempt: "second_attempt_is_the_same_message",
    LeavesOutTheSecondAttempt: "second_attempt_is_the_same_message",
    TellsMessagesApartByTheirContent: "same_content_in_two_messages",
    SharesWhatThreadsMayNotShare: "threads_share_it",
    IsClosedForEver: "used_after_it_was_closed",
    HidesThatThePartnerIsAway: "partner_that_is_away",
    GivesUpWhenThePartnerIsAway: "partner_that_is_away",
    LetsErrorsThrough: "refused_message",
    TellsThePassword: "partner_that_is_away",
    TellsAStory: "partner_that_is_away",
    TriesForEverWhatIsRefused: "refused_message",
    ForgetsTheLastOfABatch: "batch_arrives_whole",
}


def test_every_fault_has_a_test_that_finds_it() -> None:
    assert set(FOUND_BY) == set(LetterAdapter.__subclasses__())


@pytest.mark.parametrize("faulty", FOUND_BY)
def test_fault_is_found(faulty: type[LetterAdapter]) -> None:
    suite = type("Faulty", (TestLetters,), {"kind": faulty})
    names = [name for name in dir(suite) if name.startswith("test_") and FOUND_BY[faulty] in name]

    assert not [name for name in names if _fails(TestLetters, name)]
    assert [name for name in names if _fails(suite, name)]


def _fails(suite: type[TestLetters], name: str) -> bool:
    case = suite()
    case.box = Letterbox()
    bodies = [" blanks around it\n"] if name == "test_body_arrives_as_it_is" else []
    try:
        getattr(case, name)(*bodies)
    except (Exception, pytest.fail.Exception):
        return True
    return False
