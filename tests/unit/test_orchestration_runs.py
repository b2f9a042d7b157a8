"""What an engine keeps in memory is bounded, and threads may share it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from crossdock.orchestration.runs import SeenOnce


def a_reference(sequence: int) -> Any:
    return SimpleNamespace(sequence=sequence)


def test_every_second_look_at_a_reference_is_one_again() -> None:
    seen, instance = SeenOnce(), uuid4()

    looks = [seen.again(a_reference(1), instance) for _ in range(4)]

    assert looks == [False, True, False, True]
    assert not seen.again(a_reference(2), instance)
    assert not seen.again(a_reference(1), uuid4())


def test_references_that_never_come_again_are_forgotten() -> None:
    seen, instance = SeenOnce(most=10), uuid4()

    for sequence in range(1_000):
        seen.again(a_reference(sequence), instance)

    assert len(seen) == 10
    assert seen.again(a_reference(999), instance)
    assert not seen.again(a_reference(0), instance)


def test_of_two_threads_that_look_at_the_same_references_one_sees_each_again() -> None:
    seen, instance = SeenOnce(most=100_000), UUID(int=7)

    with ThreadPoolExecutor(4) as pool:
        looks = pool.map(lambda sequence: seen.again(a_reference(sequence % 5_000), instance), range(20_000))

    assert sum(looks) == 10_000
    assert len(seen) == 0
