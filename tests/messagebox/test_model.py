"""The MessageBox against its model: any sequence of verbs leaves every reference where the model has it.

Two agents stand for two processes, each with its own router and marks. A transaction can be left open while others go
on, so that publications, claims and settlements overlap with claims and cleanup without threads or luck.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import count

import psycopg
import psycopg.sql
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

import settling
from box import AT_ONCE, source_of
from box_compared import Arrival, ComparedBox, OpenTransaction
from box_drawn import (
    PORTS,
    correlated,
    differences,
    documents,
    failures,
    hosts,
    instances,
    jobs,
    limits,
    minutes,
    names,
    outcomes,
    rarely,
)
from box_model import Reference, State, Waiting
from crossdock.errors import UsageError
from crossdock.message.publication import Publication
from crossdock.messagebox import cleanup, lifeline, messages, queues, store
from crossdock.messagebox import database as messagebox_database
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import publish
from crossdock.messagebox.rows import Published
from crossdock.messagebox.scan_start import PRIORITIES
from crossdock.messagebox.statement import host_text
from crossdock.messagebox.subscriptions import Transition

SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))
EXAMPLES, STEPS = (1000, 60) if SOAK else (30, 50)
AFTER: dict[str, State] = {"enlist": "stopped", "start": "started", "stop": "stopped", "unenlist": "unenlisted"}


class MessageBoxMachine(ComparedBox):
    """Each verb does one thing in the MessageBox and in the model, and compares the answers."""

    @initialize(data=st.data())
    def begin_with_a_message_that_everybody_wants(self, data: st.DataObject) -> None:
        publication = self.source([({"Region": "NO", "Amount": Decimal(10)}, False, False, "short")], 1)
        self.arrives(publication, self.expected(publication), self.process(data).publish([publication]), 0)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One rule for all verbs: with one each, most examples would lack a verb that theirs lead up to."""
        weighted = [verb for verb, weight in self.verbs().items() for _ in range(weight)]
        getattr(self, data.draw(st.sampled_from(weighted), "verb"))(data)

    @invariant()
    def every_reference_is_where_the_model_has_it(self) -> None:
        self.compare()

    def verbs(self) -> dict[str, int]:
        """How often each verb is chosen: never where it has nothing to do, or would wait for an open transaction."""
        model = self.model
        waiting, claimed = model.all_at("queued"), model.all_at("claimed")
        kinds = {each.kind for each in model.suspended()}
        postponed = model.blocked or model.all_at("scheduled")
        more = len(self.open) < 2
        return {
            "publish_source": 3,
            "publish_express": 2,
            "receive_again": 1 if "receive" in kinds else 0,
            "deploy": 0 if self.open else 3,
            "change": 0 if self.publishing else 3,
            "subscribe_instance": 0 if self.publishing else 2,
            "end_instance": 1 if model.waiting and not self.publishing else 0,
            "work": 6 if any(each.subqueue <= 0 for each in [*waiting, *claimed]) else 0,
            "work_in_order": 4 if any(each.subqueue > 0 for each in waiting) else 0,
            "settle_subqueue": 4 if self.subqueues() else 0,
            "settle_what_another_holds": 1 if claimed else 0,
            "crash": 2 if claimed or model.bound() else 0,
            "release_dead": 3 if model.dead() and not self.publishing else 0,
            "requeue_due": 2 if postponed or model.unordered else 0,
            "resume": 3 if kinds & {"send", "stopped"} else 0,
            "route_again": 3 if "unrouted" in kinds else 0,
            "terminate": 1 if kinds else 0,
            "maintain": 4 if self.open else 2,
            "begin_to_publish": 1 if more else 0,
            "begin_to_dequeue": 1 if more and waiting else 0,
            "begin_to_complete": 3 if more and self.claims() else 0,
            "end_transaction": 4 if self.open else 0,
        }

    # Subscriptions

    def deploy(self, data: st.DataObject) -> None:
        before = dict(self.ports), dict(self.labels)
        name = data.draw(names, "name")
        if name in self.ports and data.draw(rarely, "gone"):
            del self.ports[name]
        else:
            self.ports[name] = replace(self.ports.get(name, PORTS[name]), **data.draw(differences, "different"))
        if data.draw(rarely, "other labels"):
            self.labels[data.draw(hosts, "of")] ^= {"secret"}

        changed = self.process(data).subscriptions.deploy(self.deployment())

        assert changed == ((self.ports, self.labels) != before)
        self.model.deploy(self.ports, self.labels)

    def change(self, data: st.DataObject) -> None:
        name, verb = data.draw(names, "name"), data.draw(st.sampled_from(list(AFTER)), "change")
        service, change = self.model.services[name], getattr(self.process(data).subscriptions, verb)
        before, after = service.state, AFTER[verb]
        wrong = {"enlist": before != "unenlisted", "stop": before == "unenlisted"}.get(verb, False)
        if wrong or not service.deployed:
            with pytest.raises(UsageError):
                change(name)
        else:
            assert change(name) == Transition(name, before, after, self.model.change(name, after))

    def subscribe_instance(self, data: st.DataObject) -> None:
        name, instance, values = data.draw(names, "name"), data.draw(instances, "for"), data.draw(correlated, "values")
        host = self.model.services[name].port.host
        living = [each for each in sorted(self.model.alive) if self.homes[each] == host]
        holder = self.one_of(data, [None, *living], "bound to")

        subscription = self.process(data).subscriptions.subscribe_instance(name, instance, values, bound_to=holder)

        self.model.waiting[subscription] = Waiting(instance, name, host, values, holder)

    def end_instance(self, data: st.DataObject) -> None:
        instance = data.draw(instances, "instance")
        if all(self.model.references[key].instance != instance for key in self.locked()):
            assert self.process(data).subscriptions.end_instance(instance) == self.model.end_instance(instance)

    # Publishing

    def publish_source(self, data: st.DataObject) -> None:
        above, earlier = self.latest(), self.published_before(data)
        publication = self.source(data.draw(documents, "content"), data.draw(failures, "failures"))

        twice = [publication, publication] if data.draw(rarely, "twice") else [publication]

        published = self.process(data).publish([*earlier, *twice])

        self.arrives(publication, self.expected(publication), published, above)

    def published_before(self, data: st.DataObject) -> list[Publication]:
        """Sources of which somebody has not heard that they are published, and perhaps forgotten."""
        old = self.one_of(data, self.published, "published before")
        if data.draw(rarely, "forgotten"):
            self.process(data).ledger.forget([source_of(old).sequence])
        return [old] if data.draw(st.booleans(), "again") else []

    def publish_express(self, data: st.DataObject) -> None:
        agent, above = self.process(data), self.latest()
        content, failed = data.draw(documents, "content"), data.draw(failures, "failures")
        publication = self.express(agent, data.draw(hosts, "host"), content, failed)

        published = agent.publish([publication])

        self.arrives(publication, self.expected(publication), published, above)

    def receive_again(self, data: st.DataObject) -> None:
        failure = self.one_of(data, self.model.suspended(kinds={"receive"}), "failure")
        agent, above = self.process(data), self.latest()
        replaces = self.hosts[failure.host], failure.sequence
        publication = self.express(agent, failure.host, data.draw(documents, "content"), 0, replaces)

        published = agent.publish([publication])

        self.model.references.pop(failure.key)
        self.arrives(publication, self.expected(publication), published, above)
        assert agent.publish([publication]) == Published()

    # Host instances

    def crash(self, data: st.DataObject) -> None:
        instance = self.one_of(data, sorted(self.model.alive), "instance")
        self.end(instance)
        self.begin(self.homes[instance])

    def release_dead(self, data: st.DataObject) -> None:
        host = data.draw(hosts, "host")
        if not any(self.model.is_left(self.model.references[key], host) for key in self.locked()):
            assert self.process(data).queues.release_dead(self.hosts[host]) == self.model.release_dead(host)

    def work(self, data: st.DataObject) -> None:
        agent, (instance, host), limit = self.process(data), self.an_instance(data), data.draw(limits, "limit")
        swept = data.draw(st.booleans(), "swept")
        agent.queues._scan_starts[self.hosts[host]].swept_at = -math.inf if swept else math.inf

        claimed = agent.queues.dequeue(self.hosts[host], instance, limit=limit)

        given = self.model.ready(host, instance, limit, self.locked())
        if not swept:  # marks of before may lie above what came back with an old number since, but never above the new
            ready, numbers = self.model.ready(host, instance, None, self.locked()), {each.sequence for each in claimed}
            new = [each for each in given if each.new]
            given = [each for each in ready if each.sequence in numbers]
            assert all(each in given for each in new)
        self.compare_claim(claimed, given)
        self.model.claim(given, instance)
        self.settle(data, agent, instance)

    def settle(self, data: st.DataObject, agent: Agent, instance: int) -> None:
        """What it holds, some of it since long ago."""
        given: defaultdict[str, list[Reference]] = defaultdict(list)
        for reference in self.claims().get(instance, []):
            given[data.draw(outcomes, "outcome")].append(reference)
        wait, host = data.draw(minutes, "due in"), self.hosts[self.homes[instance]]

        settling.complete(agent, host, instance, sequences(given["complete"]))
        settling.retry(agent, host, instance, [(number, wait, "later") for number in sequences(given["retry"])])
        settling.suspend(agent, host, instance, [(number, "no") for number in sequences(given["suspend"])])
        settling.give_back(agent, host, instance, sequences(given["give back"]))

        self.model.complete(given["complete"])
        self.model.retry(given["retry"], self.clock + wait)
        self.model.suspend(given["suspend"])
        self.model.give_back(given["give back"])

    def work_in_order(self, data: st.DataObject) -> None:
        agent, (instance, host), limit = self.process(data), self.an_instance(data), data.draw(limits, "limit")

        claimed = agent.queues.dequeue_ordered(self.hosts[host], instance, limit=limit)

        self.compare_claim(claimed, self.model.claim_line(host, instance, limit, self.clock))

    def settle_subqueue(self, data: st.DataObject) -> None:
        (line, instance), claimed = self.one_of(data, list(self.subqueues().items()), "line")
        tried = data.draw(st.lists(st.booleans(), max_size=4), "delivered")
        done = list(zip(claimed, tried, strict=False))
        completed, suspended = [each for each, good in done if good], [each for each, good in done if not good]
        rest = claimed[len(done) :]
        failed, wait = data.draw(st.booleans(), "failed"), data.draw(minutes, "blocked for")
        blocked = self.clock + wait if failed and rest else None
        outcome = settling.SubqueueOutcome(
            sequences(completed),
            [(number, "no") for number in sequences(suspended)],
            failed=rest[0].sequence if blocked else None,
            blocked_for=wait if blocked else None,
            reason="later" if blocked else None,
            untried=sequences(rest[1:] if blocked else rest),
        )

        settling.settle_subqueue(self.process(data), self.hosts[self.homes[instance]], instance, line, outcome)

        self.model.complete(completed)
        self.model.suspend(suspended)
        self.model.leave_lease(line, instance, rest, blocked)

    def settle_what_another_holds(self, data: st.DataObject) -> None:
        reference = self.one_of(data, self.model.all_at("claimed"), "reference")
        others = [
            each for each in self.homes if each not in (reference.holder, self.model.leases.get(reference.subqueue))
        ]
        instance = self.one_of(data, others, "instance")
        agent, host, number = self.process(data), self.hosts[reference.host], reference.sequence

        settling.complete(agent, host, instance, [number])
        settling.retry(agent, host, instance, [(number, AT_ONCE, "later")])
        settling.suspend(agent, host, instance, [(number, "no")])
        settling.give_back(agent, host, instance, [number])
        outcome = settling.SubqueueOutcome(failed=number, blocked_for=timedelta(days=2))
        settling.settle_subqueue(agent, host, instance, reference.subqueue, outcome)

    def requeue_due(self, data: st.DataObject) -> None:
        host = data.draw(hosts, "host")
        self.clock += data.draw(minutes, "passed")

        requeued = self.process(data).queues.requeue_due(self.hosts[host])

        assert requeued == self.model.requeue_due(host, self.clock)
        self.process(data).queues.unblock_subqueues(self.hosts[host])
        self.model.unblock_subqueues(host)

    # Suspended

    def resume(self, data: st.DataObject) -> None:
        chosen = self.some_suspended(data)

        assert self.process(data).suspended.resume(chosen) == self.model.resume(chosen)

    def route_again(self, data: st.DataObject) -> None:
        # What an instance ended without taking is routed by other rules: see tests/orchestration/test_discarded.py.
        discarded = {each.message for each in self.model.suspended(kinds={"discarded"})}
        chosen = [message for message in self.some_suspended(data) if message not in discarded]
        above = self.latest()

        routed = self.process(data).route_again(chosen)

        expected, given = self.model.route_again(chosen)
        assert routed == expected
        self.arrivals.append(Arrival(given, above))

    def terminate(self, data: st.DataObject) -> None:
        chosen = self.some_suspended(data)

        assert self.process(data).suspended.terminate(chosen) == self.model.terminate(chosen)

    def maintain(self, data: st.DataObject) -> None:
        data.draw(jobs, "job")(self.process(data)).run_once()
        self.compare_statistics()

    # Transactions that take their time

    def begin_to_publish(self, data: st.DataObject) -> None:
        agent, above = self.process(data), self.latest()
        content, failed = data.draw(documents, "content"), data.draw(failures, "failures")
        from_source = data.draw(st.booleans(), "from a source")
        publication = self.source(content, failed) if from_source else self.express(agent, "Sending", content, failed)
        connection = self.connect()

        published = publish(connection, agent.router(), [publication])

        arrived = partial(self.arrives, publication, self.expected(publication), published, above)
        self.open.append(OpenTransaction(connection, arrived, publication=publication))

    def begin_to_dequeue(self, data: st.DataObject) -> None:
        (instance, host), limit = self.an_instance(data), data.draw(limits, "limit")
        ready = self.model.ready(host, instance, limit, self.locked())
        connection, number = self.connect(), self.hosts[host]
        parameters = {
            "host": number, "host_instance": instance, "limit": limit,
            "subqueue": [-instance, 0] * len(PRIORITIES), "mark": [0, 0] * len(PRIORITIES), "services": [], "only": False,
            "priority": sorted([*PRIORITIES, *PRIORITIES]),
        }  # fmt: skip

        claimed = connection.execute(host_text("dequeue", number), parameters).fetchall()

        assert sorted(row[1] for row in claimed) == sorted(sequences(ready))
        self.open.append(OpenTransaction(connection, partial(self.model.claim, ready, instance), ready))

    def begin_to_complete(self, data: st.DataObject) -> None:
        instance, claimed = self.one_of(data, list(self.claims().items()), "claims")
        connection, host = self.connect(), self.hosts[self.homes[instance]]
        parameters = {"host": host, "host_instance": instance, "sequence": sequences(claimed), "claim": []}

        connection.execute(host_text("complete", host), parameters)

        self.open.append(OpenTransaction(connection, partial(self.model.complete, claimed), claimed))

    def end_transaction(self, data: st.DataObject) -> None:
        transaction = self.one_of(data, self.open, "transaction")
        if data.draw(st.booleans(), "commit"):
            self.commit(transaction)
        else:
            self.roll_back(transaction)


def sequences(references: Sequence[Reference]) -> list[int]:
    return [reference.sequence for reference in references]


@pytest.mark.slow
@pytest.mark.usefixtures("no_grace")
def test_messagebox_does_what_its_model_does(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "_LOCK_TIMEOUT", "2ms")
    monkeypatch.setattr(cleanup, "_KEPT_REMOVALS", 0)
    for module in (messages, queues):
        monkeypatch.setattr(module, "HELD_BYTES", 8)
    monkeypatch.setattr(store, "PART_LIMIT_BYTES", 8)
    # A verb that waits for a transaction left open would wait for ever.
    monkeypatch.setitem(messagebox_database._SESSION, "lock_timeout", "5s")
    drawn = count()  # what is drawn at random decides orders, and an example has to do the same again
    monkeypatch.setattr(lifeline, "randbelow", lambda _: next(drawn))
    with psycopg.connect(database) as connection:
        name = psycopg.sql.Identifier(connection.info.dbname)
        # Nobody pulls the plug here.
        connection.execute(psycopg.sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(name))

    class Machine(MessageBoxMachine):
        def __init__(self) -> None:
            super().__init__(database)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
            deadline=None,
            report_multiple_bugs=False,
            derandomize=False,  # new examples in every run: what is found becomes a test, see CONTRIBUTING.md
            print_blob=True,
        ),
    )
