"""The suite for pushed adapters accepts a good one, and finds every fault that is built into it here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from threading import Event, Lock, Thread
from typing import Any, TypeVar

import pytest

from crossdock.adapter.contract import PushedReceiveAdapter, Receiver
from crossdock.errors import TransientError
from crossdock.testing.pushed_conformance import PushedAdapterConformance

_Result = TypeVar("_Result")


class Desk:
    """Where partners hand in what they have, if a clerk is there."""

    clerk: Clerk | None = None


class Clerk:
    """The adapter: takes what is handed in at a desk."""

    answers = True

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.loop = asyncio.new_event_loop()
        self.work: set[Future[Any]] = set()
        self.beginning = Lock()  # what has begun must be known to whoever stops
        self.thread: Thread | None = None

    def start(self, receiver: Receiver) -> None:
        if self.desk.clerk is not None:
            raise TransientError("there is another clerk at the desk")
        self.receiver = receiver
        self.thread = Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.desk.clerk = self

    def close(self) -> None:
        if self.desk.clerk is self:
            self.desk.clerk = None

    def stop(self, seconds: float) -> None:
        self.close()
        thread, self.thread = self.thread, None
        if thread is not None:
            with self.beginning:
                begun = set(self.work)
            for left in wait(begun, seconds).not_done:
                left.cancel()
            self.loop.call_soon_threadsafe(self.loop.stop)
            thread.join()

    def do(self, work: Coroutine[Any, Any, _Result], otherwise: _Result) -> _Result:
        """In the thread of the partner, who waits."""
        with self.beginning:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self.work.add(future)
        try:
            return future.result(2)
        except (CancelledError, TimeoutError):
            return otherwise

    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        if not whole:
            return False
        try:
            await self.receiver.publish(body)
        except Exception:
            return False
        return True

    async def answer(self, body: bytes, gone: Event) -> bytes | None:
        try:
            response = await self.receiver.request(body, timeout=60)
        except Exception:
            return None
        response.lost() if gone.is_set() else response.sent()
        return response.body


class TellsBeforeItIsCommitted(Clerk):
    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        self.later = asyncio.ensure_future(super().take(body, whole=whole))
        return True


class TellsThatFailuresAreTaken(Clerk):
    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        await super().take(body, whole=whole)
        return True


class EndsWithAFailure(Clerk):
    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        taken = await super().take(body, whole=whole)
        if not taken:
            self.close()
        return taken


class TakesOneAfterTheOther(Clerk):
    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.lock = asyncio.Lock()

    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        async with self.lock:
            return await super().take(body, whole=whole)


class TakesHalves(Clerk):
    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        return await super().take(body if whole else body[: len(body) // 2])


class ChangesTheBody(Clerk):
    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        return await super().take(body.strip(), whole=whole)


class HandsOverTwice(Clerk):
    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        return await super().take(body, whole=whole) and await super().take(body, whole=whole)


class LosesWhatComesTogether(Clerk):
    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        return len(body) == 1 or await super().take(body, whole=whole)


class GoesOnAfterStop(Clerk):
    def stop(self, seconds: float) -> None:
        """The partner is told so, and nobody has it."""

    async def take(self, body: bytes, *, whole: bool = True) -> bool:
        await super().take(body, whole=whole)
        return True


class KeepsThePlace(Clerk):
    def close(self) -> None:
        """Until it is stopped."""

    def stop(self, seconds: float) -> None:
        super().stop(seconds)
        self.desk.clerk = None


class DropsWhatIsInProgressAtClose(Clerk):
    def close(self) -> None:
        super().close()
        for each in self.work:
            each.cancel()


class StopsWithoutWaiting(Clerk):
    def stop(self, seconds: float) -> None:  # noqa: ARG002
        super().stop(0)


class WaitsForEver(Clerk):
    def stop(self, seconds: float) -> None:  # noqa: ARG002
        super().stop(60)


class PushesOthersAside(Clerk):
    def start(self, receiver: Receiver) -> None:
        self.desk.clerk = None
        super().start(receiver)


class TriesOnlyOnce(Clerk):
    failed = False

    def start(self, receiver: Receiver) -> None:
        self.failed = self.failed or self.desk.clerk is not None
        if self.failed:
            raise TransientError("there was another clerk at the desk")
        super().start(receiver)


class SaysItInManyLines(Clerk):
    def start(self, receiver: Receiver) -> None:
        if self.desk.clerk is not None:
            raise TransientError("there is another clerk\nat the desk")
        super().start(receiver)


class ComplainsOfASecondStop(Clerk):
    stopped = False

    def stop(self, seconds: float) -> None:
        assert not self.stopped
        self.stopped = self.thread is not None
        super().stop(seconds)


class NeverSaysWhatBecameOfAResponse(Clerk):
    async def answer(self, body: bytes, gone: Event) -> bytes | None:  # noqa: ARG002
        try:
            return (await self.receiver.request(body, timeout=60)).body
        except Exception:
            return None


class SaysItTwice(Clerk):
    async def answer(self, body: bytes, gone: Event) -> bytes | None:
        try:
            response = await self.receiver.request(body, timeout=60)
        except Exception:
            return None
        response.sent()
        response.lost() if gone.is_set() else response.sent()
        return response.body


class SaysSentThoughThePartnerIsGone(Clerk):
    async def answer(self, body: bytes, gone: Event) -> bytes | None:  # noqa: ARG002
        return await super().answer(body, Event())


class AnswersWithTheError(Clerk):
    async def answer(self, body: bytes, gone: Event) -> bytes | None:
        return await super().answer(body, gone) or b"it failed"


class AnswersWithTheRequest(Clerk):
    async def answer(self, body: bytes, gone: Event) -> bytes | None:
        return body if await super().answer(body, gone) else None


class TestClerk(PushedAdapterConformance):
    answers = True
    kind: Callable[[Desk], PushedReceiveAdapter] = Clerk

    @pytest.fixture(autouse=True)
    def _desk(self) -> None:
        self.desk = Desk()

    def make_adapter(self) -> PushedReceiveAdapter:
        return type(self).kind(self.desk)

    def push(self, body: bytes) -> bool:
        clerk = self.desk.clerk
        return clerk is not None and clerk.do(clerk.take(body), otherwise=False)

    def push_half(self, body: bytes) -> None:
        assert self.desk.clerk is not None
        self.desk.clerk.do(self.desk.clerk.take(body, whole=False), otherwise=False)

    def ask(self, body: bytes) -> bytes | None:
        clerk = self.desk.clerk
        return None if clerk is None else clerk.do(clerk.answer(body, Event()), otherwise=None)

    def ask_and_hang_up(self, body: bytes, asked: Event) -> None:
        assert self.desk.clerk is not None
        asyncio.run_coroutine_threadsafe(self.desk.clerk.answer(body, asked), self.desk.clerk.loop)
        asked.wait(self.deadline_seconds)


@pytest.mark.parametrize("faulty", Clerk.__subclasses__(), ids=lambda faulty: faulty.__name__)
def test_fault_is_found(faulty: type[Clerk]) -> None:
    suite = type("Faulty", (TestClerk,), {"kind": faulty, "deadline_seconds": 0.5})

    assert any(_fails(suite, name, given) for name, given in _cases(suite))


def _cases(suite: type[TestClerk]) -> Iterator[tuple[str, list[Any]]]:
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        marks = getattr(getattr(suite, name), "pytestmark", [])
        for given in marks[0].args[1] if marks else [None]:
            yield name, [] if given is None else [given]


def _fails(suite: type[TestClerk], name: str, given: list[Any]) -> bool:
    case = suite()
    case.desk = Desk()
    try:
        getattr(case, name)(*given)
    except (Exception, pytest.fail.Exception):
        return True
    return False
