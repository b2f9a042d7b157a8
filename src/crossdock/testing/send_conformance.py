"""What every send adapter promises, as tests. Derive a class whose name starts with Test and fill in the hooks.

The hooks play the partner, and tell what arrived there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from uuid import uuid4

import pytest

from crossdock.adapter.contract import BatchSendAdapter, SendAdapter
from crossdock.errors import CrossdockError, TerminalError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart

_THREADS = 8
_LARGE = b"".join(b"%07d\n" % number for number in range(400_000))  # 3.2 MB, so that it comes in more than one chunk


class SendAdapterConformance(ABC):
    """Delivers as `adapter/contract.py` says, whatever the partner does."""

    deduplicates = False
    """Whether the same message sent twice is at the partner once."""
    binary = True
    """Whether a body can be any bytes; else it is text in UTF-8."""
    password: str | None = None
    """What the adapter that `make_unreachable_adapter` gives must not tell."""

    @abstractmethod
    def make_adapter(self) -> SendAdapter:
        """A new adapter object for the same partner, as another process would make it."""

    @abstractmethod
    def make_unreachable_adapter(self) -> SendAdapter:
        """An adapter for a partner that is away."""

    @abstractmethod
    def received(self) -> Sequence[tuple[str | None, bytes]]:
        """What arrived at the partner, in any order: the id of the message, where it comes along, and the body."""

    def make_refusing_adapter(self) -> SendAdapter:
        """An adapter for a partner that wants none of our messages. Leave it out if there is no such thing."""
        return pytest.skip("there is no partner that refuses")

    @pytest.mark.parametrize("text", ["first", "", "zwölf €", ' a "b"\r\n\\c\n%MessageID% :name '])
    def test_body_arrives_as_it_is(self, text: str) -> None:
        self._arrives(a_message(text.encode()))

    def test_bytes_that_are_no_text_arrive_as_they_are_or_are_refused(self) -> None:
        message = a_message(bytes(range(256)))

        if self.binary:
            self._arrives(message)
        else:
            with pytest.raises(TerminalError):
                self.make_adapter().send(message, attempt=0)

    def test_large_body_arrives_whole(self) -> None:
        self._arrives(Message(_new_id(), Context(), (StreamedPart("body", partial(BytesIO, _LARGE)),)))

    def test_large_body_may_be_empty(self) -> None:
        self._arrives(Message(_new_id(), Context(), (StreamedPart("body", BytesIO),)))

    def test_same_content_in_two_messages_arrives_twice(self) -> None:
        adapter = self.make_adapter()

        adapter.send(a_message(b"same"), attempt=0)
        adapter.send(a_message(b"same"), attempt=0)

        assert [body for _, body in self.received()] == [b"same", b"same"]

    def test_threads_share_it_and_every_message_arrives_once(self) -> None:
        adapter = self.make_adapter()
        messages = [a_message(b"%d" % number) for number in range(5 * _THREADS)]

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda message: adapter.send(message, attempt=0), messages))

        assert Counter(body for _, body in self.received()) == Counter(message.body for message in messages)
        self._ids_are_of(messages)

    def test_second_attempt_is_the_same_message(self) -> None:
        """The first may have died after it delivered, in another process."""
        message = a_message(b"first")

        self.make_adapter().send(message, attempt=0)
        self.make_adapter().send(message, attempt=1)

        assert [body for _, body in self.received()] == [b"first"] * (1 if self.deduplicates else 2)
        self._ids_are_of([message])

    def test_it_can_be_used_after_it_was_closed(self) -> None:
        adapter = self.make_adapter()

        adapter.close()
        adapter.send(a_message(b"first"), attempt=0)
        adapter.close()
        adapter.close()
        adapter.send(a_message(b"second"), attempt=0)

        assert sorted(body for _, body in self.received()) == [b"first", b"second"]

    def test_batch_arrives_whole_and_once(self) -> None:
        adapter = self.make_adapter()
        messages = [a_message(b"%d" % number) for number in range(20)]

        outcomes = _sent(adapter, messages)

        assert outcomes == [None] * len(messages)
        assert Counter(body for _, body in self.received()) == Counter(message.body for message in messages)
        assert _sent(adapter, []) == []

    def test_batch_for_a_partner_that_is_away_is_worth_another_try(self) -> None:
        outcomes = _sent(self.make_unreachable_adapter(), [a_message(b"first"), a_message(b"second")])

        assert [type(outcome) for outcome in outcomes] == [TransientError, TransientError]

    def test_partner_that_is_away_is_worth_another_try(self) -> None:
        with pytest.raises(TransientError) as raised:
            self.make_unreachable_adapter().send(a_message(b"first"), attempt=0)

        self._is_one_sentence(str(raised.value))

    def test_refused_message_is_not_sent_again(self) -> None:
        adapter = self.make_refusing_adapter()

        with pytest.raises(TerminalError) as raised:
            adapter.send(a_message(b"first"), attempt=0)

        self._is_one_sentence(str(raised.value))

    def _arrives(self, message: Message) -> None:
        self.make_adapter().send(message, attempt=0)

        [(_, body)] = self.received()
        assert body == message.body
        self._ids_are_of([message])

    def _ids_are_of(self, messages: Sequence[Message]) -> None:
        known = {id_ for id_, _ in self.received() if id_ is not None}
        assert known <= {str(message.id) for message in messages}

    def _is_one_sentence(self, told: str) -> None:
        assert told.strip()
        assert "\n" not in told
        assert self.password is None or self.password not in told


def a_message(body: bytes) -> Message:
    """A message with a new id."""
    return Message(_new_id(), Context(), (Part("body", body),))


def _sent(adapter: SendAdapter, messages: Sequence[Message]) -> list[CrossdockError | None]:
    """What became of each; one after the other, where the adapter takes no batches."""
    if isinstance(adapter, BatchSendAdapter):
        return list(adapter.send_batch(messages))
    return [_outcome(adapter, message) for message in messages]


def _outcome(adapter: SendAdapter, message: Message) -> CrossdockError | None:
    try:
        adapter.send(message, attempt=0)
    except CrossdockError as error:
        return error
    return None


def _new_id() -> MessageId:
    return MessageId(uuid4())
