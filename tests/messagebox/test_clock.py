"""One clock for everybody, `clock()` in the MessageBox: nobody asks another, and it may be set back."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import crossdock
import settling
from crossdock.errors import TransientError
from crossdock.host.outcome import Retry
from crossdock.messagebox import settle
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.box import Box
from crossdock.messagebox.cleanup import Cleanup
from crossdock.messagebox.configuration import Configuration
from crossdock.messagebox.ledger import Ledger
from crossdock.messagebox.messages import Messages
from crossdock.messagebox.queues import Queues
from crossdock.messagebox.subscriptions import Subscriptions
from crossdock.messagebox.suspended import Suspended
from express import claim, deploy, living, port, rows
from server_clock import shift_clock
from service import Partner, publish_named, running
from walk import until

SOURCE = Path(crossdock.__file__).parent
# The first migration that knows clock(); those before it stay as they were released.
CLOCK_MIGRATION = "0016"
# How old a file is can only be asked of the machine that has it; %datetime% is a name, not a time that counts.
# The second draws ids that sort by time: nobody compares them with a time.
MAY_ASK_THE_MACHINE = ("adapter/file", "messagebox/instance_rows.py")
WALL_CLOCK = {
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("time", "time"),
    ("time", "time_ns"), ("time", "localtime"), ("time", "gmtime"), ("time", "ctime"), ("time", "strftime"),
}  # fmt: skip
# Questions about the past name its times: the window of a search, and when something was done.
PAST = re.compile(r"%\((since|until)\)s::timestamptz|%\(at\)s::timestamptz\[\]")
SERVER_CLOCK = re.compile(
    r"(?<![.\w])now\(\)|current_(timestamp|date|time)\b|localtime|(clock|statement|transaction)_timestamp|%\(now\)s"
    r"|%\(\w+\)s::timestamp|'now'",
    re.IGNORECASE,
)
SECONDS = timedelta(seconds=3)
SET_BACK = timedelta(hours=-2)


def test_no_code_asks_its_machine_for_the_time() -> None:
    asking = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and (getattr(node.value, "id", None), node.attr) in WALL_CLOCK)
        or (isinstance(node, ast.ImportFrom) and any((node.module, each.name) in WALL_CLOCK for each in node.names))
    }

    assert [path for path in sorted(asking) if not path.startswith(MAY_ASK_THE_MACHINE)] == []


def test_no_statement_asks_any_other_clock() -> None:
    texts = {path: path.read_text() for path in SOURCE.joinpath("messagebox").rglob("*.sql")}
    texts |= {
        path: path.read_text() for path in SOURCE.joinpath("messagebox").glob("*.py") if path.name != "migrate.py"
    }
    body = re.compile(r"^CREATE (OR REPLACE )?FUNCTION clock\(\).*$", re.MULTILINE)

    asking = {
        path.name: found.group()
        for path, text in texts.items()
        if path.parent.name != "migrations" or path.name >= CLOCK_MIGRATION
        if (found := SERVER_CLOCK.search(body.sub("", re.sub(r"--.*", "", PAST.sub("", text)))))
    }

    assert asking == {}


def test_no_verb_of_the_agent_takes_a_time() -> None:
    parts = (Agent, Box, Cleanup, Configuration, Ledger, Messages, Queues, Subscriptions, Suspended)
    verbs = [each for part in parts for each in inspect.getmembers(part, inspect.isfunction)]

    given = {name: list(inspect.signature(verb).parameters.values()) for name, verb in verbs if name != "versions"}

    assert [name for name, parameters in given.items() if any("datetime" in str(each) for each in parameters)] == []


def test_clock_that_is_set_back_does_not_keep_what_a_dead_host_had(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, "1", "2", "3")
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        assert len(claim(agent, life)) == 3
        assert len(agent.queues.dequeue_ordered(host, life.instance, limit=2)) == 2
        shift_clock(database, SET_BACK)

    until(lambda: agent.queues.any_dead(host), 10)
    assert agent.queues.release_dead(host) == 5

    with living(agent) as life:
        assert len(claim(agent, life)) == 3
        assert len(agent.queues.dequeue_ordered(host, life.instance, limit=9)) == 3


def test_who_was_last_heard_of_in_the_future_is_silent_until_it_says_something(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    with living(agent) as hangs, living(agent) as works:
        shift_clock(database, SET_BACK)
        works.check("running", 0)
        alone, shown = works.living(SECONDS), sorted(states(agent))
        hangs.check("running", 0)
        both = works.living(SECONDS)

    assert (alone, shown) == ([works.instance], ["running", "silent"])
    assert both == [hangs.instance, works.instance]


def test_who_has_begun_in_the_future_keeps_its_part_and_who_has_just_come_has_none(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    with living(agent) as old:
        shift_clock(database, SET_BACK)
        old.check("running", 0)
        with living(agent) as new:
            found = new.living(timedelta(hours=1))

    assert found == [old.instance]


def states(agent: Agent) -> list[str]:
    [host] = agent.configuration.list_hosts()
    return [each.state for each in host.instances]


def test_lines_take_turns_though_the_clock_is_set_back(agent: Agent, database: str) -> None:
    names = ("A", "B", "C")
    deploy(agent, *(port(name, "Region = 'NO'", ordered=True) for name in names))
    publish_named(agent, *map(str, range(6)))
    services = dict(rows(database, "SELECT id, name FROM service"))
    with living(agent) as life:
        turns = [services[one_of_a_line(agent, life.instance)] for _ in names]
        shift_clock(database, SET_BACK)
        turns += [services[one_of_a_line(agent, life.instance)] for _ in (*names, *names)]

    assert turns == [*names, *names, *names]


def one_of_a_line(agent: Agent, instance: int) -> int:
    """Deliver one message of the line whose turn it is; gives the line."""
    host = agent.configuration.hosts()["Default"]
    [reference] = agent.queues.dequeue_ordered(host, instance, limit=1)
    settling.settle_subqueue(agent, host, instance, reference.subqueue, settling.SubqueueOutcome([reference.sequence]))
    return reference.subqueue


def test_claim_says_what_time_it_is_and_the_time_goes_on(agent: Agent, database: str) -> None:
    deploy(agent, port("A", "Region = 'NO'"), port("Line", "Region = 'NO'", ordered=True))
    publish_named(agent, *map(str, range(30)))
    shift_clock(database, timedelta(days=400))
    host = agent.configuration.hosts()["Default"]

    with living(agent) as life:
        few, many = claim(agent, life, limit=1), claim(agent, life)
        line = agent.queues.dequeue_ordered(host, life.instance, limit=1)
        [(before,)] = rows(database, "SELECT clock()")

        for [first, *_] in (few, many, line):
            told = first.claimed_at.now()
            [(after,)] = rows(database, "SELECT clock()")
            assert before - SECONDS < first.claimed_at.said <= before
            assert first.claimed_at.said < told <= after
            assert first.claimed_at.now() > told


class Forgetful(Agent):
    """Loses its connection whenever an outcome is to be recorded, until it is told to work."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.queues = ForgetfulQueues(self._database, self.messages)
        self.queues.agent = self
        self.failures, self.works = 0, Event()

    def lose(self) -> None:
        if not self.works.is_set():
            self.failures += 1
            raise TransientError("The connection is lost.")


class ForgetfulQueues(Queues):
    agent: Forgetful

    def settle(self, *arguments: Any, **options: Any) -> None:
        if any(isinstance(outcome, settle.Retry) for outcome in arguments[1]):
            self.agent.lose()
        super().settle(*arguments, **options)


def test_next_attempt_counts_from_the_failure_however_long_recording_it_takes(database: str) -> None:
    hour = timedelta(hours=1)
    partner = Partner(lambda _, __: Retry(hour, "down"))
    for ordered in (False, True):
        with Forgetful(database) as agent:
            deploy(agent, port("A", "Region = 'NO'", ordered=ordered))
            publish_named(agent, "m")
            with running(agent, partner):
                until(lambda: agent.failures == 4, 30)
                [(recorded_after,)] = rows(database, "SELECT clock()")
                agent.works.set()
                until(lambda: due(database) != [], 30)
            [(due_at,)] = due(database)

        assert due_at - hour < recorded_after - timedelta(seconds=0.1)  # it was tried again and again since
        rows(database, "DELETE FROM scheduled RETURNING 1")


def due(database: str) -> Sequence[tuple[Any, ...]]:
    waiting = (
        "SELECT due_at FROM scheduled UNION SELECT blocked_until FROM subqueue_lease WHERE blocked_until IS NOT NULL"
    )
    return rows(database, waiting)
