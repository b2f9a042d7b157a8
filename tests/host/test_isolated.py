"""Isolated instances: no response is stranded between its claim and the client, whatever fails for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from crossdock.application.pushed import PushedLocations
from crossdock.errors import TransientError
from crossdock.host.isolated import IsolatedInstance
from crossdock.host.limits import HostLimits
from crossdock.host.publisher import Publisher
from crossdock.message.property import TOKEN
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.settle import Settlement
from crossdock.messagebox.subscriptions import Subscriptions
from express import a_message, deploy, port, publish, rows
from walk import until


class UnluckyAgent(Agent):
    """Loses its connection once, at the verb that `fails` names."""

    fails: str | None = None

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.queues = UnluckyQueues(self._database, self.messages)
        self.subscriptions = UnluckySubscriptions(self._database)
        self.queues.fail = self.subscriptions.fail = self._fail

    def _fail(self, verb: str) -> None:
        if self.fails == verb:
            self.fails = None
            raise TransientError("The connection is lost.")


class UnluckyQueues(Queues):
    fail: Callable[[str], None]

    def dequeue_responses(self, host_id: int, instance: int, *, limit: int) -> list[Reference]:
        claimed = super().dequeue_responses(host_id, instance, limit=limit)
        if claimed:
            self.fail("dequeue_responses")
        return claimed

    def settle(self, host_instance: int, outcomes: Sequence[Settlement], *, lease: Reference | None = None) -> None:
        self.fail("settle")
        super().settle(host_instance, outcomes, lease=lease)


class UnluckySubscriptions(Subscriptions):
    fail: Callable[[str], None]

    def correlate(self, properties: Sequence[str]) -> int:
        self.fail("correlate")
        return super().correlate(properties)


@pytest.fixture
def agent(database: str, no_grace: None) -> Iterator[UnluckyAgent]:  # noqa: ARG001
    made = UnluckyAgent(database)
    with made:
        deploy(made, port("A", "Region = 'NO'"), port("Ask.response", waits=True))
        yield made


@contextmanager
def isolated(agent: Agent) -> Iterator[IsolatedInstance]:
    publisher = Publisher(agent)
    publisher.start()
    made = IsolatedInstance(
        agent,
        agent.configuration.hosts()["Default"],
        publisher,
        agent.configuration.waiting_services(),
        HostLimits(reconnect_seconds=0.05),
    )
    made.start()
    try:
        until(lambda: bool(rows(agent.database, "SELECT FROM host_instance")))
        yield made
    finally:
        made.stop()
        publisher.stop()


async def ask(agent: Agent, instance: IsolatedInstance, meanwhile: Callable[[], None], timeout: float = 20) -> None:
    """Send a request, answer it, and take the answer."""
    host = agent.configuration.hosts()["Default"]
    request = Publication(host, (a_message(agent, {"Region": "NO"}),))
    waiting = asyncio.create_task(instance.request(request, "Ask.response", timeout=timeout))
    await asyncio.to_thread(until, lambda: bool(rows(agent.database, "SELECT FROM queue")) or waiting.done())
    await asyncio.to_thread(meanwhile)
    (await waiting).sent()


def answer(agent: UnluckyAgent, *, fails: str) -> None:
    [reference] = agent.queues.dequeue(agent.configuration.hosts()["Default"], 0, limit=10)
    agent.fails = fails
    token = reference.message.context.get(TOKEN)
    assert token is not None
    publish(agent, {TOKEN: token})


def stranded(agent: Agent) -> list[tuple[Any, ...]]:
    claimed = rows(agent.database, "SELECT sequence FROM claimed WHERE subqueue < 0")
    return claimed + rows(agent.database, "SELECT id FROM instance_subscription")


def test_response_whose_claim_was_not_heard_of_is_suspended_and_the_client_told_at_once(agent: UnluckyAgent) -> None:
    with isolated(agent) as instance:
        with pytest.raises(TransientError):
            asyncio.run(ask(agent, instance, lambda: answer(agent, fails="dequeue_responses")))
        host = agent.configuration.hosts()["Default"]

        def released() -> bool:
            agent.queues.release_dead(host)  # again and again: the old life may end a moment later
            return stranded(agent) == []

        until(released)
        assert [each.kind for each in agent.suspended.messages()] == ["response"]


def test_what_became_of_a_response_is_recorded_once_the_messagebox_is_back(agent: UnluckyAgent) -> None:
    with isolated(agent) as instance:
        asyncio.run(ask(agent, instance, lambda: answer(agent, fails="complete")))

        until(lambda: stranded(agent) == [])
        assert agent.suspended.messages() == []


def test_request_is_published_by_a_process_that_published_before_anybody_waited(agent: UnluckyAgent) -> None:
    publish(agent, {"Region": "SE"})  # the agent has a router that knows of no correlation

    with isolated(agent) as instance, pytest.raises(TimeoutError):
        asyncio.run(ask(agent, instance, lambda: None, timeout=0.1))


def test_request_that_is_not_published_in_time_is_given_up_and_leaves_nothing_waiting(agent: UnluckyAgent) -> None:
    host = agent.configuration.hosts()["Default"]
    first, second = (Publication(host, (a_message(agent, {"Region": "NO"}),)) for _ in range(2))

    async def ask_in_vain(instance: IsolatedInstance) -> None:
        with pytest.raises(TimeoutError):
            await instance.request(first, "Ask.response", timeout=0.1)
        await asyncio.to_thread(until, lambda: waits_for_a_lock(agent.database))
        with pytest.raises(TimeoutError):
            await instance.request(second, "Ask.response", timeout=0.1)

    with isolated(agent) as instance:
        with psycopg.connect(agent.database) as other:
            other.execute("LOCK TABLE crossdock.message")
            asyncio.run(asyncio.wait_for(ask_in_vain(instance), 60))

        until(lambda: bool(rows(agent.database, "SELECT FROM queue")))
        until(lambda: stranded(agent) == [])
        instance._publisher.publish(Publication(host, (a_message(agent, {"Region": "NO"}),)))
        published = {id_ for (id_,) in rows(agent.database, "SELECT id FROM message")}
        assert (first.messages[0].id in published, second.messages[0].id in published) == (True, False)


def test_response_that_comes_when_nobody_waits_any_more_is_suspended_and_not_counted_as_delivered(
    agent: UnluckyAgent,
) -> None:
    async def ask_and_hang_up(instance: IsolatedInstance, other: psycopg.Connection) -> None:
        request = Publication(agent.configuration.hosts()["Default"], (a_message(agent, {"Region": "NO"}),))
        waiting = asyncio.create_task(instance.request(request, "Ask.response", timeout=60))
        await asyncio.to_thread(until, lambda: bool(rows(agent.database, "SELECT FROM queue")))
        # That nobody waits any more is known here, and cannot be recorded yet.
        other.execute("SELECT FROM crossdock.instance_subscription FOR KEY SHARE")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with isolated(agent) as instance:
        with psycopg.connect(agent.database) as other:
            asyncio.run(ask_and_hang_up(instance, other))
            answer(agent, fails="nothing")
            until(lambda: bool(rows(agent.database, "SELECT FROM claimed WHERE subqueue < 0")))

        until(lambda: stranded(agent) == [])
        [row] = agent.suspended.messages()
        assert (row.kind, row.reason.partition(":")[0]) == ("response", "Nobody waits for this response any more")
        assert agent.statistics().delivered == 0


def test_response_that_its_client_did_not_take_is_suspended_and_not_counted_as_delivered(agent: UnluckyAgent) -> None:
    async def ask_and_lose(instance: IsolatedInstance) -> None:
        request = Publication(agent.configuration.hosts()["Default"], (a_message(agent, {"Region": "NO"}),))
        waiting = asyncio.create_task(instance.request(request, "Ask.response", timeout=60))
        await asyncio.to_thread(until, lambda: bool(rows(agent.database, "SELECT FROM queue")))
        await asyncio.to_thread(answer, agent, fails="nothing")
        (await waiting).lost()

    with isolated(agent) as instance:
        asyncio.run(ask_and_lose(instance))

        until(lambda: stranded(agent) == [])
        [row] = agent.suspended.messages()
        assert (row.kind, row.reason) == ("response", "The client hung up before it had the response.")
        assert agent.statistics().delivered == 0


def waits_for_a_lock(database: str) -> bool:
    return bool(rows(database, "SELECT FROM pg_locks WHERE NOT granted"))


def test_instance_that_could_not_be_started_is_started_the_next_time(agent: UnluckyAgent) -> None:
    servers = PushedLocations(agent)
    servers.start()
    agent.fails = "correlate"

    with pytest.raises(TransientError):
        servers._responder(agent.configuration.hosts()["Default"])
    servers._responder(agent.configuration.hosts()["Default"])

    until(lambda: bool(rows(agent.database, "SELECT FROM host_instance")))
    servers.stop()
