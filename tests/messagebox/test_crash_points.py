"""Every crash point of the MessageBox: for each verb of the agent and each statement in it, the connection breaks there.

It breaks before the statement, or after it and before its answer. Then either the caller calls again, as it does when
PostgreSQL was away, or its process has ended and nobody does. In the end everything is recovered and delivered, and
the books say what they say where nothing broke; where nobody calls again they may also say that the verb never ran.

The verbs are taken from the code: one without a story here fails a test.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

import databases
from box import a_publication, an_orchestration, deployment, ids, listed
from breaking import BreakingWay, When, breaking_way
from crossdock.errors import CrossdockError, StepLostError, TransientError
from crossdock.maintenance.references import CleanReferences
from crossdock.message.publication import InPlaceOf, Publication, Settles
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.audit import Act
from crossdock.messagebox.instance_change import InstanceChange
from crossdock.messagebox.lifeline import Lifeline
from crossdock.messagebox.queues import ORCHESTRATIONS
from crossdock.messagebox.rows import Delivery, Reference
from crossdock.messagebox.settle import Complete, GiveBack, Hold, Retry, Settlement, Suspend
from crossdock.messagebox.step import Step
from express import a_message, publish, rows, unbalanced
from server_clock import shift_clock

INSTANCE = UUID(int=7)
DAY = timedelta(days=1)
BOTH: tuple[When, When] = ("before", "after")
SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
# All of them take ten minutes on an idle machine; `make soak TESTS=tests/messagebox/test_crash_points.py` goes through them.
DAILY = ("publish", "publish/settles", "settle/complete", "settle/each", "settle/lease")
_STATEMENTS = 40  # more than any verb has; a pool that connects again in the background counts too
_CONNECTIONS = 10
# They open connections of their own, hand out what others use, or only change memory.
NO_STATEMENT = {
    "close", "acting_for", "database", "outage", "times_elsewhere", "message_id", "watch_epoch", "queues.lifeline",
    "queues.services_held_still", "queues.reset_scan_starts", "queues.look_again", "ledger.claims", "messages.on", "messages.references", "cleanup.alone",
    "box.server_version", "box.troubles", "box.create", "box.check_version", "box.create_host_roles",
    "access.grant", "access.revoke",
}  # fmt: skip


@dataclass(slots=True)
class World:
    """A MessageBox with messages in every state, and a host instance that lives and has claimed some."""

    database: str
    host: int
    location: int
    life: Lifeline
    claimed: list[Reference] = field(default_factory=list)
    ordered: list[Reference] = field(default_factory=list)
    failed: list[tuple[int, int]] = field(default_factory=list)  # (host, sequence) of what the pipeline kept back
    begun: list[Reference] = field(default_factory=list)  # of instances of an orchestration

    @property
    def instances(self) -> list[UUID]:
        return [each.instance for each in self.begun if each.instance is not None]

    @property
    def mine(self) -> list[int]:
        return [each.sequence for each in self.claimed]

    def suspended(self, kind: str) -> list[Any]:
        with Agent(self.database) as agent:
            return [each for each in agent.suspended.messages() if each.kind == kind]


Story = Callable[[Agent, World], object]


def unread(agent: Agent, world: World) -> Publication:
    """What the source that nobody has read yet holds."""
    [(sequence,)] = rows(world.database, "SELECT sequence FROM intake WHERE identity = 'unread'")
    return a_publication(agent, sequence, {"Region": "NO"}, {"Region": "XX"}, {"Region": "SE"}, failures=1)


def an_answer(agent: Agent, world: World, many: int = 1) -> Publication:
    messages = tuple(a_message(agent, {"Region": "NO"}) for _ in range(many))
    return Publication(world.host, messages, cause=Settles(world.host, world.life.instance, world.mine[0]))


def instead(agent: Agent, world: World) -> Publication:
    [(host, sequence)] = world.failed
    message = a_message(agent, {"Region": "NO"})
    return Publication(world.host, (message,), cause=InPlaceOf(host, sequence, world.location))


def ids_of(world: World, kind: str) -> list[UUID]:
    return [each.id for each in world.suspended(kind)]


def deliveries_of(world: World, kind: str) -> list[Delivery]:
    return [each.delivery for each in world.suspended(kind)]


def edited(agent: Agent, world: World) -> None:
    for delivery in deliveries_of(world, "send")[:1]:
        agent.suspended.edit(delivery, a_message(agent, {"Region": "NO"}), {})


# What the caller calls again when PostgreSQL was away: doing it twice does it once.
AGAIN: dict[str, Story] = {
    "publish": lambda agent, world: agent.publish([unread(agent, world)]),
    "publish/settles": lambda agent, world: agent.publish([an_answer(agent, world)]),
    "publish/settles many": lambda agent, world: agent.publish([an_answer(agent, world, 40)]),
    "publish/in place": lambda agent, world: agent.publish([instead(agent, world)]),
    "settle/complete": lambda agent, world: agent.settle(world.life.instance, [Complete(each) for each in world.claimed]),
    "settle/retry": lambda agent, world: agent.settle(world.life.instance, [Retry(each, DAY, "down") for each in world.claimed]),
    "settle/suspend": lambda agent, world: agent.settle(world.life.instance, [Suspend(each, "no") for each in world.claimed]),
    "settle/give back": lambda agent, world: agent.settle(world.life.instance, [GiveBack(each) for each in world.claimed]),
    "settle/each": lambda agent, world: agent.settle(world.life.instance, one_of_each(world)),
    "settle/lease": lambda agent, world: settle_lease(agent, world),
    "queues.settle": lambda agent, world: agent.queues.settle(world.life.instance, one_of_each(world)),
    "step": lambda agent, world: agent.step([a_step(agent, world, n) for n in range(2)]),
    "step/instance": lambda agent, world: agent.step([an_instance_step(agent, world, 0), an_instance_step(agent, world, 1, ends=True)]),
    "open_step": lambda agent, world: opened(agent, world),
    "instances.resume": lambda agent, world: agent.instances.resume(world.instances),
    "instances.cancel": lambda agent, world: agent.instances.cancel(world.instances),
    "instances.terminate": lambda agent, world: agent.instances.terminate(world.instances),
    "route_again": lambda agent, world: agent.route_again(ids_of(world, "unrouted")),
    "ledger.enter": lambda agent, world: agent.ledger.enter([(world.location, b"new", 10), (world.location, b"unread", 10)]),
    "ledger.note_attempt": lambda agent, _: agent.ledger.note_attempt(1),
    "ledger.postpone": lambda agent, _: [agent.ledger.postpone(each.sequence, "away") for each in agent.ledger.read(0, 2**62)],
    "ledger.forget": lambda agent, _: agent.ledger.forget([each[0] for each in agent.ledger.published(after=0)]),
    "ledger.abandon": lambda agent, _: agent.ledger.abandon([each.sequence for each in agent.ledger.read(0, 2**62)]),
    "queues.dequeue": lambda agent, world: agent.queues.dequeue(world.host, world.life.instance, limit=3),
    "queues.dequeue/many": lambda agent, world: agent.queues.dequeue(world.host, world.life.instance, limit=100),
    "queues.dequeue_correlated": lambda agent, world: agent.queues.dequeue_correlated(world.host, world.life.instance, limit=3),
    "queues.dequeue_responses": lambda agent, world: agent.queues.dequeue_responses(world.host, world.life.instance, limit=3),
    "queues.dequeue_ordered": lambda agent, world: agent.queues.dequeue_ordered(world.host, world.life.instance, limit=2),
    "queues.unblock_subqueues": lambda agent, world: agent.queues.unblock_subqueues(world.host),
    "queues.requeue_due": lambda agent, world: agent.queues.requeue_due(world.host),
    "queues.release_dead": lambda agent, world: agent.queues.release_dead(world.host),
    "queues.note_deliveries": lambda agent, world: agent.queues.note_deliveries(world.life.instance, world.mine),
    "queues.note_steps": lambda agent, world: agent.queues.note_steps(world.host, world.life.instance, world.instances, alone=world.instances),
    "subscriptions.deploy": lambda agent, _: agent.subscriptions.deploy(deployment(Plain="Region = 'SE'", New="EXISTS(Region)")),
    "subscriptions.start": lambda agent, _: agent.subscriptions.start("Stopped"),
    "subscriptions.stop": lambda agent, _: agent.subscriptions.stop("Plain"),
    "subscriptions.unenlist": lambda agent, _: agent.subscriptions.unenlist("Plain"),
    "subscriptions.enable": lambda agent, _: agent.subscriptions.enable("orders.in", enabled=False),
    "subscriptions.change_application": lambda agent, _: agent.subscriptions.change_application("stop", "orders"),
    "subscriptions.enable_application": lambda agent, _: agent.subscriptions.enable_application("orders", enabled=False),
    "subscriptions.correlate": lambda agent, _: agent.subscriptions.correlate(["Region"]),
    "subscriptions.end_instance": lambda agent, _: agent.subscriptions.end_instance(INSTANCE),
    "suspended.resume": lambda agent, world: agent.suspended.resume(ids_of(world, "send")),
    "suspended.terminate": lambda agent, world: agent.suspended.terminate(ids_of(world, "send")),
    "suspended.resume_deliveries": lambda agent, world: agent.suspended.resume_deliveries(deliveries_of(world, "send")),
    "suspended.terminate_deliveries": lambda agent, world: agent.suspended.terminate_deliveries(deliveries_of(world, "send")),
    "suspended.edit": lambda agent, world: edited(agent, world),
    "suspended.purge_originals": lambda agent, _: agent.suspended.purge_originals(age=timedelta(0)),
    "messages.read": lambda agent, world: agent.messages.read(ids_of(world, "unrouted"), "save"),
    "suspended.purge": lambda agent, _: agent.suspended.purge(age=timedelta(0)),
    "suspended.report_failures": lambda agent, world: agent.suspended.report_failures({each: [] for each in ids_of(world, "unrouted")}),
    "cleanup.swap_log": lambda agent, _: agent.cleanup.swap_log("message"),
    "cleanup.sum_log": lambda agent, _: agent.cleanup.sum_log("message", agent.cleanup.swap_log("message")),
    "cleanup.fold_counts": lambda agent, _: agent.cleanup.fold_counts(),
    "cleanup.forget_removals": lambda agent, _: agent.cleanup.forget_removals(),
    "cleanup.rewrite_erased": lambda agent, world: (agent.track.erase(ids_of(world, "unrouted"), "all"), agent.cleanup.rewrite_erased()),
    "track.erase": lambda agent, world: agent.track.erase(ids_of(world, "unrouted"), "messages by Region"),
    "cleanup.forget_versions": lambda agent, _: agent.cleanup.forget_versions(),
    "cleanup.compact": lambda agent, _: agent.cleanup.compact(),
    "cleanup.pack_track": lambda agent, _: agent.cleanup.pack_track(),
    "cleanup.make_track_partitions": lambda agent, _: agent.cleanup.make_track_partitions(),
    "cleanup.drop_track_partitions": lambda agent, _: agent.cleanup.drop_track_partitions(2 * DAY, DAY),
    "console.begin_answer": lambda agent, _: agent.console.begin_answer("you", "key", b"request"),
    "console.keep_answer": lambda agent, _: agent.console.keep_answer("you", "kept", 200, b"{}", {}),
    "console.drop_answer": lambda agent, _: agent.console.drop_answer("you", "kept"),
    "console.save_view": lambda agent, _: agent.console.save_view("new", "state = 'suspended'", 9),
    "console.delete_view": lambda agent, _: agent.console.delete_view("old"),
    "samples.take": lambda agent, _: agent.samples.take(),
    "samples.forget_minutes": lambda agent, _: agent.samples.forget_minutes(),
}  # fmt: skip
# They change nothing.
QUESTIONS: dict[str, Story] = {
    "router": lambda agent, _: agent.router(),
    "filters": lambda agent, _: agent.filters(),
    "epoch": lambda agent, _: agent.epoch(),
    "location_epoch": lambda agent, _: agent.location_epoch(),
    "statistics": lambda agent, _: agent.statistics(),
    "track.find": lambda agent, world: agent.track.find([each.message.id for each in world.claimed]),
    "track.events": lambda agent, world: agent.track.events(agent.track.find([each.message.id for each in world.claimed])),
    "track.search": lambda agent, _: agent.track.search(None),
    "track.children": lambda agent, world: agent.track.children(world.claimed[0].message.id),
    "track.bodies": lambda agent, world: agent.track.bodies(agent.track.find([each.message.id for each in world.claimed])),
    "host_statistics": lambda agent, world: agent.host_statistics([world.host]),
    "box.own_hosts": lambda agent, _: agent.box.own_hosts(),
    "box.host_role": lambda agent, world: agent.box.host_role(world.host),
    "box.may_maintain": lambda agent, _: agent.box.may_maintain(),
    "configuration.list_applications": lambda agent, _: agent.configuration.list_applications(),
    "configuration.names": lambda agent, _: agent.configuration.names(),
    "configuration.list_ports": lambda agent, _: agent.configuration.list_ports(),
    "configuration.list_orchestrations": lambda agent, _: agent.configuration.list_orchestrations(),
    "configuration.list_groups": lambda agent, _: agent.configuration.list_groups(),
    "configuration.list_locations": lambda agent, _: agent.configuration.list_locations(),
    "configuration.list_hosts": lambda agent, _: agent.configuration.list_hosts(),
    "configuration.list_subscriptions": lambda agent, _: agent.configuration.list_subscriptions(),
    "configuration.properties": lambda agent, _: agent.configuration.properties(),
    "configuration.case_sensitive": lambda agent, _: agent.configuration.case_sensitive(),
    "configuration.hosts": lambda agent, _: agent.configuration.hosts(),
    "configuration.locations": lambda agent, _: agent.configuration.locations(),
    "configuration.services": lambda agent, _: agent.configuration.services(),
    "configuration.waiting_services": lambda agent, _: agent.configuration.waiting_services(),
    "configuration.group_id": lambda agent, _: agent.configuration.group_id("None"),
    "configuration.transport_id": lambda agent, _: agent.configuration.transport_id("Plain"),
    "configuration.orchestrations": lambda agent, _: agent.configuration.orchestrations(),
    "instances.versions": lambda agent, _: agent.instances.versions("fulfil"),
    "instances.sample": lambda agent, _: agent.instances.sample("fulfil", excluding="", limit=9),
    "configuration.deployed": lambda agent, _: agent.configuration.deployed(deployment()),
    "instances.load": lambda agent, world: agent.instances.load(world.host, world.instances),
    "instances.due": lambda agent, world: agent.instances.due(world.host, limit=10),
    "instances.next_due": lambda agent, world: agent.instances.next_due(world.host),
    "instances.correlations": lambda agent, world: agent.instances.correlations([each.subscription_id for each in world.begun]),
    "instances.version": lambda agent, _: agent.instances.version("0" * 64),
    "instances.addresses": lambda agent, _: agent.instances.addresses(),
    "instances.list": lambda agent, _: agent.instances.list(),
    "instances.describe": lambda agent, world: agent.instances.describe(world.instances[0]),
    "messages.held": lambda agent, world: agent.messages.held(world.host, world.instances),
    "messages.load": lambda agent, world: agent.messages.load(ids_of(world, "unrouted")),
    "ledger.waiting": lambda agent, _: agent.ledger.waiting(),
    "ledger.read": lambda agent, _: agent.ledger.read(0, 2**62),
    "ledger.progress": lambda agent, _: agent.ledger.progress(1),
    "ledger.published": lambda agent, _: agent.ledger.published(after=0),
    "queues.notify": lambda agent, world: agent.queues.notify([world.host]),
    "queues.tell_given_up": lambda agent, _: agent.queues.tell_given_up([str(INSTANCE)]),
    "queues.has_subqueues": lambda agent, world: agent.queues.has_subqueues(world.host),
    "queues.idle": lambda agent, world: agent.queues.idle(world.host),
    "queues.any_dead": lambda agent, world: agent.queues.any_dead(world.host),
    "queues.service_classes": lambda agent, _: agent.queues.service_classes(),
    "access.rights": lambda agent, _: agent.access.rights(),
    "access.list": lambda agent, _: agent.access.list(),
    "access.require_owner": lambda agent, _: agent.access.require_owner("plan"),
    "subscriptions.versions": lambda agent, _: agent.subscriptions.versions(epoch=2),
    "subscriptions.services": lambda agent, _: agent.subscriptions.services(),
    "configuration.clock": lambda agent, _: agent.configuration.clock(),
    "configuration.personal": lambda agent, _: agent.configuration.personal(),
    "configuration.service_names": lambda agent, _: agent.configuration.service_names(),
    "whereabouts.find_at": lambda agent, _: agent.whereabouts.find_at(1, 0),
    "whereabouts.stored": lambda agent, world: agent.whereabouts.stored(ids_of(world, "unrouted")),
    "whereabouts.locate": lambda agent, world: agent.whereabouts.locate(ids_of(world, "unrouted")),
    "audit.list": lambda agent, _: agent.audit.list(),
    "suspended.messages": lambda agent, _: agent.suspended.messages(),
    "suspended.withheld": lambda agent, world: agent.suspended.withheld(deliveries_of(world, "send")),
    "suspended.groups": lambda agent, _: agent.suspended.groups(),
    "messages.present": lambda agent, world: agent.messages.present(ids_of(world, "unrouted")),
    "configuration.list_waiting": lambda agent, _: agent.configuration.list_waiting(),
    "suspended.unreported": lambda agent, _: agent.suspended.unreported(limit=10),
    "cleanup.may_be_unreferenced": lambda agent, _: agent.cleanup.may_be_unreferenced("message"),
    "pulse": lambda agent, _: agent.pulse().beat(),
    "subscriptions.kinds": lambda agent, _: agent.subscriptions.kinds("orders"),
    "console.find_token": lambda agent, _: agent.console.find_token(b"of nobody"),
    "console.tokens": lambda agent, _: agent.console.tokens(),
    "console.views": lambda agent, _: agent.console.views(),
    "console.find_view": lambda agent, _: agent.console.find_view(INSTANCE),
    "paged.services": lambda agent, _: agent.paged.services(limit=10),
    "paged.find_services": lambda agent, _: agent.paged.find_services(["Plain"]),
    "paged.locations": lambda agent, _: agent.paged.locations(limit=10),
    "paged.instances": lambda agent, _: agent.paged.instances(limit=10),
    "paged.hosts": lambda agent, _: agent.paged.hosts(),
    "paged.suspended_steps": lambda agent, _: agent.paged.suspended_steps(step=DAY, steps=5, limit=10),
    "paged.total_minutes": lambda agent, _: agent.paged.total_minutes(DAY, DAY),
    "samples.age": lambda agent, _: agent.samples.age(),
    "samples.newest_number": lambda agent, _: agent.samples.newest_number(),
    "samples.newest": lambda agent, _: agent.samples.newest(),
}  # fmt: skip
# Calling again would do it again, or is refused: whoever called has to know what became of it.
ONCE: dict[str, Story] = {
    "publish/express": lambda agent, _: publish(agent, {"Region": "NO"}, {"Region": "XX"}),
    "publish_by_hand": lambda agent, world: agent.publish_by_hand([instead(agent, world)], Act("resume", "x")),
    "publish/express many": lambda agent, _: publish(agent, *({"Region": "NO"} for _ in range(40))),
    "subscriptions.enlist": lambda agent, _: agent.subscriptions.enlist("Gone"),
    "subscriptions.undeploy/keep": lambda agent, _: agent.subscriptions.undeploy("orders", "keep"),
    "subscriptions.undeploy/terminate": lambda agent, _: agent.subscriptions.undeploy("orders", "terminate"),
    "audit.record": lambda agent, _: agent.audit.record([Act("test", "x")]),
    "console.create_token": lambda agent, _: agent.console.create_token("new", b"new digest", ["viewer"], DAY),
    "console.revoke_token": lambda agent, _: agent.console.revoke_token("old"),
    "subscriptions.subscribe_instance": lambda agent, _: agent.subscriptions.subscribe_instance(
        "Plain", UUID(int=8), {"Amount": Decimal(5)}
    ),
}


def one_of_each(world: World) -> list[Settlement]:
    first, second = world.claimed
    return [Complete(first), Retry(second, DAY, "down")]


def settle_lease(agent: Agent, world: World) -> None:
    first, second = world.ordered
    agent.settle(world.life.instance, [Complete(first), Retry(second, DAY, "down")], lease=first)


def a_step(agent: Agent, world: World, number: int) -> Step:
    """Settles a reference, publishes a message, waits for another, and ends what waited before."""
    return Step(
        world.host,
        world.life.instance,
        settles=[Complete(world.claimed[number])],
        publishes=[a_message(agent, {"Region": "NO"})],
        ends=[INSTANCE] if number == 0 else [],
    )


def _change(world: World, number: int, **more: Any) -> InstanceChange:
    reference = world.begun[number]
    assert reference.instance is not None
    known = reference.instance, reference.service_id, "0" * 64, reference.message.id
    return InstanceChange(*known, stored=True, **more)


def an_instance_step(agent: Agent, world: World, number: int, *, ends: bool = False) -> Step:
    """A first step: it goes on with a timer, or ends."""
    reference = world.begun[number]
    assert reference.instance is not None
    change = (
        _change(world, number, ends=True)
        if ends
        else _change(world, number, records=[b"done"], timers=[(1, 365 * DAY)])
    )
    settles: list[Settlement] = [Complete(reference) if ends else Hold(reference, reference.instance, 1)]
    return Step(world.host, world.life.instance, settles, [a_message(agent, {"Region": "NO"})], change=change)


def a_suspension(world: World, number: int) -> Step:
    reference = world.begun[number]
    assert reference.instance is not None
    change = _change(world, number, state="suspended", code="orchestration-failed", reason="it failed")
    return Step(world.host, world.life.instance, [Hold(reference, reference.instance, None)], change=change)


def opened(agent: Agent, world: World) -> None:
    with suppress(StepLostError), agent.open_step(a_step(agent, world, 0)) as step:
        step.execute("CREATE TABLE IF NOT EXISTS crossdock.work (done integer)")


@pytest.fixture(scope="module")
def arranged(server: str, template: str) -> Iterator[str]:
    """The name of a database with messages in every state but claimed, to be copied."""
    name = f"crossdock_crash_{template}"
    with Agent(databases.create(server, name, template)) as agent:
        _arrange(agent)
    yield name
    databases.drop(server, name)


def _arrange(agent: Agent) -> None:
    filters = {"Plain": "Region = 'NO'", "Line": "Region = 'NO'", "Stopped": "Region = 'SE'", "Gone": "Region = 'ZZ'"}
    made = deployment(**filters)
    ports = [_ordered(port) if port.name == "Line" else port for port in made.ports]
    flow = an_orchestration("Flow", "Region = 'IN'")
    agent.subscriptions.deploy(replace(made, ports=ports, orchestrations=[flow]))
    agent.subscriptions.stop("Stopped")
    agent.subscriptions.unenlist("Gone")
    agent.console.create_token("old", b"old digest", ["viewer"], None)
    agent.console.save_view("old", "Region = 'NO'", 9)
    agent.console.begin_answer("you", "kept", b"request")
    read, _ = listed(agent, "read", "unread")
    agent.publish([a_publication(agent, read, {"Region": "NO"}, {"Region": "XX"}, {"Region": "SE"}, failures=1)])
    agent.subscriptions.subscribe_instance("Plain", INSTANCE, {"Amount": Decimal(5)})
    publish(agent, *({"Region": "NO"} for _ in range(6)), {"Amount": Decimal(5)})
    publish(agent, *({"Region": "IN", "BTS.MessageType": "Order"} for _ in range(3)))


def _ordered(port: Any) -> Any:
    return replace(port, ordered=True)


@contextmanager
def a_world(server: str, arranged: str) -> Iterator[World]:
    """A copy: one reference is scheduled and due, one suspended, two are left by the dead, some are claimed.

    Of three instances two are about to do their first step, and one is suspended.
    """
    name = f"{arranged}_copy"
    database = databases.create(server, name, arranged)
    with Agent(database) as agent:
        location, host = ids(agent)
        life = agent.queues.lifeline(host)
        life.hold()
        world = World(database, host, location, life)
        due, refused = agent.queues.dequeue(host, life.instance, limit=2)
        agent.settle(life.instance, [Retry(due, timedelta(0), "down"), Suspend(refused, "refused")])
        agent.queues.dequeue(host, 1, limit=2)
        world.claimed = agent.queues.dequeue(host, life.instance, limit=2)
        world.begun = agent.queues.dequeue(host, life.instance, limit=3, subqueue=ORCHESTRATIONS)
        agent.step([a_suspension(world, 2)])
        world.ordered = agent.queues.dequeue_ordered(host, life.instance, limit=2)
        kept_back = [each for each in agent.suspended.messages() if each.kind == "receive"]
        world.failed = [(each.host_id, each.sequence) for each in kept_back]
        try:
            yield world
        finally:
            with suppress(CrossdockError, psycopg.Error):
                life.end()
    databases.drop(server, name)


def books(world: World) -> dict[str, Any]:
    """Recover everything and deliver what can be delivered; then what the MessageBox says."""
    world.life.end()
    shift_clock(world.database, DAY + timedelta(hours=1))
    with Agent(world.database) as agent:
        life = agent.queues.lifeline(world.host)
        life.hold()
        while _delivered(agent, world.host, life) or agent.statistics().claimed:
            pass  # PostgreSQL may take a moment to see that the old life has ended
        running = [(each.state, each.step) for each in agent.instances.list()]
        timers = rows(world.database, "SELECT count(*) FROM timer")[0][0]
        agent.instances.terminate([each.id for each in agent.instances.list()])
        # What was claimed when its instance ended has come back, and an engine finds nobody for it.
        left = agent.queues.dequeue(world.host, life.instance, limit=100, subqueue=ORCHESTRATIONS)
        agent.settle(life.instance, [Suspend(each, "late", kind="discarded", code="instance-ended") for each in left])
        life.end()
        for _ in range(3):
            CleanReferences(agent).run_once()
        assert unbalanced(world.database) == []
        statistics = agent.statistics()
        assert (statistics.ready, statistics.claimed, statistics.waiting) == (0, 0, 0)
        return {
            "ports": statistics.ports,
            "received": (statistics.received, statistics.published),
            "suspended": Counter((each.kind, each.port) for each in agent.suspended.messages()),
            "ledger": sorted(rows(world.database, "SELECT identity, attempts FROM intake")),
            "views": sorted(rows(world.database, "SELECT name, query FROM saved_view")),
            "messages": rows(world.database, "SELECT count(*) FROM message")[0][0],
            "parts": rows(world.database, "SELECT count(*) FROM part")[0][0],
            "states": {row.name: row.state for row in agent.configuration.list_ports()},
            "instances": (sorted(running), timers),
            "waiting": rows(world.database, "SELECT count(*) FROM instance_subscription")[0][0],
            "track": tracked(agent),
        }


def tracked(agent: Agent) -> tuple[int, Counter[str]]:
    """How many messages were tracked, and what became of their references. It agrees with the counts of deliveries."""
    agent.cleanup.pack_track()
    every = agent.track.search(None, limit=1000).messages
    events = Counter(each.event for each in agent.track.events(every))
    assert events["delivered"] + events["answered"] + events["held"] == agent.statistics().delivered
    return len(every), events


def _delivered(agent: Agent, host: int, life: Lifeline) -> int:
    agent.queues.unblock_subqueues(host)
    found = agent.queues.release_dead(host) + agent.queues.requeue_due(host)
    references = agent.queues.dequeue(host, life.instance, limit=100)
    agent.settle(life.instance, [Complete(each) for each in references])
    ordered = agent.queues.dequeue_ordered(host, life.instance, limit=100)
    if ordered:
        agent.settle(life.instance, [Complete(each) for each in ordered], lease=ordered[0])
    return found + len(references) + len(ordered)


def _played(
    server: str, arranged: str, story: Story | None, point: tuple[int, When] | None = None, *, again: bool = False
) -> tuple[dict[str, Any], bool]:
    """(books, whether it broke): what became of a story that breaks at this point, if it gets that far."""
    with a_world(server, arranged) as world, breaking_way(world.database) as way:
        with Agent(way.database) as agent:
            agent.router()  # as in a process that works there is a connection, and it knows the subscriptions
            if story is not None:
                _told(agent, world, way, story, point, again=again)
        return books(world), way.broken


def _told(
    agent: Agent, world: World, way: BreakingWay, story: Story, point: tuple[int, When] | None, *, again: bool
) -> None:
    if point is None:
        story(agent, world)
        return
    way.break_at(*point)
    with suppress(CrossdockError, psycopg.Error):
        story(agent, world)
    for _ in range(_CONNECTIONS if again and way.broken else 0):  # each that is kept may turn out to be broken
        with suppress(TransientError):
            story(agent, world)
            break


def test_every_verb_of_the_agent_has_a_story() -> None:
    parts = inspect.getmembers(Agent("dbname=nowhere"), lambda part: type(part).__module__.startswith("crossdock"))
    verbs = {name for name, _ in inspect.getmembers(Agent, inspect.isfunction) if not name.startswith("_")}
    verbs |= {
        f"{part}.{name}"
        for part, made in parts
        if not part.startswith("_") and part not in ("outage", "troubles", "tracer")
        for name, _ in inspect.getmembers(type(made), inspect.isfunction)
        if not name.startswith("_")
    }

    told = {story.partition("/")[0] for story in (*AGAIN, *ONCE, *QUESTIONS)}

    assert verbs - told - NO_STATEMENT == set()
    assert told - verbs == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", AGAIN if SOAK else DAILY)
def test_verb_that_is_called_again_after_a_break_at_any_statement_is_done_once(
    server: str, arranged: str, name: str
) -> None:
    expected, _ = _played(server, arranged, AGAIN[name])
    undone, _ = _played(server, arranged, None)

    for statement in range(1, _STATEMENTS):
        for when in BOTH:
            done, broke = _played(server, arranged, AGAIN[name], (statement, when), again=True)
            assert _same(done, expected), f"called again after a break {when} statement {statement}"
            if _is_new(statement, when):
                left, _ = _played(server, arranged, AGAIN[name], (statement, when))
                assert _same(left, expected) or _same(left, undone), f"left alone {when} statement {statement}"
        if not broke:
            break
    assert statement > 1


def test_question_is_answered_after_a_break(server: str, arranged: str) -> None:
    with a_world(server, arranged) as world, breaking_way(world.database) as way, Agent(way.database) as agent:
        for story in list(QUESTIONS.values())[: None if SOAK else 5]:
            for when in BOTH:
                _told(agent, world, way, story, (1, when), again=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONCE if SOAK else ["publish/express"])
def test_verb_that_breaks_at_any_statement_is_done_or_not_done(server: str, arranged: str, name: str) -> None:
    expected, _ = _played(server, arranged, ONCE[name])
    undone, _ = _played(server, arranged, None)

    for statement in range(1, _STATEMENTS):
        for when in BOTH:
            if _is_new(statement, when):
                left, broke = _played(server, arranged, ONCE[name], (statement, when))
                assert _same(left, expected) or _same(left, undone), f"a break {when} statement {statement}"
        if not broke:
            break
    assert statement > 1


def _is_new(statement: int, when: When) -> bool:
    """Where nobody calls again, a break before a statement leaves the server as one after the statement before it."""
    return when == "after" or statement == 1


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """How often a source was tried may differ: a note that is made twice is made once too often."""
    return {**one, "ledger": [row[0] for row in one["ledger"]]} == {
        **other,
        "ledger": [row[0] for row in other["ledger"]],
    }
