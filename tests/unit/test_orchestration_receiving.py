"""What an instance receives: by correlation sets that get their values once, by type, and in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from crossdock import (
    Message,
    Process,
    Receive,
    orchestration,
)
from crossdock.orchestration.declare import Orchestration
from crossdock.orchestration.run import Completed
from orchestrating import Driver
from verbs import body_of, case, failed, line_of, other, out


def receiving() -> Orchestration:
    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await process.delay(until=process.now() + timedelta(minutes=1))
        note = await process.receive(case, type="Note")
        first = await process.receive(case)
        second = await process.receive(case, timeout=timedelta(minutes=1))
        await process.send(out, body_of(process, got=[each and each.json() for each in (note, first, second)]))

    return code


def test_messages_wait_in_the_inbox_until_they_are_asked_for_by_type_or_in_order() -> None:
    driver = Driver(receiving())
    driver.activate(OrderId="A")
    for kind, number in (("Payment", 1), ("Note", 2), ("Payment", 3)):
        assert driver.arrive("case", kind, number).taken == []
    driver.evict()
    stepped = driver.fire()

    assert driver.sends[-1][2] == {"got": [2, 1, 3]}
    assert len(stepped.taken) == 3
    assert (stepped.timers, stepped.cancelled_timers) == ([], [])


def test_a_receive_with_a_time_gives_none_when_it_is_over() -> None:
    driver = Driver(receiving())
    driver.activate(OrderId="A")
    driver.fire()
    driver.arrive("case", "Payment", 1)
    driver.arrive("case", "Note", 2)
    driver.fire()

    assert driver.sends[-1][2] == {"got": [2, 1, None]}


def test_a_replay_loads_only_what_the_code_has_taken() -> None:
    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await process.delay(timedelta(minutes=1))
        await process.receive(case)

    driver = Driver(code, replay=False)
    driver.activate(OrderId="A")
    driver.arrive("case", "Payment", 1)
    driver.tools.loaded.clear()
    driver.evict()

    assert len(driver.tools.loaded) == 1


def test_a_set_is_initialized_by_a_send_which_promotes_its_properties() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, process.message("Invoice", 1, promote={"InvoiceId": "I1"}), initializes=other)
        receipt = await process.receive(other)
        await process.send(out, receipt)

    driver = Driver(code)
    stepped = driver.activate()
    driver.arrive("other", "Receipt", 1)

    assert stepped.subscribes == [(other, {"InvoiceId": "I1"})]
    assert stepped.sends[0].initializes == (other,)
    assert driver.state() == Completed()


def test_a_set_is_initialized_once() -> None:
    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None:
        await process.send(out, order, initializes=case)

    driver = Driver(code)
    driver.activate(OrderId="A")

    assert failed(driver).error == (
        f"Orchestration 'code', step 1, {line_of(code, 1)}: the set 'case' is initialized already; a set gets its values once"
    )
    assert failed(driver).line == line_of(code, 1)
    assert failed(driver).code == "orchestration-misused"


def test_a_receive_on_a_set_without_values_is_refused() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.receive(case)

    driver = Driver(code)
    driver.activate()

    assert failed(driver).error == (
        f"Orchestration 'code', step 1, {line_of(code, 1)}: the set 'case' is not initialized, so no message can follow it"
    )


def test_a_message_that_lacks_a_property_of_its_set_is_refused() -> None:
    @orchestration(Receive("Order", initializes=case))
    async def code(process: Process, order: Message) -> None: ...

    driver = Driver(code)
    driver.activate()

    line = f"test_orchestration_receiving.py:{code.function.__code__.co_firstlineno}"
    assert failed(driver).error == (
        f"Orchestration 'code', step 1, {line}: the message that initializes the set 'case' "
        "has no promoted property 'OrderId'"
    )


def test_a_time_may_be_given_in_any_zone() -> None:
    @orchestration(Receive("Order"))
    async def code(process: Process, order: Message) -> None:
        await process.delay(until=datetime(2026, 5, 1, tzinfo=UTC))

    driver = Driver(code)
    stepped = driver.activate()

    assert stepped.timers == [(1, datetime(2026, 5, 1, tzinfo=UTC))]
