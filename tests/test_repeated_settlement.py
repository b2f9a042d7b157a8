"""An outcome whose record was made, but whose answer was lost, is recorded again: that must not touch what came after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from box import NOW
from crossdock.errors import TransientError
from crossdock.host.outcome import Complete, Outcome, Postpone, Retry, Suspend
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import LineOutcome, Reference
from express import claim, deploy, kinds, living, port, rows, unbalanced
from service import Partner, publish_named, running, settled
from walk import until

pytestmark = pytest.mark.usefixtures("quick_upkeep")


class ForgetfulAgent(Agent):
    """Does what `verb` says, and then loses the answer to it, once: not before `then` has happened."""

    verb = ""
    looked = 0

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.then: Callable[[], object] = lambda: None
        self.repeated = Event()
        self._forgot = False

    def retry(self, *given: Any, **more: Any) -> None:
        super().retry(*given, **more)
        self._forget("retry", given[2])

    def postpone(self, *given: Any, **more: Any) -> None:
        super().postpone(*given, **more)
        self._forget("postpone", given[2])

    def suspend(self, *given: Any, **more: Any) -> None:
        super().suspend(*given, **more)
        self._forget("suspend", given[2])

    def settle_line(self, *given: Any, **more: Any) -> None:
        super().settle_line(*given, **more)
        self._forget("settle_line", True)

    def dequeue_ordered(self, *given: Any, **more: Any) -> list[Reference]:
        found = super().dequeue_ordered(*given, **more)
        self.looked += 1
        return found

    def _forget(self, verb: str, outcomes: object) -> None:
        if verb != self.verb or not outcomes:
            return
        if self._forgot:
            self.repeated.set()
            return
        self._forgot = True
        self.then()
        raise TransientError("The connection is lost.")


@pytest.fixture
def forgetful(database: str) -> Iterator[ForgetfulAgent]:
    with ForgetfulAgent(database) as made:
        yield made


@pytest.mark.parametrize("verb", ["retry", "postpone", "suspend"])
def test_reference_that_is_at_work_again_is_not_settled_by_what_came_of_it_before(
    forgetful: ForgetfulAgent, database: str, verb: str
) -> None:
    again = Event()
    outcomes: dict[str, Outcome] = {"retry": Retry(NOW, "d"), "postpone": Postpone(NOW, "w"), "suspend": Suspend("r")}
    first = iter([outcomes[verb]])

    def answer(_: str, __: int) -> Outcome:
        if (outcome := next(first, None)) is not None:
            return outcome
        again.set()
        assert forgetful.repeated.wait(20)
        return Complete()

    def then() -> None:
        if verb == "suspend":
            assert kinds(forgetful) == [("send", "A")]
            forgetful.resume_deliveries([row.id for row in forgetful.suspended()])
        assert again.wait(20)

    forgetful.verb, forgetful.then = verb, then
    deploy(forgetful, port("A", "Region = 'NO'"))
    publish_named(forgetful, "m")
    partner = Partner(answer)

    with running(forgetful, partner):
        until(lambda: "m" in partner.got and settled(forgetful), 30)

    assert partner.attempts == [("m", 0), ("m", 1 if verb == "retry" else 0)]
    assert (forgetful.statistics().ports, forgetful.statistics().waiting, kinds(forgetful)) == ({"A": 1}, 0, [])
    assert unbalanced(database) == []


def test_line_that_is_at_work_again_is_not_given_up_by_what_came_of_it_before(
    forgetful: ForgetfulAgent, database: str
) -> None:
    def answer(_: str, attempt: int) -> Outcome:
        if attempt == 0:
            return Retry(NOW, "down")
        assert forgetful.repeated.wait(20)
        return Complete()

    def then() -> None:
        enough = forgetful.looked + 5
        until(lambda: forgetful.looked >= enough, 20)

    forgetful.verb, forgetful.then = "settle_line", then
    deploy(forgetful, port("Line", "Region = 'NO'", ordered=True))
    publish_named(forgetful, "m")
    partner = Partner(answer)

    with running(forgetful, partner):
        until(lambda: "m" in partner.got and settled(forgetful), 30)

    assert partner.attempts == [("m", 0), ("m", 1)]
    assert rows(database, "SELECT held_by FROM ordered_line") == [(None,)]
    assert unbalanced(database) == []


def test_claims_of_one_instance_are_told_apart(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "m")
    host = agent.hosts()["Default"]
    with living(agent) as life:
        [before] = claim(agent, life, limit=1)
        agent.give_back(host, life.instance, [before.sequence])
        [now] = claim(agent, life)
        old, new = ({each.sequence: each.claim} for each in (before, now))
        later = [(now.sequence, NOW + timedelta(minutes=5), "down")]

        agent.retry(host, life.instance, later, claims=old, now=NOW)
        agent.suspend(host, life.instance, [(now.sequence, "refused")], claims=old, now=NOW)
        assert (agent.statistics().claimed, agent.statistics().waiting) == (1, 0)
        agent.retry(host, life.instance, later, claims=new, now=NOW)

    assert (agent.statistics().claimed, agent.statistics().waiting) == (0, 1)
    assert unbalanced(database) == []


def test_line_that_is_settled_again_after_it_was_taken_anew_is_left_alone(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'", ordered=True))
    publish_named(agent, "m1", "m2")
    host = agent.hosts()["Default"]
    with living(agent) as life:
        before = agent.dequeue_ordered(host, life.instance, limit=10, now=NOW)
        outcome = LineOutcome(
            untried=[each.sequence for each in before], claims={each.sequence: each.claim for each in before}
        )
        agent.settle_line(host, life.instance, before[0].line, outcome, now=NOW)
        now = agent.dequeue_ordered(host, life.instance, limit=10, now=NOW)

        agent.settle_line(host, life.instance, before[0].line, outcome, now=NOW)

        assert [each.sequence for each in now] == [each.sequence for each in before]
        assert agent.statistics().claimed == 2
        assert rows(database, "SELECT held_by FROM ordered_line") == [(life.instance,)]
    assert unbalanced(database) == []


def test_reference_that_was_claimed_and_delivered_twice_is_put_aside_once(agent: Agent, database: str) -> None:
    """A killed server may forget a claim; what is claimed again under the same life is delivered a second time."""
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "m1", "m2")
    host = agent.hosts()["Default"]
    with living(agent) as life:
        first, second = (each.sequence for each in claim(agent, life))
        twice = [(first, NOW + timedelta(minutes=n), f"attempt {n}") for n in (1, 2)]

        agent.retry(host, life.instance, twice, now=NOW)
        agent.suspend(host, life.instance, [(second, "refused"), (second, "refused again")], now=NOW)

    assert rows(database, "SELECT sequence, reason FROM scheduled") == [(first, "attempt 2")]
    assert rows(database, "SELECT sequence, reason FROM suspended") == [(second, "refused again")]
    assert unbalanced(database) == []
