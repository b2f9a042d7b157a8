"""One suspended delivery at a time: a message at several ports, chosen by what it is, and two who act at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier, Event
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner

import acting
import settling
from box import AT_ONCE, count
from crossdock.administration import deliveries
from crossdock.administration.deliveries import chosen
from crossdock.administration.service import Administration, Selection
from crossdock.administration.suspended import list_groups, list_suspended
from crossdock.cli.app import app
from crossdock.errors import TransientError, UsageError
from crossdock.maintenance.references import CleanReferences
from crossdock.maintenance.suspended import PurgeOriginals
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Delivery
from express import a_message, at_ports, claim, delivered_now, deploy, kinds, living, port, publish, rows, unbalanced
from walk import until

NORWAY = {"Region": "NO"}
Result = TypeVar("Result")


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


def held_back(agent: Agent, *amounts: int, ports: tuple[str, ...] = ("A", "B")) -> list[str]:
    """The ids of messages with these amounts, each suspended at ports that are stopped."""
    deploy(agent, *(port(name, "Region = 'NO'") for name in ports))
    for name in ports:
        agent.subscriptions.stop(name)
    orders = [a_message(agent, {**NORWAY, "Amount": Decimal(n), "BTS.MessageType": "Order"}) for n in amounts or (1,)]
    publish(agent, *orders)
    return list(dict.fromkeys(str(row.id) for row in agent.suspended.messages()))


def refused(agent: Agent, *names: str, **kind: Any) -> None:
    """A message whose delivery each of these ports has refused."""
    deploy(agent, *(port(name, "Region = 'NO'", **kind) for name in names))
    publish(agent, NORWAY)
    with living(agent) as life:
        host = agent.configuration.hosts()["Default"]
        settling.suspend(agent, host, life.instance, [(each.sequence, "refused") for each in claim(agent, life)])


def both(first: Callable[[], Result], second: Callable[[], Result]) -> list[Result]:
    together = Barrier(2)

    def attempt(work: Callable[[], Result]) -> Result:
        together.wait()
        return work()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(attempt, (first, second)))


def command(database: str, *words: str, expected: int = 0, given: str | None = None) -> Any:
    done = CliRunner().invoke(app, [*words, "--database", database, "-o", "json"], input=given)
    assert done.exit_code == expected, (done.output, done.exception)
    return json.loads(done.stdout) if done.stdout.strip() else None


def test_message_at_several_ports_is_dealt_with_at_the_one_that_is_named(agent: Agent, database: str) -> None:
    [message] = held_back(agent)

    with pytest.raises(UsageError, match=f"Message {message} is suspended at 2 ports: A, B. Name one with --port NAME"):
        acting.resume(agent, [message])
    with pytest.raises(UsageError, match=f"Message {message} is not suspended at 'C', but at: A, B"):
        acting.resume(agent, [message], "C")
    [outcome] = acting.resume(agent, [message], "A")

    assert (outcome.port, outcome.result, outcome.done) == ("A", "queued again", True)
    assert (at_ports(agent), kinds(agent)) == ({"A": 1}, [("stopped", "B")])
    [ended] = acting.terminate(agent, [message])
    assert (ended.port, ended.result, kinds(agent)) == ("B", "terminated", [])
    assert unbalanced(database) == []


def test_each_act_is_recorded_with_its_port_and_what_it_was(agent: Agent) -> None:
    [message] = held_back(agent)
    acting.resume(agent, [message], "A")
    acting.terminate(agent, [message], "B")

    ended, resumed = (row for row in agent.audit.list() if row.action in ("resume", "terminate"))
    assert (resumed.target, resumed.application, resumed.after) == (message, "orders", {"state": "queued"})
    assert (resumed.before["port"], resumed.before["kind"]) == ("A", "stopped")
    assert (ended.target, ended.before["port"], ended.outcome) == (message, "B", "done")


@pytest.mark.parametrize("other", ["resume", "terminate"])
def test_of_two_who_act_on_one_delivery_one_wins(agent: Agent, database: str, other: str) -> None:
    held_back(agent, ports=("A",))
    [row] = agent.suspended.messages()
    second = agent.suspended.resume_deliveries if other == "resume" else agent.suspended.terminate_deliveries

    won = both(lambda: agent.suspended.resume_deliveries([row.delivery]), lambda: second([row.delivery]))

    assert sorted(map(len, won)) == [0, 1]
    assert len([each for each in agent.audit.list() if each.action in ("resume", "terminate")]) == 1
    assert at_ports(agent) == ({} if other == "terminate" and won[1] else {"A": 1})
    assert unbalanced(database) == []


def test_whoever_comes_late_hears_so_and_that_is_recorded(agent: Agent) -> None:
    [message] = held_back(agent, ports=("A",))
    found = chosen(agent, Selection([message]))
    acting.terminate(agent, [message])

    [outcome] = deliveries.resume(agent, found)

    assert (outcome.result, outcome.done) == ("resumed by somebody else", False)
    last = agent.audit.list()[0]
    assert (last.action, last.outcome, last.after) == ("resume", "refused", {"reason": "resumed by somebody else"})


def test_delivery_that_is_not_there_is_left_alone(agent: Agent) -> None:
    held_back(agent, ports=("A",))

    assert agent.suspended.resume_deliveries([Delivery(99, 1), Delivery(1, 10**12)]) == {}
    assert agent.suspended.terminate_deliveries([Delivery(99, 1)]) == {}
    assert kinds(agent) == [("stopped", "A")]


def test_many_are_chosen_by_filter_port_code_type_and_time(agent: Agent) -> None:
    held_back(agent, 5, 500, 5000)

    def amounts(**wanted: Any) -> list[Any]:
        return [int(row.promoted["Amount"]) for row in chosen(agent, Selection(**wanted)) if row.promoted]  # type: ignore[arg-type]

    assert amounts(where="Amount > 100", port="A") == [500, 5000]
    assert amounts(code="port-stopped", port="B") == [5, 500, 5000]
    assert amounts(type="Order", where="Amount = 5", everything=True) == [5, 5]
    assert amounts(since="1h", port="A") == [5, 500, 5000]
    for nothing in ({"type": "Invoice"}, {"since": "2999-01-01"}, {"code": "none"}, {"port": "C"}):
        with pytest.raises(UsageError, match="Nothing that is suspended matches"):
            amounts(**nothing)
    with pytest.raises(UsageError, match="Name messages by their ids, or choose them with"):
        amounts()
    with pytest.raises(UsageError, match="--where: property 'Amuont' is not declared"):
        amounts(where="Amuont > 1")


def test_stopped_bulk_act_has_done_whole_batches_and_says_which(
    agent: Agent, service: Administration, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH", 3)
    held_back(agent, *range(10), ports=("A",))
    stop = Event()
    what = service.choose("resume", Selection(everything=True))
    outcomes = []

    for outcome in service.resume(what, stop=stop):
        outcomes.append(outcome)
        if len(outcomes) == 4:
            stop.set()

    assert [each.done for each in outcomes] == [True] * 6
    assert (at_ports(agent), len(kinds(agent))) == ({"A": 6}, 4)
    begun = next(row for row in agent.audit.list() if row.outcome == "begun")
    assert (begun.target, begun.after) == ("--all", {"deliveries": 10})
    assert unbalanced(database) == []


def test_bulk_act_that_is_killed_in_a_batch_has_done_the_batches_before_and_goes_on_when_asked_again(
    agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BATCH", 3)
    held_back(agent, *range(10), ports=("A",))
    fifth = agent.suspended.messages()[4].sequence
    waits = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    done = []

    def act() -> None:
        with Agent(database, connections=1) as doomed:
            for outcome in deliveries.terminate(doomed, chosen(doomed, Selection(everything=True))):
                done.append(outcome)  # noqa: PERF402 - one by one, as they come

    with (
        psycopg.connect(database, options="-csearch_path=crossdock") as holder,
        psycopg.connect(database, autocommit=True) as killer,
        ThreadPoolExecutor(1) as aside,
    ):
        holder.execute("SELECT FROM suspended WHERE sequence = %s FOR UPDATE", [fifth])
        acts = aside.submit(act)
        until(lambda: killer.execute(waits).fetchone() is not None, 30)
        killer.execute(f"SELECT pg_terminate_backend(pid) FROM ({waits}) AS waiting".encode())
        with pytest.raises(TransientError):
            acts.result(60)

    assert (len(done), len(kinds(agent))) == (3, 7)
    assert len(acting.terminate(agent, [str(row.id) for row in agent.suspended.messages()])) == 7
    assert len([row for row in agent.audit.list() if row.action == "terminate"]) == 10
    assert unbalanced(database) == []


def test_rate_is_kept(agent: Agent) -> None:
    held_back(agent, *range(3), ports=("A",))
    found = chosen(agent, Selection(everything=True))

    class Waiting(Event):
        waited = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            self.waited += timeout or 0
            return False

    stop = Waiting()
    done = list(deliveries.resume(agent, found, rate=0.5, stop=stop))

    assert len(done) == 3
    assert 2.0 <= stop.waited <= 6.0


def test_hundred_thousand_are_listed_by_page_and_counted_by_group(agent: Agent, database: str) -> None:
    [message] = held_back(agent, ports=("A",))
    [row] = agent.suspended.messages()
    copy = (
        "INSERT INTO suspended (host_id, kind, code, message_id, subscription_id, service_id, reason)"
        " SELECT host_id, kind, CASE WHEN n %% 2 = 0 THEN code ELSE 'delivery-failed' END, message_id, subscription_id, service_id,"
        " reason FROM suspended, generate_series(2, 100000) AS n RETURNING 1"
    )
    rows(database, copy)
    with psycopg.connect(database, options="-csearch_path=crossdock", autocommit=True) as connection:
        connection.execute("ANALYZE suspended")

    first = list_suspended(agent, limit=100)
    second = list_suspended(agent, limit=100, after=first[-1].sequence)
    last = list_suspended(agent, limit=100, after=row.sequence + 99_950)

    assert (first[0].id, len(first), len(second), len(last)) == (message, 100, 100, 49)
    assert first[-1].sequence < second[0].sequence
    assert [(group.group, group.count) for group in list_groups(agent, "code")] == [
        ("port-stopped", 50_001), ("delivery-failed", 49_999)
    ]  # fmt: skip
    with psycopg.connect(database, options="-csearch_path=crossdock", autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        plan = connection.execute(
            "EXPLAIN SELECT * FROM suspended WHERE sequence > %s ORDER BY sequence LIMIT 100", [first[-1].sequence]
        ).fetchall()
    assert "Sort" not in str(plan)


def test_groups_are_by_code_port_and_type_and_by_nothing_else(agent: Agent) -> None:
    messages = held_back(agent, 1, 2)

    assert [(each.group, each.count) for each in list_groups(agent, "port")] == [("A", 2), ("B", 2)]
    [group] = list_groups(agent, "type")
    assert (group.group, group.count, group.sample) == ("Order", 4, messages[0])
    assert group.first is not None
    with pytest.raises(UsageError, match="Nothing is grouped by 'day'"):
        list_groups(agent, "day")


def test_command_line_asks_counts_and_says_what_became_of_each(agent: Agent, database: str) -> None:
    first, second, third = held_back(agent, 5, 500, 5000, ports=("A",))

    with pytest.raises(AssertionError, match="Give --yes"):
        command(database, "resume", "--where", "Amount > 100")
    resumed = command(database, "resume", "--where", "Amount > 1000", "--yes")
    read = command(database, "terminate", "-", given=f"{second}\n\n")

    assert [(each["id"], each["result"]) for each in resumed] == [(third, "queued again")]
    assert [(each["id"], each["port"], each["done"]) for each in read] == [(second, "A", True)]
    assert [row["id"] for row in command(database, "get", "suspended", "--port", "A", "--limit", "1")] == [first]
    assert [row["count"] for row in command(database, "get", "suspended", "--by", "code")] == [1]


def test_page_of_the_command_line_says_where_the_next_begins(agent: Agent, database: str) -> None:
    held_back(agent, 1, 2, 3, ports=("A",))
    run = CliRunner()

    page = run.invoke(app, ["get", "suspended", "--limit", "2", "-o", "json", "--database", database])
    rest = run.invoke(app, [*page.stderr.split("crossdock ")[1].split(), "-o", "json", "--database", database])

    assert (len(json.loads(page.stdout)), len(json.loads(rest.stdout))) == (2, 1)


def test_what_waits_says_why_which_attempt_and_when(agent: Agent) -> None:
    deploy(agent, port("A", "Region = 'NO'"))
    publish(agent, NORWAY)
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        [reference] = claim(agent, life)
        settling.retry(agent, host, life.instance, [(reference.sequence, AT_ONCE, "partner is down")])

    [waiting] = agent.configuration.list_waiting()

    assert (waiting.id, waiting.port, waiting.attempt) == (reference.message.id, "A", 2)
    assert (waiting.reason, waiting.blocked_by) == ("partner is down", None)
    assert waiting.due_at is not None
    assert agent.configuration.list_waiting(port="B") == []


def test_ordered_port_that_is_blocked_says_by_what(agent: Agent) -> None:
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish(agent, NORWAY, NORWAY, NORWAY)
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        [failed] = agent.queues.dequeue_ordered(host, life.instance, limit=1)
        outcome = settling.SubqueueOutcome(suspended=[(failed.sequence, "refused")], stopped_by=failed.sequence)
        settling.settle_subqueue(agent, host, life.instance, failed.service_id, outcome)

    [shown] = agent.configuration.list_ports()
    [waiting] = agent.configuration.list_waiting()

    assert shown.blocked == f"by suspended message {failed.message.id}"
    assert (shown.ready, shown.waiting, shown.suspended) == (0, 2, 1)
    assert (waiting.port, waiting.blocked_by, waiting.behind, waiting.due_at) == ("Line", failed.message.id, 1, None)
    acting.terminate(agent, [str(failed.message.id)])
    agent.queues.unblock_subqueues(host)
    [shown] = agent.configuration.list_ports()
    assert (shown.blocked, shown.ready, shown.waiting, shown.suspended) == (None, 2, 0, 0)


# Edited


def test_edited_delivery_goes_to_its_one_subscriber_and_the_others_keep_the_original(
    agent: Agent, service: Administration, database: str
) -> None:
    [message] = held_back(agent)

    edited = service.edit(service.editable(message, "A"), body=b"mended", properties=["Amount=7"])

    assert (edited.id, edited.port, edited.kept) == (message, "A", {"Region": "NO", "BTS.MessageType": "Order"})
    [delivered] = delivered_now(agent)
    assert (str(delivered.message.id), delivered.message.body) == (edited.edited_id, b"mended")
    assert delivered.message.context.promoted["Amount"] == Decimal(7)
    assert [(str(row.id), row.port) for row in agent.suspended.messages()] == [(message, "B")]
    assert agent.messages.load([UUID(message)])[UUID(message)].body == b"content"
    assert unbalanced(database) == []
    [original], [mended] = agent.track.find([UUID(message)]), agent.track.find([delivered.message.id])
    assert mended.parents == (original.id,)
    assert [each.event for each in agent.track.events([original])][-1] == "edited"
    assert [each.event for each in agent.track.events([mended])] == ["delivered"]


def test_edited_delivery_is_tracked_with_what_took_its_place(agent: Agent, service: Administration) -> None:
    [message] = held_back(agent)
    edited = service.edit(service.editable(message, "A"), body=b"mended", properties=["Amount=7"])
    delivered_now(agent)

    [old, new] = (agent.track.find([UUID(each)])[0] for each in (message, edited.edited_id))

    assert "edited" in [event.event for event in agent.track.events([old])]
    assert [event.event for event in agent.track.events([new])] == ["delivered"]
    assert new.parents == (UUID(message),)
    assert [child.id for child in agent.track.children(UUID(message))] == [UUID(edited.edited_id)]
    assert len(new.routes) == 1


def test_edited_delivery_keeps_its_place_in_the_order(agent: Agent, service: Administration) -> None:
    refused(agent, "Unordered")
    deploy(agent, port("Line", "Region = 'NO'", ordered=True))
    publish(agent, NORWAY, NORWAY)
    host = agent.configuration.hosts()["Default"]
    with living(agent) as life:
        [failed] = agent.queues.dequeue_ordered(host, life.instance, limit=1)
        outcome = settling.SubqueueOutcome(suspended=[(failed.sequence, "refused")], stopped_by=failed.sequence)
        settling.settle_subqueue(agent, host, life.instance, failed.service_id, outcome)

        edited = service.edit(service.editable(str(failed.message.id), None), body=b"mended", properties=[])
        agent.queues.unblock_subqueues(host)
        line = agent.queues.dequeue_ordered(host, life.instance, limit=10)

    assert [each.message.body for each in line] == [b"mended", b"content"]
    assert (line[0].sequence, str(line[0].message.id)) == (failed.sequence, edited.edited_id)


def test_second_edit_is_refused_and_of_two_at_once_one_wins(
    agent: Agent, service: Administration, database: str
) -> None:
    [message] = held_back(agent, ports=("A",))
    what = service.editable(message, None)

    def attempt(body: bytes) -> str:
        try:
            return service.edit(what, body=body, properties=[]).result
        except UsageError as error:
            return str(error)

    results = both(lambda: attempt(b"one"), lambda: attempt(b"two"))

    assert sorted(each == "edited and queued again" for each in results) == [False, True]
    assert any("somebody has dealt with it meanwhile" in each for each in results)
    with pytest.raises(UsageError, match=f"No message {message} is suspended"):
        service.editable(message, None)
    assert (at_ports(agent), count(database, "original")) == ({"A": 1}, 1)
    assert unbalanced(database) == []


def test_of_an_edit_and_a_resume_one_wins(agent: Agent, service: Administration, database: str) -> None:
    [message] = held_back(agent, ports=("A",))
    [row] = agent.suspended.messages()
    what = service.editable(message, None)

    def edit() -> bool:
        try:
            return bool(service.edit(what, body=b"mended", properties=[]))
        except UsageError:
            return False

    won = both(edit, lambda: bool(agent.suspended.resume_deliveries([row.delivery])))

    assert sorted(won) == [False, True]
    [delivered] = delivered_now(agent)
    assert delivered.message.body == (b"mended" if won[0] else b"content")
    assert unbalanced(database) == []


@pytest.mark.parametrize("size", [10, 3 * 1024 * 1024])
def test_original_of_an_edited_message_is_kept_until_it_is_old(
    agent: Agent, service: Administration, database: str, size: int
) -> None:
    [message] = held_back(agent, ports=("A",))
    edited = service.edit(service.editable(message, None), body=b"x" * size, properties=[])
    [delivered] = agent.messages.load([UUID(edited.edited_id)]).values()
    assert delivered.body == b"x" * size
    delivered_now(agent)
    for _ in range(2):
        CleanReferences(agent).run_once()
    assert agent.messages.present([UUID(message), UUID(edited.edited_id)]) == {UUID(message)}

    assert (PurgeOriginals(agent).run_once(), PurgeOriginals(agent, AT_ONCE).run_once()) == (0, 1)
    for _ in range(2):
        CleanReferences(agent).run_once()

    assert (count(database, "message"), count(database, "part"), count(database, "fragment")) == (0, 0, 0)


def test_what_cannot_be_edited_is_refused_with_the_next_step(agent: Agent, service: Administration) -> None:
    deploy(agent, port("Sweden", "Region = 'SE'"))
    publish(agent, NORWAY)
    [unrouted] = agent.suspended.messages()
    with pytest.raises(UsageError, match=f"its kind is unrouted. Save it with: crossdock save {unrouted.id}"):
        service.editable(str(unrouted.id), None)
    acting.terminate(agent, [str(unrouted.id)])
    [message] = held_back(agent, ports=("A",))
    what = service.editable(message, None)

    with pytest.raises(UsageError, match="Nothing was changed"):
        service.edit(what, body=b"content", properties=["Amount=1"])
    with pytest.raises(UsageError, match="There is no property 'Amuont'"):
        service.edit(what, body=None, properties=["Amuont=1"])
    assert kinds(agent) == [("stopped", "A")]


def test_edit_on_the_command_line_opens_an_editor(agent: Agent, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [message] = held_back(agent, ports=("A",))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sh -c 'printf mended > \"$0\"'")

    edited = command(database, "edit", message, "--port", "A", "--as", "ann")

    [delivered] = delivered_now(agent)
    assert (delivered.message.body, edited["edited_id"]) == (b"mended", str(delivered.message.id))
    read, changed = sorted(
        (row for row in agent.audit.list() if row.action in ("read", "edit")), key=lambda row: row.number
    )
    assert (read.action, changed.person, changed.after["message"]) == ("read", "ann", edited["edited_id"])
