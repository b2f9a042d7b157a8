"""An engine that lost its connection lives anew; what its threads have in hand is from both lives."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from uuid import UUID, uuid4

from crossdock.message.context import Context
from crossdock.message.message import Message, Part, message_id
from crossdock.messagebox.instance_rows import DueTimer
from crossdock.messagebox.rows import Reference, ServerTime
from crossdock.orchestration.engine import InstancesInHand

BEFORE, AFTER, LATER = 11, 12, 13


def reference(sequence: int, instance: UUID | None) -> Reference:
    message = Message(message_id(1, sequence, 0), Context({}), (Part("body", b""),))
    now = ServerTime(datetime.now(UTC), time.monotonic())
    return Reference(sequence, 1, 0, message, now, instance=instance)


def test_reference_is_handed_on_in_the_name_of_the_life_that_claimed_it() -> None:
    shared, instance = InstancesInHand(), uuid4()
    first, second, third, fourth = (reference(number, instance) for number in range(1, 5))

    assert shared.take(BEFORE, [first], []) == ([first], [])
    assert shared.take(AFTER, [second, third], []) == ([], [])
    assert shared.take(LATER, [fourth], []) == ([], [])

    assert shared.leave([first], []) == {AFTER: [second, third]}
    assert shared.leave([second, third], []) == {LATER: [fourth]}
    assert shared.leave([fourth], []) == {}
    assert shared.take(LATER, [first], []) == ([first], [])


def test_timers_of_an_instance_that_is_in_hand_wait() -> None:
    shared, instance, other = InstancesInHand(), uuid4(), uuid4()
    activation, message = reference(1, None), reference(2, instance)
    due = [DueTimer(each, 1, datetime.now(UTC), 0) for each in (instance, other)]

    assert shared.take(BEFORE, [activation, message], []) == ([activation, message], [])
    assert shared.take(AFTER, [], due) == ([], due[1:])

    assert shared.leave([activation, message], []) == {}
    assert shared.take(AFTER, [], due) == ([], due[:1])
