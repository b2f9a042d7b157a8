"""Listers, publishers and whoever gives a source up meet at the ledger: each source is read once, and none is passed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from box import ids, source_of
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from interleave import PATIENCE_SECONDS, a_message, a_port, gate, places, publisher_before_its_commit, waiting
from walk import until


def test_source_that_a_slower_lister_has_entered_and_not_committed_is_claimed_later(
    agent: Agent, database: str, aside: ThreadPoolExecutor
) -> None:
    a_port(agent)
    location, host = ids(agent)
    claims = agent.ledger.claims()

    with gate(database, "AFTER INSERT ON intake") as closed, Agent(closed.database) as slow:
        first = aside.submit(slow.ledger.enter, [(location, b"first", 10)])
        closed.until_reached()
        second = aside.submit(agent.ledger.enter, [(location, b"second", 10)])
        until(lambda: second.done() or waiting(database) == 2, PATIENCE_SECONDS)
        read = claims.claim(host, items=10, size=1000)
        closed.open()
        assert (first.result(PATIENCE_SECONDS), second.result(PATIENCE_SECONDS)) == (1, 1)

    read += claims.claim(host, items=10, size=1000)
    claims.close()
    assert [item.identity for item in read] == [b"first", b"second"]


@pytest.mark.parametrize("messages", [1, 40])  # few are published in one round trip
def test_source_that_is_given_up_while_it_is_published_stays_in_the_ledger(
    agent: Agent, database: str, aside: ThreadPoolExecutor, messages: int
) -> None:
    a_port(agent)
    publication = a_message(agent, messages=messages)
    location, _ = ids(agent)

    with publisher_before_its_commit(agent, database, publication):
        abandoning = aside.submit(agent.ledger.abandon, [source_of(publication).sequence])
        until(lambda: abandoning.done() or waiting(database) == 1, PATIENCE_SECONDS)

    abandoning.result(PATIENCE_SECONDS)
    assert [identity for _, _, identity in agent.ledger.published(after=0)] == [b"a"]
    assert agent.ledger.enter([(location, b"a", 10)]) == 0  # listed as new, it would be published again
    assert places(database) == {"queued": messages}


@pytest.mark.parametrize("messages", [1, 40])
def test_source_that_is_published_while_it_is_given_up_is_published_once_by_its_next_number(
    agent: Agent, database: str, aside: ThreadPoolExecutor, messages: int
) -> None:
    a_port(agent)
    publication = a_message(agent, messages=messages)

    with gate(database, "AFTER DELETE ON intake") as closed, Agent(closed.database) as slow:
        abandoning = aside.submit(slow.ledger.abandon, [source_of(publication).sequence])
        closed.until_reached()
        publishing = aside.submit(agent.publish, [publication])
        until(lambda: publishing.done() or waiting(database) == 2, PATIENCE_SECONDS)
        closed.open()
        abandoning.result(PATIENCE_SECONDS)
    assert publishing.result(PATIENCE_SECONDS).publications == 0

    agent.publish([a_message(agent, messages=messages)])

    assert places(database) == {"queued": messages}


def test_range_that_would_leave_a_gap_or_overlap_is_not_published(agent: Agent, database: str) -> None:
    a_port(agent)
    whole = a_message(agent, messages=6)
    sequence = source_of(whole).sequence

    def published(start: int, end: int) -> int:
        return agent.publish([part(whole, start, end)]).published

    assert published(200, 400) == 0
    assert agent.ledger.progress(sequence) == (0, 0)
    assert published(0, 200) == 2
    assert [published(*range_) for range_ in [(400, 600), (100, 300), (0, 200), (201, 400)]] == [0, 0, 0, 0]
    assert agent.ledger.progress(sequence) == (200, 2)
    assert (published(200, 400), published(400, 600)) == (2, 2)

    assert places(database) == {"queued": 6}
    assert len(agent.ledger.published(after=0)) == 1


def part(whole: Publication, start: int, end: int) -> Publication:
    """A message for every hundred bytes from `start` to `end`; the source has as many as it has messages."""
    messages = whole.messages[start // 100 : end // 100]
    last = end == 100 * len(whole.messages)
    cause = replace(source_of(whole), start=start, end=end, last=last)
    return replace(whole, messages=messages, cause=cause)
