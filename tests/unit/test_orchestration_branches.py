"""`listen` and `parallel`: branches take turns, the same in every replay."""

from __future__ import annotations

from datetime import timedelta

from branching import HOUR, MINUTE, case, failed, partner, ran, tell, told
from crossdock import DeliveryFailed, Process
from crossdock.orchestration.run import AtomicWanted, Completed, Waiting


def test_listen_gives_the_number_and_the_value_of_what_ends_first() -> None:
    async def code(process: Process) -> None:
        index, value = await process.listen(
            process.receive(case, type="Note"), process.delay(MINUTE), process.receive(case)
        )
        await tell(process, [index, value.json() if value else None])

    by_message, by_time, by_note = ran(code), ran(code), ran(code)
    by_message.arrive("case", "Payment", 5)
    by_time.fire()
    by_note.arrive("case", "Note", 6)

    assert (told(by_message), told(by_time), told(by_note)) == ([[2, 5]], [[1, None]], [[0, 6]])
    assert by_message.timers == by_note.timers == {}


def test_what_listen_waits_for_is_shown_together() -> None:
    async def code(process: Process) -> None:
        await process.listen(process.receive(case, type="Note"), process.delay(MINUTE))

    state = ran(code).state()

    assert isinstance(state, Waiting)
    assert state.what == "receive Note of case; delay until 2026-01-01T00:01:01+00:00"
    assert state.line == f"test_orchestration_branches.py:{code.__code__.co_firstlineno + 1}"


def test_losers_of_listen_are_left_where_they_wait() -> None:
    seen: list[str] = []

    async def loser(process: Process) -> None:
        try:
            async with process.scope(timeout=HOUR) as scope:
                scope.compensate(tell, process, "undone")
                await process.listen(process.receive(case, type="Note"), process.delay(HOUR))
        finally:
            seen.append("left")
            await tell(process, "finally")
            seen.append("never")

    async def code(process: Process) -> None:
        await process.listen(loser(process), process.delay(MINUTE))
        await tell(process, "after")
        payment = await process.receive(case, type="Note")
        await tell(process, payment.json())

    driver = ran(code)
    driver.fire()
    assert driver.timers == {}
    driver.arrive("case", "Note", 1)

    assert told(driver) == ["after", 1]
    assert "never" not in seen
    assert driver.state() == Completed()


def test_listen_raises_what_the_first_to_end_raises() -> None:
    async def code(process: Process) -> None:
        try:
            await process.listen(process.request(partner, process.message("Ask", 1)), process.delay(MINUTE))
        except DeliveryFailed as error:
            await tell(process, str(error))

    driver = ran(code)
    driver.fail_request(1, "no")

    assert told(driver) == ["port 'Partner' gave up on the request: no"]


def test_an_awaitable_that_ends_at_once_wins_before_the_next_one_begins() -> None:
    async def code(process: Process) -> None:
        await tell(process, [*await process.listen(tell(process, "first"), tell(process, "second"))])

    assert told(ran(code)) == ["first", [0, None]]


def test_the_loser_of_a_request_can_be_asked_again() -> None:
    async def code(process: Process) -> None:
        await process.listen(process.request(partner, process.message("Ask", 1)), process.delay(MINUTE))
        answer = await process.request(partner, process.message("Ask", 2))
        await tell(process, answer.json())

    driver = ran(code)
    driver.fire()
    driver.respond(1, body=0)
    driver.respond(2, body=7)

    assert told(driver) == [7]


def test_parallel_runs_its_branches_in_turns_and_gives_their_values_in_order() -> None:
    async def branch(process: Process, name: str, duration: timedelta) -> str:
        await tell(process, f"{name} begins")
        await process.delay(duration)
        await tell(process, f"{name} ends")
        return name

    async def code(process: Process) -> None:
        both = await process.parallel(branch(process, "a", HOUR), branch(process, "b", MINUTE))
        await tell(process, list(both))
        await tell(process, list(await process.parallel()))

    driver = ran(code)
    driver.fire()
    driver.fire()

    assert told(driver) == ["a begins", "b begins", "b ends", "a ends", ["a", "b"], []]


def test_parallel_lets_every_branch_end_and_raises_the_first_error_in_order() -> None:
    async def branch(process: Process, name: str, duration: timedelta) -> None:
        await process.delay(duration)
        raise ValueError(name)

    async def code(process: Process) -> None:
        try:
            await process.parallel(process.delay(HOUR), branch(process, "a", 2 * MINUTE), branch(process, "b", MINUTE))
        except ValueError as error:
            await tell(process, [str(error), *error.__notes__])

    driver = ran(code)
    for _ in range(3):
        driver.fire()

    assert told(driver) == [["a", "Branch 2 failed too: ValueError: b"]]


def test_two_receives_of_one_set_are_served_in_the_order_in_which_they_began() -> None:
    async def branch(process: Process, name: str) -> None:
        message = await process.receive(case)
        await tell(process, [name, message.json()])

    async def code(process: Process) -> None:
        await process.parallel(branch(process, "a"), branch(process, "b"))

    driver = ran(code)
    driver.arrive("case", "Note", 1)
    driver.arrive("case", "Note", 2)

    assert told(driver) == [["a", 1], ["b", 2]]


def work(amount: int) -> int:
    return amount


def test_atomic_functions_of_branches_are_wanted_one_after_the_other() -> None:
    async def code(process: Process) -> None:
        await tell(process, list(await process.parallel(process.atomic(work, 1), process.atomic(work, 2))))

    driver = ran(code)
    wanted = driver.state()
    assert isinstance(wanted, AtomicWanted)
    assert wanted.number == 1
    driver.perform()
    driver.perform()

    assert told(driver) == [[1, 2]]


def test_the_same_awaitable_cannot_be_two_branches() -> None:
    async def code(process: Process) -> None:
        one = process.delay(MINUTE)
        await process.parallel(one, one)

    assert "it is given the same awaitable twice" in failed(ran(code)).error
