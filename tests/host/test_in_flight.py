"""What a port takes at once: all instances of its host together keep to it, and whoever is left goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta
from threading import Event, Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.host.instance import HostInstance
from crossdock.host.limit_share import LimitShare
from crossdock.host.outcome import Complete, Outcome, Service, Services
from crossdock.messagebox.agent import Agent
from express import a_message, deploy, living, port, publish, rows, unbalanced
from service import Partner, publish_named, quick_upkeep, running, settled
from walk import until

LIMIT = 4


class Gauge:
    """How many deliveries there are at once, to whomever."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = Lock()
        self._now = 0
        self.most = 0

    def __call__(self, _: str, __: int) -> Outcome:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        Event().wait(self._seconds)
        with self._lock:
            self._now -= 1
        return Complete()


@pytest.mark.usefixtures("no_grace")
def test_two_instances_deliver_together_what_the_port_takes_at_once(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    gauge, names = Gauge(0.01), [f"m{n}" for n in range(1_500)]
    partners = [Partner(gauge), Partner(gauge)]

    with ExitStack() as stack:
        start(stack, database, partners, LIMIT)
        all_have_looked_twice(database)
        publish_named(agent, *names[:100])
        until(lambda: settled(agent), 60)
        publish_named(agent, *names[100:])  # more than one of them holds, now that it is known how long each takes
        until(lambda: settled(agent), 60)

    assert gauge.most == LIMIT
    assert Counter([*partners[0].got, *partners[1].got]) == Counter(names)
    assert min(len(partner.got) for partner in partners) > len(names) / 8
    assert unbalanced(database) == []


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("leaves", [0, 1])
def test_whoever_is_left_takes_over_what_the_port_takes_at_once(agent: Agent, database: str, leaves: int) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    gauge, names = Gauge(0.01), [f"m{n}" for n in range(100)]
    partners = [Partner(gauge), Partner(gauge)]

    with ExitStack() as stack:
        stop = start(stack, database, partners, 1)
        all_have_looked_twice(database)
        publish_named(agent, *names)
        until(lambda: any(partner.got for partner in partners), 30)
        stop[leaves]()
        until(lambda: settled(agent), 60)

    assert Counter([*partners[0].got, *partners[1].got]) == Counter(names)
    assert gauge.most == 1
    assert unbalanced(database) == []


@pytest.mark.usefixtures("no_grace")
def test_instance_that_stops_and_waits_for_a_partner_keeps_no_part_of_the_others(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'SE'"), port("Hanging", "Region = 'NO'"))
    ids = {name: id_ for id_, name in rows(database, "SELECT id, name FROM service")}
    hangs = Event()
    hanging, partners = Partner(lambda *_: (hangs.wait(60), Complete())[1]), [Partner(), Partner()]
    for partner in partners:
        partner.in_flight = 1

    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        stack.callback(hangs.set)
        instances = [
            HostInstance(
                stack.enter_context(Agent(database)),
                agent.configuration.hosts()["Default"],
                found_in(services),
                limits=quick_upkeep(),
            )
            for services in ({ids["A"]: partner, ids["Hanging"]: hanging} for partner in partners)
        ]
        instances[0].start()
        publish_named(agent, "hangs")
        until(lambda: instances[0].in_hand == 1, 30)
        instances[1].start()
        all_have_looked_twice(database)
        stopping = [pool.submit(instances[0].stop)]
        until(lambda: "stopping" in {state for (state,) in rows(database, "SELECT state FROM host_instance")}, 30)
        publish(agent, *(a_message(agent, {"Region": "SE"}) for _ in range(20)))
        until(lambda: len(partners[1].got) == 20, 30)
        assert not stopping[0].done()
        hangs.set()
        stopping[0].result(30)
        instances[1].stop()

    assert partners[0].got == []


@pytest.mark.parametrize(
    ("change", "who"),
    [
        ("started_at = now() - interval '1 minute'", ["first", "second"]),
        ("state = 'stopping'", ["second"]),
        ("state = 'stuck'", ["second"]),
        ("state = 'throttled'", ["first", "second"]),
        ("seen_at = now() - interval '1 minute'", ["second"]),
    ],
)
def test_who_cannot_work_has_no_part(agent: Agent, database: str, change: str, who: list[str]) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    with living(agent) as first, living(agent) as second:
        names = {first.instance: "first", second.instance: "second"}
        both = [names[each] for each in first.living(timedelta(minutes=1))]  # both have just come
        rows(database, f"UPDATE host_instance SET {change} WHERE id = {first.instance} RETURNING id")
        found = [names[each] for each in second.living(timedelta(0))]
        rows(
            database,
            f"UPDATE host_instance SET started_at = now() - interval '1 hour' WHERE id = {second.instance} RETURNING id",
        )
        grown = [names[each] for each in second.living(timedelta(minutes=30))]

    assert both == ["first", "second"]
    assert found == who
    assert grown == ["second"]  # who has just come has none as long as there are others


def found_in(services: Mapping[int, Service]) -> Services:
    def find(service_id: int) -> Service | None:
        return services.get(service_id)

    return find


def start(stack: ExitStack, database: str, partners: Sequence[Partner], limit: int) -> list[Callable[[], None]]:
    """An instance for each partner; gives what stops them."""
    stops = []
    for partner in partners:
        partner.in_flight = limit
        life = stack.enter_context(ExitStack())
        working = life.enter_context(Agent(database))
        life.enter_context(running(working, partner))
        stops.append(life.close)
    return stops


def all_have_looked_twice(database: str) -> None:
    """Each time they say how they are they look who lives."""
    seen: dict[int, set[datetime]] = {}

    def twice() -> bool:
        for instance, at in rows(database, "SELECT id, seen_at FROM host_instance"):
            seen.setdefault(instance, set()).add(at)
        return len(seen) == 2 and all(len(times) > 3 for times in seen.values())

    until(twice, 30)


@given(st.integers(1, 50), st.lists(st.integers(1, 1_000), min_size=1, max_size=9, unique=True), st.text())
def test_shares_of_all_are_what_the_port_takes_at_once(limit: int, living: list[int], name: str) -> None:
    shares_of = {instance: LimitShare() for instance in living}
    for instance in [*living, *living]:
        shares_of[instance].read(instance, sorted(living))

    shares = [each.of(limit, name) for each in shares_of.values()]

    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


def test_one_that_comes_waits_until_the_others_have_made_room() -> None:
    old, new = LimitShare(), LimitShare()
    old.read(3, [3])
    assert old.of(4, "Shop") == 4
    new.read(5, [3, 5])
    assert new.of(4, "Shop") == 0

    old.read(3, [3, 5])
    new.read(5, [3, 5])

    assert (old.of(4, "Shop"), new.of(4, "Shop")) == (2, 2)


def test_what_one_had_that_is_gone_is_taken_over_at_the_second_look() -> None:
    left = LimitShare()
    left.read(5, [3, 5])
    left.read(5, [3, 5])

    left.read(5, [5])
    assert left.of(4, "Shop") == 2
    left.read(5, [5])

    assert left.of(4, "Shop") == 4


def test_instance_that_was_alone_and_begins_anew_keeps_everything() -> None:
    alone = LimitShare()
    alone.read(3, [3])

    alone.read(7, [7])

    assert alone.of(4, "Shop") == 4


def test_ports_that_take_one_at_a_time_are_spread_over_the_instances() -> None:
    living = [1, 2, 3]
    shares_of = {instance: LimitShare() for instance in living}
    for instance in [*living, *living]:
        shares_of[instance].read(instance, living)

    has = [sum(shares_of[instance].of(1, f"Port{n}") for n in range(60)) for instance in living]

    assert sum(has) == 60
    assert min(has) > 10
