"""What every pushed adapter promises, as tests. Derive a class whose name starts with Test and fill in the hooks.

The hooks play the partner, who sends to the adapter and hears what became of it.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

from crossdock.adapter.contract import MAXIMUM_MESSAGES, PushedReceiveAdapter, Response, Taken
from crossdock.errors import DocumentError, GivenUpError, NoAnswerError, TerminalError, TransientError
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.message.property import Value

_THREADS = 8
_SOON_SECONDS = 0.5
_FAILURES = [TransientError("away"), DocumentError("no message"), TerminalError("too long"), ZeroDivisionError("a bug")]
_NO_ANSWERS = [NoAnswerError("nobody wants it"), GivenUpError("the partner failed"), TimeoutError()]


class PushedAdapterConformance(ABC):
    """Takes and hands over as `adapter/contract.py` says, whatever the partner and the receiver do."""

    answers = False
    """Whether it can be used by a two-way port; then fill in `ask` and `ask_and_hang_up`, too."""
    deadline_seconds = 20.0
    """What takes longer than this counts as never."""

    @abstractmethod
    def make_adapter(self) -> PushedReceiveAdapter:
        """A new adapter object for the same place, as another process would make it."""

    @abstractmethod
    def push(self, body: bytes) -> bool:
        """Send a body, and wait: whether the partner hears that it was taken. It does not if nobody listens."""

    @abstractmethod
    def push_half(self, body: bytes) -> None:
        """Send the first half of a body, and hang up."""

    def ask(self, body: bytes) -> bytes | None:
        """Send a body, and wait for the answer; None if the partner hears that there is none."""
        raise NotImplementedError

    def ask_and_hang_up(self, body: bytes, asked: threading.Event) -> None:
        """Send a body, and hang up when `asked` is set."""
        raise NotImplementedError

    @pytest.mark.parametrize("text", ["first", "zwölf €", ' a "b"\\c %MessageID% :name '])
    def test_body_is_handed_over_as_it_is(self, text: str) -> None:
        with self._running() as receiver:
            taken = self.push(text.encode())

        assert taken
        assert receiver.bodies == [text.encode()]

    def test_partner_is_not_told_before_the_message_is_committed(self) -> None:
        with ThreadPoolExecutor(1) as partner, self._running(holds=[b"first"]) as receiver:
            pushing = partner.submit(self.push, b"first")
            receiver.wait_for(b"first")
            told_before = self._ends_soon(pushing)
            receiver.go_on()

            assert (told_before, pushing.result(self.deadline_seconds)) == (False, True)

    def test_each_body_of_many_partners_is_handed_over_once(self) -> None:
        bodies = [b"%d" % number for number in range(5 * _THREADS)]

        with ThreadPoolExecutor(_THREADS) as partners, self._running() as receiver:
            taken = list(partners.map(self.push, bodies))

        assert taken == [True] * len(bodies)
        assert Counter(receiver.bodies) == Counter(bodies)

    def test_one_that_takes_long_does_not_hold_up_the_others(self) -> None:
        with ThreadPoolExecutor(1) as partner, self._running(holds=[b"slow"]) as receiver:
            slow = partner.submit(self.push, b"slow")
            receiver.wait_for(b"slow")
            quick = self.push(b"quick")
            receiver.go_on()

            assert (quick, slow.result(self.deadline_seconds)) == (True, True)

    @pytest.mark.parametrize("failure", _FAILURES, ids=lambda failure: type(failure).__name__)
    def test_partner_is_not_told_that_a_failure_was_taken_and_the_next_one_is_taken(self, failure: Exception) -> None:
        with self._running(fails={b"bad": failure}) as receiver:
            taken = [self.push(body) for body in (b"bad", b"good")]

        assert taken == [False, True]
        assert receiver.bodies == [b"bad", b"good"]

    def test_half_of_a_body_is_not_handed_over(self) -> None:
        with self._running() as receiver:
            self.push_half(b"first and more")
            self.push(b"second")

        assert receiver.bodies == [b"second"]

    def test_nothing_is_taken_before_start_and_after_stop(self) -> None:
        adapter, receiver = self.make_adapter(), Recorder()

        before = self.push(b"before")
        adapter.start(receiver)
        adapter.stop(self.deadline_seconds)
        after = self.push(b"after")

        assert (before, after, receiver.bodies) == (False, False, [])

    def test_what_is_in_progress_goes_on_while_another_listens(self) -> None:
        """A location is changed, or served by another process from now on."""
        with ThreadPoolExecutor(1) as partner, self._running(holds=[b"first"]) as receiver:
            pushing = partner.submit(self.push, b"first")
            receiver.wait_for(b"first")
            self._adapter.close()
            with self._running() as next_receiver:
                second = self.push(b"second")
            receiver.go_on()

            assert (pushing.result(self.deadline_seconds), second) == (True, True)
        assert (receiver.bodies, next_receiver.bodies) == ([b"first"], [b"second"])

    def test_stop_waits_for_what_is_in_progress(self) -> None:
        with ThreadPoolExecutor(2) as threads, self._running(holds=[b"first"]) as receiver:
            pushing = threads.submit(self.push, b"first")
            receiver.wait_for(b"first")
            stopping = threads.submit(self._adapter.stop, self.deadline_seconds)
            stopped_before = self._ends_soon(stopping)
            receiver.go_on()
            stopping.result(self.deadline_seconds)

            assert (stopped_before, pushing.result(self.deadline_seconds)) == (False, True)

    def test_stop_does_not_wait_for_ever(self) -> None:
        with ThreadPoolExecutor(2) as threads, self._running(holds=[b"first"]) as receiver:
            pushing = threads.submit(self.push, b"first")
            receiver.wait_for(b"first")
            threads.submit(self._adapter.stop, 0.1).result(self.deadline_seconds)

            assert pushing.result(self.deadline_seconds) is False

    def test_place_that_is_taken_is_worth_another_try(self) -> None:
        second, receiver = self.make_adapter(), Recorder()
        with self._running(), pytest.raises(TransientError) as raised:
            second.start(receiver)
        second.start(receiver)
        taken = self.push(b"first")
        second.stop(self.deadline_seconds)

        assert (taken, receiver.bodies) == (True, [b"first"])
        assert str(raised.value).strip()
        assert "\n" not in str(raised.value)

    def test_it_may_be_closed_and_stopped_at_any_time(self) -> None:
        adapter = self.make_adapter()

        adapter.close()
        adapter.stop(0)
        adapter.start(Recorder())
        adapter.close()
        adapter.close()
        adapter.stop(0)
        adapter.stop(0)

    def test_answer_is_the_response_which_is_sent_once(self) -> None:
        with self._asking() as receiver:
            answer = self.ask(b"first")
            receiver.wait_until_settled()

        assert answer == b"response to first"
        assert receiver.settled == ["sent"]

    @pytest.mark.parametrize("failure", [*_FAILURES, *_NO_ANSWERS], ids=lambda failure: type(failure).__name__)
    def test_partner_hears_that_there_is_no_answer_and_the_next_one_is_answered(self, failure: Exception) -> None:
        with self._asking(fails={b"bad": failure}):
            answers = [self.ask(body) for body in (b"bad", b"good")]

        assert answers == [None, b"response to good"]

    def test_response_is_lost_if_the_partner_has_hung_up(self) -> None:
        asked = threading.Event()
        with ThreadPoolExecutor(1) as partner, self._asking(holds=[b"first"]) as receiver:
            asking = partner.submit(self.ask_and_hang_up, b"first", asked)
            receiver.wait_for(b"first")
            asked.set()
            asking.result(self.deadline_seconds)
            self.ask(b"second")  # the adapter hears of the end of a connection before it hears of a new one
            receiver.go_on()
            receiver.wait_until_settled(2)

        assert sorted(receiver.settled) == ["lost", "sent"]

    def _ends_soon(self, future: Future[Any]) -> bool:
        return future in wait([future], _SOON_SECONDS).done

    @contextmanager
    def _running(
        self, *, two_way: bool = False, holds: Collection[bytes] = (), fails: Mapping[bytes, Exception] | None = None
    ) -> Iterator[Recorder]:
        receiver = Recorder(two_way=two_way, holds=holds, fails=fails, deadline_seconds=self.deadline_seconds)
        adapter = self._adapter = self.make_adapter()
        adapter.start(receiver)
        try:
            yield receiver
        finally:
            receiver.go_on()
            adapter.stop(self.deadline_seconds)

    @contextmanager
    def _asking(
        self, *, holds: Collection[bytes] = (), fails: Mapping[bytes, Exception] | None = None
    ) -> Iterator[Recorder]:
        if not self.answers:
            pytest.skip("it gives no answers")
        with self._running(two_way=True, holds=holds, fails=fails) as receiver:
            yield receiver


class Recorder:
    """A receiver that keeps what it is handed. It holds some bodies back until it may go on, and fails for others."""

    def __init__(
        self,
        *,
        two_way: bool = False,
        holds: Collection[bytes] = (),
        fails: Mapping[bytes, Exception] | None = None,
        deadline_seconds: float = 20.0,
    ) -> None:
        self.two_way = two_way
        self._deadline_seconds = deadline_seconds
        self.bodies: list[bytes] = []
        self.settled: list[str] = []
        self._holds = set(holds)
        self._fails = fails or {}
        self._held: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._changed = threading.Condition()

    async def publish(
        self,
        body: bytes,
        properties: Mapping[str, Value] | None = None,  # noqa: ARG002
        *,
        maximum_messages: int = MAXIMUM_MESSAGES,  # noqa: ARG002
    ) -> Taken:
        await self._handed(body)
        return Taken((_new_id(),))

    async def request(
        self,
        body: bytes,
        properties: Mapping[str, Value] | None = None,  # noqa: ARG002
        *,
        timeout: float,  # noqa: ARG002
    ) -> Response:
        try:
            await self._handed(body)
        except asyncio.CancelledError:
            self._settle("lost")
            raise
        content = b"response to " + body
        message = Message(_new_id(), Context(), (Part("body", content),))
        return Response(message, content, lambda: self._settle("sent"), lambda: self._settle("lost"))

    def wait_for(self, body: bytes) -> None:
        """Until it has been handed over."""
        with self._changed:
            assert self._changed.wait_for(lambda: body in self.bodies, self._deadline_seconds)

    def wait_until_settled(self, count: int = 1) -> None:
        """Until so many responses are sent or lost."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.settled) >= count, self._deadline_seconds)

    def go_on(self) -> None:
        """Hold back nothing any more."""
        with self._changed:
            held, self._held, self._holds = self._held, [], set()
        for loop, future in held:
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(_complete, future)

    async def _handed(self, body: bytes) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._changed:
            self.bodies.append(body)
            if body in self._holds:
                self._held.append((asyncio.get_running_loop(), future))
            else:
                future.set_result(None)
            self._changed.notify_all()
        await future
        if body in self._fails:
            raise self._fails[body]

    def _settle(self, how: str) -> None:
        with self._changed:
            self.settled.append(how)
            self._changed.notify_all()


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _new_id() -> MessageId:
    return MessageId(uuid4())
