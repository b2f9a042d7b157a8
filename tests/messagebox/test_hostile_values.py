"""Values that a sender chooses so that much work comes of them: to publish them takes no longer than others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal

import pytest

from crossdock.maintenance.tracking import PackTrack
from crossdock.message.message import Message
from crossdock.messagebox import cleanup
from crossdock.messagebox.agent import Agent
from crossdock.subscription.predicate import Filter, Operator, Predicate
from express import a_message, deploy, port, publish, rows

MANY = 20_000
_PRIME = 2**61 - 1  # Python's hash of a number is what is left when it is divided by this


def of_one_hash(count: int) -> list[Decimal]:
    return [Decimal(number * _PRIME).scaleb(-18) for number in range(1, count + 1)]


def seconds(agent: Agent, messages: Sequence[Message]) -> float:
    """How long it takes to publish these, in one transaction."""
    began = time.monotonic()
    publish(agent, *messages)
    return time.monotonic() - began


def amounts(agent: Agent, values: Sequence[Decimal]) -> list[Message]:
    return [a_message(agent, {"Amount": value}) for value in values]


def amount_is(value: Decimal) -> Filter:
    return Filter(((Predicate("Amount", Operator.EQUAL, value),),))


def test_decimals_of_one_hash_are_tracked_as_quickly_as_others(agent: Agent) -> None:
    deploy(agent, port("All", "EXISTS(Amount)"))
    hostile = of_one_hash(MANY)
    assert len(set(map(hash, hostile))) == 1
    plain = seconds(agent, amounts(agent, [Decimal(number).scaleb(-2) for number in range(MANY)]))

    assert seconds(agent, amounts(agent, hostile)) < 3 * plain + 1

    [found] = agent.track.search(amount_is(hostile[7]), limit=10).messages
    assert found.context["promoted"]["Amount"] == {"decimal": str(hostile[7])}


def test_decimals_of_one_hash_that_come_a_few_at_a_time_are_packed_as_quickly_as_others(agent: Agent) -> None:
    deploy(agent, port("All", "EXISTS(Amount)"))
    hostile = of_one_hash(160)
    for start in range(0, len(hostile), 16):
        publish(agent, *amounts(agent, hostile[start : start + 16]))

    PackTrack(agent).run_once()

    assert len(agent.track.search(amount_is(hostile[100]), limit=10).messages) == 1


def test_messages_that_labels_keep_from_everybody_are_explained_as_quickly_as_others(agent: Agent) -> None:
    deploy(agent, port("Bare", "Region = 'NO'"), hosts={"Vault": ["secret"]})
    plain = seconds(agent, [a_message(agent, {"Region": "SE"}) for _ in range(MANY)])
    labelled = [a_message(agent, {"Region": "NO"}, labels=["secret"]) for _ in range(MANY)]

    assert seconds(agent, labelled) < 3 * plain + 1

    [found] = agent.track.find([labelled[7].id])
    assert (found.code, found.reason) == (
        "label-missing",
        "No subscription matches: Bare would, but the host lacks the label secret.",
    )


def test_what_came_a_few_at_a_time_is_packed_in_pieces_of_bounded_size(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(agent, port("All", "EXISTS(Amount)"))
    large = [a_message(agent, {"Amount": Decimal(n)}, written={"Note": "x" * 20_000}) for n in range(10)]
    small = [a_message(agent, {"Amount": Decimal(n)}) for n in range(30)]
    for message in large + small:
        publish(agent, message)
    monkeypatch.setattr(cleanup, "_PACKED_BYTES", 50_000)

    assert agent.cleanup.pack_track() == 40

    packed = rows(agent.database, "SELECT messages FROM track_published ORDER BY messages")
    assert (packed, rows(agent.database, "SELECT count(*) FROM track_few")) == ([(3,), (3,), (3,), (31,)], [(0,)])
    assert len(agent.track.find([each.id for each in large + small])) == 40
