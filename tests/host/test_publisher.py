"""Publishing together what came in meanwhile: no transaction has more than a bounded number of messages or bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import UUID

import pytest

from crossdock.host.limits import HostLimits
from crossdock.host.publisher import Publisher
from crossdock.message.message import Part
from crossdock.message.publication import Express, Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Published
from express import a_message, deploy, port
from walk import until


class HeldAgent(Agent):
    """Begins when it is told to; remembers how many publications each transaction had."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.go = Event()
        self.together: list[int] = []

    def publish(self, publications: Sequence[Publication], *, location_epoch: UUID | None = None) -> Published:
        self.together.append(len(publications))
        assert self.go.wait(60)
        return super().publish(publications, location_epoch=location_epoch)


@pytest.fixture
def agent(database: str) -> Iterator[HeldAgent]:
    with HeldAgent(database) as made:
        deploy(made, port("A", "Region = 'NO'"))
        yield made


@pytest.mark.parametrize(
    ("size", "together"), [(10, [1, 5, 1]), (400, [1, 3, 3]), (5_000, [1] * 7)], ids=["small", "large", "huge"]
)
def test_transaction_is_bounded_by_messages_and_by_bytes(agent: HeldAgent, size: int, together: list[int]) -> None:
    messages = [a_message(agent, {"Region": "NO"}, parts=[Part("body", b"x" * size)]) for _ in range(7)]
    publications = [Publication(agent.configuration.hosts()["Default"], (message,)) for message in messages]
    publisher = Publisher(agent, HostLimits(published_together=5, published_bytes=1_000))
    publisher.start()

    with ThreadPoolExecutor(7) as askers:
        first = askers.submit(publisher.publish, publications[0])
        until(lambda: agent.together == [1])
        others = [askers.submit(publisher.publish, each) for each in publications[1:]]
        until(lambda: publisher._asked.qsize() == 6)
        agent.go.set()
        for each in [first, *others]:
            each.result(60)
    publisher.stop()

    assert agent.together == together


def test_location_has_no_room_while_much_of_it_waits_to_be_published(agent: HeldAgent) -> None:
    messages = tuple(a_message(agent, {"Region": "NO"}) for _ in range(10))
    publication = Publication(agent.configuration.hosts()["Default"], messages, cause=Express(7))
    publisher = Publisher(agent, HostLimits(unpublished_bytes=60_000))
    publisher.start()

    assert publisher.has_room(7)
    first = publisher.submit(publication)
    until(lambda: agent.together == [1])
    second = publisher.submit(publication)
    assert (publisher.has_room(7), publisher.has_room(8)) == (False, True)
    assert second.cancel()
    assert publisher.has_room(7)
    agent.go.set()
    first.result(60)
    publisher.stop()

    assert publisher._unpublished == {}


def test_transaction_has_not_the_messages_of_very_many_bodies(agent: HeldAgent) -> None:
    host = agent.configuration.hosts()["Default"]
    bodies = [Publication(host, tuple(a_message(agent, {"Region": "NO"}) for _ in range(10))) for _ in range(5)]
    publisher = Publisher(agent, HostLimits(published_messages=20))
    publisher.start()

    first = publisher.submit(bodies[0])
    until(lambda: agent.together == [1])
    others = [publisher.submit(each) for each in bodies[1:]]
    agent.go.set()
    for each in [first, *others]:
        each.result(60)
    publisher.stop()

    assert agent.together == [1, 2, 2]
