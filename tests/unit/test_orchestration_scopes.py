"""`scope` with its compensations and its time, and cancelling an instance."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from branching import HOUR, MINUTE, case, failed, partner, ran, tell, told
from crossdock import Process, Timeout
from crossdock.orchestration.history import Cancelled, Resumed, TimerFired
from crossdock.orchestration.run import Completed, Suspended


def test_a_scope_that_fails_is_undone_last_first_and_its_error_goes_on() -> None:
    async def code(process: Process) -> None:
        async with process.scope() as scope:
            scope.compensate(tell, process, "undo 1")
            scope.compensate(tell, process, "undo 2")
            await process.delay(MINUTE)
            raise ValueError("no")

    driver = ran(code)
    driver.evict()
    driver.fire()

    assert told(driver) == ["undo 2", "undo 1"]
    assert failed(driver).error == "ValueError: no"


def test_a_scope_that_completes_hands_its_compensations_to_the_one_around_it() -> None:
    async def code(process: Process) -> None:
        async with process.scope() as outer:
            outer.compensate(tell, process, "outer 1")
            async with process.scope() as inner:
                inner.compensate(tell, process, "inner 1")
                inner.compensate(tell, process, "inner 2")
            outer.compensate(tell, process, "outer 2")
            raise ValueError("no")

    assert told(ran(code)) == ["outer 2", "inner 2", "inner 1", "outer 1"]


def test_a_scope_within_a_branch_hands_its_compensations_to_the_scope_around_parallel() -> None:
    async def branch(process: Process, name: str, duration: timedelta) -> None:
        async with process.scope() as scope:
            scope.compensate(tell, process, name)
            await process.delay(duration)

    async def code(process: Process) -> None:
        async with process.scope():
            await process.parallel(branch(process, "a", HOUR), branch(process, "b", MINUTE))
            raise ValueError("no")

    driver = ran(code)
    driver.fire()
    driver.fire()

    assert told(driver) == ["a", "b"]


def test_a_scope_that_completed_is_not_undone_when_nothing_is_around_it() -> None:
    async def code(process: Process) -> None:
        async with process.scope() as scope:
            scope.compensate(tell, process, "undo")
        raise ValueError("no")

    assert told(ran(code)) == []


def test_a_compensation_may_wait_and_may_be_a_plain_function() -> None:
    seen: list[int] = []

    async def code(process: Process) -> None:
        try:
            async with process.scope() as scope:
                scope.compensate(seen.append, 1)
                scope.compensate(process.delay, MINUTE)
                raise ValueError("no")
        except ValueError:
            await tell(process, "caught")

    driver = ran(code)
    assert told(driver) == []
    driver.fire()

    assert told(driver) == ["caught"]
    assert seen[0] == 1


def test_a_compensation_that_fails_suspends_the_instance_and_is_tried_again_when_it_is_resumed() -> None:
    async def undo(process: Process) -> None:
        await process.request(partner, process.message("Undo", 1))

    async def code(process: Process) -> None:
        async with process.scope() as scope:
            scope.compensate(tell, process, "first")
            scope.compensate(undo, process)
            raise ValueError("no")

    driver = ran(code)
    driver.fail_request(1, "away")
    assert driver.state() == Suspended(
        f"The compensation 'undo' of the scope at test_orchestration_scopes.py:{code.__code__.co_firstlineno + 1} failed: "
        "DeliveryFailed: port 'Partner' gave up on the request: away",
        f"test_orchestration_scopes.py:{code.__code__.co_firstlineno + 1}",
    )
    driver.step(Cancelled())
    assert isinstance(driver.state(), Suspended)
    driver.evict()
    driver.step(Resumed())
    driver.respond(2)

    assert told(driver) == ["first"]
    assert driver.state() == Completed(cancelled=True)


def test_nothing_is_added_to_a_scope_that_has_ended() -> None:
    async def code(process: Process) -> None:
        async with process.scope() as scope:
            pass
        scope.compensate(tell, process, "late")

    assert (
        "nothing can be added to its compensations; write async with process.scope() as scope"
        in failed(ran(code)).error
    )


def test_a_call_instead_of_a_function_is_no_compensation() -> None:
    async def code(process: Process) -> None:
        async with process.scope() as scope:
            never = tell(process, "now")
            try:
                scope.compensate(never)  # type: ignore[arg-type]
            finally:
                never.close()

    assert "scope.compensate takes a function and its arguments" in failed(ran(code)).error


def timed() -> Any:
    async def branch(process: Process, name: str) -> None:
        async with process.scope() as scope:
            scope.compensate(tell, process, f"undo {name}")
            try:
                await process.request(partner, process.message("Ask", [name]), timeout=HOUR)
            except Timeout:
                await tell(process, "not the time of the request")

    async def code(process: Process) -> None:
        try:
            async with process.scope(timeout=MINUTE) as scope:
                scope.compensate(tell, process, "undo all")
                await process.parallel(branch(process, "a"), branch(process, "b"))
        except Timeout as error:
            await tell(process, str(error))

    return code


def test_a_scope_whose_time_is_over_is_undone_with_everything_in_it_and_raises_timeout() -> None:
    code = timed()
    driver = ran(code)
    driver.fire()

    line = f"test_orchestration_scopes.py:{code.__code__.co_firstlineno + 2}"
    assert told(driver) == ["undo a", "undo b", "undo all", f"the scope at {line} has not ended in time"]
    assert driver.state() == Completed()
    assert driver.timers == {}


def test_a_scope_that_ends_in_time_has_no_timer_any_more() -> None:
    driver = ran(timed())
    driver.respond(1)
    driver.respond(2)

    assert told(driver) == []
    assert driver.timers == {}
    assert driver.state() == Completed()


def test_the_time_of_an_outer_scope_that_is_over_while_an_inner_one_is_undone_counts_afterwards() -> None:
    async def code(process: Process) -> None:
        try:
            async with process.scope(timeout=MINUTE):
                try:
                    async with process.scope() as inner:
                        inner.compensate(process.delay, HOUR)
                        raise ValueError("no")
                except ValueError:
                    await tell(process, "not reached: the outer time is over")
        except Timeout:
            await tell(process, "time is over")

    driver = ran(code)
    driver.fire()
    assert told(driver) == []
    driver.fire()

    assert told(driver) == ["time is over"]


def test_a_stale_timer_is_passed_over() -> None:
    driver = ran(timed())
    driver.fire()
    before = driver.state()
    driver.step(TimerFired(1), TimerFired(99))

    assert driver.state() == before


def test_a_cancelled_instance_compensates_and_ends() -> None:
    async def code(process: Process) -> None:
        async with process.scope() as scope:
            scope.compensate(tell, process, "undo")
            try:
                await process.receive(case)
            except Exception:
                await tell(process, "an error of the code is not meant")

    driver = ran(code)
    driver.evict()
    driver.step(Cancelled())

    assert told(driver) == ["undo"]
    assert driver.state() == Completed(cancelled=True)


@pytest.mark.parametrize("verb", ["parallel", "listen"])
def test_every_branch_of_a_cancelled_instance_compensates(verb: str) -> None:
    async def branch(process: Process, name: str) -> None:
        async with process.scope() as scope:
            scope.compensate(tell, process, f"undo {name}")
            scope.compensate(process.delay, MINUTE)
            await process.suspend("wait")

    async def code(process: Process) -> None:
        await getattr(process, verb)(branch(process, "a"), branch(process, "b"))
        await tell(process, "not reached")

    driver = ran(code)
    driver.step(Cancelled())
    driver.step(Cancelled())
    driver.fire()
    driver.fire()

    assert told(driver) == ["undo a", "undo b"]
    assert driver.state() == Completed(cancelled=True)


def test_a_cancelled_instance_forgets_the_atomic_function_it_wanted() -> None:
    async def code(process: Process) -> None:
        await process.atomic(abs, 1)

    driver = ran(code)
    driver.step(Cancelled())

    assert driver.state() == Completed(cancelled=True)


def test_one_scope_is_entered_once_at_a_time() -> None:
    async def code(process: Process) -> None:
        scope = process.scope()
        async with scope, scope:
            pass

    assert "the scope is open already" in failed(ran(code)).error
