"""An outcome whose record was made, but whose answer was lost, is recorded again: that must not touch what came after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

import settling
from box import AT_ONCE
from crossdock.errors import TransientError
from crossdock.host.outcome import Complete, Outcome, Postpone, Retry, Suspend
from crossdock.message.publication import Publication, Settles
from crossdock.messagebox import settle
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import Reference
from express import a_message, at_ports, claim, deploy, kinds, living, port, rows, unbalanced
from service import Partner, publish_named, running, settled
from walk import until

pytestmark = pytest.mark.usefixtures("no_grace")


LOSES: Mapping[str, Callable[[settle.Settlement], bool]] = {
    "": lambda _: False,
    "retry": lambda outcome: isinstance(outcome, settle.Retry) and outcome.tried,
    "postpone": lambda outcome: isinstance(outcome, settle.Retry) and not outcome.tried,
    "suspend": lambda outcome: isinstance(outcome, settle.Suspend),
}


class ForgetfulAgent(Agent):
    """Does what `verb` says, and then loses the answer to it, once: not before `then` has happened."""

    verb = ""
    looked = 0

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.queues = ForgetfulQueues(self._database, self.messages)
        self.queues.agent = self
        self.then: Callable[[], object] = lambda: None
        self.repeated = Event()
        self._forgot = False

    def lose(self, outcomes: Sequence[settle.Settlement], *, leaves: bool) -> None:
        told = leaves if self.verb == "settle_subqueue" else any(map(LOSES[self.verb], outcomes))
        if not told:
            return
        if self._forgot:
            self.repeated.set()
            return
        self._forgot = True
        self.then()
        raise TransientError("The connection is lost.")


class ForgetfulQueues(Queues):
    agent: ForgetfulAgent

    def settle(self, *given: Any, **more: Any) -> None:
        super().settle(*given, **more)
        self.agent.lose(given[1], leaves=more.get("lease") is not None)

    def dequeue_ordered(self, *given: Any, **more: Any) -> list[Reference]:
        found = super().dequeue_ordered(*given, **more)
        self.agent.looked += 1
        return found


@pytest.fixture
def forgetful(database: str) -> Iterator[ForgetfulAgent]:
    with ForgetfulAgent(database) as made:
        yield made


@pytest.mark.parametrize("verb", ["retry", "postpone", "suspend"])
def test_reference_that_is_at_work_again_is_not_settled_by_what_came_of_it_before(
    forgetful: ForgetfulAgent, database: str, verb: str
) -> None:
    again = Event()
    outcomes: dict[str, Outcome] = {
        "retry": Retry(AT_ONCE, "d"),
        "postpone": Postpone(AT_ONCE, "w"),
        "suspend": Suspend("r"),
    }
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
            forgetful.suspended.resume([row.id for row in forgetful.suspended.messages()])
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
            return Retry(AT_ONCE, "down")
        assert forgetful.repeated.wait(20)
        return Complete()

    def then() -> None:
        enough = forgetful.looked + 5
        until(lambda: forgetful.looked >= enough, 20)

    forgetful.verb, forgetful.then = "settle_subqueue", then
    deploy(forgetful, port("Line", "Region = 'NO'", ordered=True))
    publish_named(forgetful, "m")
    partner = Partner(answer)

    with running(forgetful, partner):
        until(lambda: "m" in partner.got and settled(forgetful), 30)

    assert partner.attempts == [("m", 0), ("m", 1)]
    assert rows(database, "SELECT held_by FROM subqueue_lease") == [(None,)]
    assert unbalanced(database) == []


def test_claims_of_one_instance_are_told_apart(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "m")
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        [before] = claim(agent, life, limit=1)
        settling.give_back(agent, host, life.instance, [before.sequence])
        [now] = claim(agent, life)
        old, new = ({each.sequence: each.claim} for each in (before, now))
        later = [(now.sequence, timedelta(minutes=5), "down")]

        settling.retry(agent, host, life.instance, later, claims=old)
        settling.postpone(agent, host, life.instance, later, claims=old)
        settling.give_back(agent, host, life.instance, [now.sequence], claims=old)
        settling.suspend(agent, host, life.instance, [(now.sequence, "refused")], claims=old)
        assert (agent.statistics().claimed, agent.statistics().waiting) == (1, 0)
        settling.retry(agent, host, life.instance, later, claims=new)

    assert (agent.statistics().claimed, agent.statistics().waiting) == (0, 1)
    assert unbalanced(database) == []


def test_line_that_is_settled_again_after_it_was_taken_anew_is_left_alone(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'", ordered=True))
    publish_named(agent, "m1", "m2")
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        before = agent.queues.dequeue_ordered(host, life.instance, limit=10)
        outcome = settling.SubqueueOutcome(
            untried=[each.sequence for each in before], claims={each.sequence: each.claim for each in before}
        )
        settling.settle_subqueue(agent, host, life.instance, before[0].subqueue, outcome)
        now = agent.queues.dequeue_ordered(host, life.instance, limit=10)

        settling.settle_subqueue(agent, host, life.instance, before[0].subqueue, outcome)

        assert [each.sequence for each in now] == [each.sequence for each in before]
        assert agent.statistics().claimed == 2
        assert rows(database, "SELECT held_by FROM subqueue_lease") == [(life.instance,)]
    assert unbalanced(database) == []


def test_lease_is_given_up_where_everything_claimed_under_it_was_settled_by_what_was_published(
    agent: Agent, database: str
) -> None:
    deploy(agent, port("A", "Region = 'NO'", ordered=True), port("Answers", "Region = 'SE'"))
    publish_named(agent, "m")
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        [request] = agent.queues.dequeue_ordered(host, life.instance, limit=10)
        settles = Settles(host, life.instance, request.sequence)
        agent.publish([Publication(host, (a_message(agent, {"Region": "SE"}),), cause=settles)])

        agent.settle(life.instance, [], lease=request)

    assert rows(database, "SELECT held_by FROM subqueue_lease") == [(None,)]
    assert at_ports(agent) == {"Answers": 1}
    assert unbalanced(database) == []


def test_outcomes_of_one_call_are_recorded_together(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "m1", "m2", "m3", "m4", "m5")
    with living(agent) as life, living(agent) as other:
        delivered, failed, waits, refused = claim(agent, life, limit=4)
        [lost] = claim(agent, other)

        agent.settle(
            life.instance,
            [
                settle.Complete(delivered),
                settle.Retry(failed, timedelta(minutes=5), "down"),
                settle.GiveBack(waits),
                settle.Suspend(refused, "refused"),
                settle.Suspend(lost, "of another"),
            ],
        )

        assert rows(database, "SELECT sequence FROM claimed") == [(lost.sequence,)]
    assert rows(database, "SELECT sequence, attempt, reason FROM scheduled") == [(failed.sequence, 1, "down")]
    assert rows(database, "SELECT sequence, attempt, reason FROM suspended") == [(refused.sequence, 1, "refused")]
    assert rows(database, "SELECT sequence, attempt FROM queue") == [(waits.sequence, 0)]
    assert agent.statistics().ports == {"A": 1}
    assert unbalanced(database) == []


def test_reference_that_was_claimed_and_delivered_twice_is_put_aside_once(agent: Agent, database: str) -> None:
    """A killed server may forget a claim; what is claimed again under the same life is delivered a second time."""
    deploy(agent, port("A", "Region = 'NO'"))
    publish_named(agent, "m1", "m2")
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        first, second = (each.sequence for each in claim(agent, life))
        twice = [(first, timedelta(minutes=n), f"attempt {n}") for n in (1, 2)]

        settling.retry(agent, host, life.instance, twice)
        settling.suspend(agent, host, life.instance, [(second, "refused"), (second, "refused again")])

    assert rows(database, "SELECT sequence, reason FROM scheduled") == [(first, "attempt 2")]
    assert rows(database, "SELECT sequence, reason FROM suspended") == [(second, "refused again")]
    assert unbalanced(database) == []


@pytest.mark.parametrize("many", [1, 40])  # few are published in one round trip
def test_answers_that_settle_the_same_reference_are_published_once_also_in_one_call(
    agent: Agent, database: str, many: int
) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("Answers", "Region = 'SE'"))
    publish_named(agent, "m")
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        [request] = claim(agent, life)
        settles = Settles(host, life.instance, request.sequence)
        answers = [
            Publication(host, tuple(a_message(agent, {"Region": "SE"}) for _ in range(many)), cause=settles)
            for _ in range(2)
        ]

        published = [agent.publish(answers).published, agent.publish(answers[1:]).published]

    assert published == [many, 0]
    assert at_ports(agent) == {"Answers": many}
    assert unbalanced(database) == []
