"""How large sources are cut into ranges: bounded in bytes and messages, whatever is blank, and whatever fails in them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Event

import pytest

from crossdock.adapter.file.adapter import file_identity
from crossdock.dataflow.outcome import RangeOutcome
from crossdock.dataflow.worker import Worker
from crossdock.errors import TransientError
from crossdock.message.columns import message_ids
from crossdock.message.message import message_id
from crossdock.messagebox.agent import Agent
from crossdock.pipeline.definition import RecordDefinition, SchemaDefinition
from crossdock.pipeline.document import Document
from crossdock.pipeline.receive import Component
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import ReceiveLocation
from crossdock.receive.ranges import RangeLimits
from large_sources import (
    CSV_ORDER,
    JSON_LINES,
    JSON_ORDER,
    last_ones,
    lines,
    listed,
    numbers,
    places,
    reasons,
    settled,
    worker,
)
from pipelines import fields

NUMBERS = RecordDefinition(columns=("n",), promote=fields({"Amount": ("decimal", "n")}))


@pytest.mark.parametrize("schema", [JSON_ORDER, SchemaDefinition(type="Order", format="flat", record=NUMBERS)])
def test_small_file_of_very_many_lines_is_published_in_ranges(
    agent: Agent, database: str, folder: Path, schema: SchemaDefinition
) -> None:
    limits = RangeLimits(large_bytes=1_000_000, range_bytes=1_000_000, range_messages=50)
    content = b"\n\n".join(b'{"n": %d}' % n if schema is JSON_ORDER else b"%d" % n for n in range(220)) + b"\n \n\n"
    item = listed(agent, folder, content, schema)

    outcomes = worker(agent, limits).receive([item])
    received = [outcome.received for outcome in outcomes if isinstance(outcome, RangeOutcome)]

    assert received == [50, 50, 50, 50, 20]
    assert numbers(database) == list(range(220))
    assert (places(database), last_ones(database), settled(agent)) == (list(range(1, 221)), [219], 1)


def test_small_file_of_very_many_lines_that_vanishes_in_the_middle_is_reported_and_goes_on_when_it_is_back(
    agent: Agent, database: str, folder: Path
) -> None:
    limits = RangeLimits(large_bytes=1_000_000, range_bytes=300, range_messages=50)
    item = listed(agent, folder, lines(200))
    list(islice(worker(agent, limits).receive([item]), 2))
    (folder / "orders.txt").rename(folder / "elsewhere")

    [reason] = reasons(worker(agent, limits).receive([item]))
    assert "is published in part and cannot be read on" in reason
    (folder / "elsewhere").rename(folder / "orders.txt")
    list(worker(agent, limits).receive([item]))

    assert (numbers(database), settled(agent)) == (list(range(200)), 1)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n" * 2_000, b"\r\n" * 1_000, b"\n" + b" " * 900])
@pytest.mark.parametrize("begin", [b"", b"\n" * 2_000, b" \n" * 1_000])
def test_message_before_blank_lines_at_the_end_is_the_last_one(
    agent: Agent, database: str, folder: Path, begin: bytes, end: bytes
) -> None:
    between = (b"\n" * 1_000).join([lines(10).rstrip(b"\n")] * 2)
    item = listed(agent, folder, begin + between + b'\n{"n": 10}' + end, JSON_LINES)

    list(worker(agent).receive([item]))

    assert numbers(database) == [*range(10), *range(10), 10]
    assert (places(database), last_ones(database)) == (list(range(1, 22)), [10])
    assert (settled(agent), agent.statistics().received) == (1, 21)


@pytest.mark.parametrize("content", [b"\n" * 5_000, b"\r\n \t" * 2_000])
def test_large_file_of_blank_lines_is_suspended_whole(agent: Agent, folder: Path, content: bytes) -> None:
    item = listed(agent, folder, content, JSON_LINES)

    list(worker(agent).receive([item]))

    [row] = agent.suspended.messages()
    assert (row.kind, row.reason) == ("receive", "the file holds no message")
    assert (agent.messages.load([row.id])[row.id].body, settled(agent)) == (content, 1)


def test_large_file_of_nothing_but_a_first_line_is_suspended(agent: Agent, folder: Path) -> None:
    item = listed(agent, folder, b"n,x\n" + b"\n" * 5_000, CSV_ORDER)

    list(worker(agent).receive([item]))

    [row] = agent.suspended.messages()
    assert (row.kind, row.reason) == ("receive", "the file holds no message")
    assert (agent.messages.load([row.id])[row.id].body.strip(), settled(agent)) == (b"n,x", 1)


def odd(document: Document) -> Document:
    """A component that fails in ways it should not."""
    number = json.loads(document.body)["n"]
    if number == 50:
        raise SystemExit(3)
    if number % 40 == 7:
        raise ZeroDivisionError("oops")
    return document


def endless(document: Document) -> Document:
    if json.loads(document.body)["n"] in (0, 30, 31, 199):
        while True:
            with suppress(Exception):
                Event().wait(60)
    return document


def with_component(agent: Agent, item: IntakeItem, component: Component, time_limit: float = 300) -> Worker:
    """A worker whose location runs this component, until it looks at the definitions again."""
    made = worker(agent)
    made._refresh()
    location = made.locations[item.location_id]
    pipeline = replace(location.pipeline, components=[component])
    made.locations[item.location_id] = replace(location, pipeline=pipeline, time_limit=time_limit)
    return made


def test_component_that_raises_fails_the_line_and_no_other(agent: Agent, database: str, folder: Path) -> None:
    item = listed(agent, folder, lines(200))

    list(with_component(agent, item, odd).receive([item]))

    rows = {
        json.loads(agent.messages.load([row.id])[row.id].body)["n"]: row.reason for row in agent.suspended.messages()
    }
    assert rows.pop(50) == "the pipeline failed: SystemExit: 3"
    assert rows == dict.fromkeys([7, 47, 87, 127, 167], "the pipeline failed: ZeroDivisionError: oops")
    assert numbers(database) == sorted(set(range(200)) - {7, 47, 50, 87, 127, 167})


def test_component_that_does_not_end_is_interrupted_and_just_that_line_is_suspended(
    agent: Agent, database: str, folder: Path
) -> None:
    item = listed(agent, folder, lines(200))

    list(with_component(agent, item, endless, time_limit=0.2).receive([item]))

    rows = {
        json.loads(agent.messages.load([row.id])[row.id].body)["n"]: row.reason for row in agent.suspended.messages()
    }
    assert rows == dict.fromkeys([0, 30, 31, 199], "the pipeline took more than 0.2 seconds")
    assert numbers(database) == sorted(set(range(200)) - rows.keys())
    assert (sorted(places(database)), settled(agent)) == (list(range(1, 201)), 1)


@pytest.mark.parametrize("place", [2**36, 2**39, 2**40])
def test_ids_differ_however_far_into_a_source_its_messages_are(agent: Agent, folder: Path, place: int) -> None:
    item = replace(listed(agent, folder, lines(8)), size=place + len(lines(8)))
    with (folder / "orders.txt").open("r+b") as sparse:
        sparse.seek(place)
        sparse.write(lines(8))
    item = replace(item, identity=file_identity(folder / "orders.txt"))
    location = ReceiveLocation.from_definition(*agent.configuration.locations()[0])

    begun, gone_on = (
        next(location.ranges(item, start, received, range_bytes=300) or iter(()))
        for start, received in ((0, 0), (place, 8))
    )

    ids = [message.id for range_ in (begun, gone_on) for message in range_.publication.messages]
    assert len(set(ids)) == len(ids) == 16
    assert sorted(ids) == ids
    assert {id_.version for id_ in ids} == {8}


def test_source_with_more_messages_than_ids_can_tell_apart_is_refused_before_an_id_repeats(
    agent: Agent, folder: Path
) -> None:
    item = listed(agent, folder, lines(8))
    far = replace(item, size=2**40 + item.size)
    location = ReceiveLocation.from_definition(*agent.configuration.locations()[0])
    with (folder / "orders.txt").open("r+b") as sparse:
        sparse.seek(2**40)
        sparse.write(lines(8))
    far = replace(far, identity=file_identity(folder / "orders.txt"))

    refused = location.ranges(far, 2**40, 2**35, range_bytes=300)

    with pytest.raises(TransientError, match=r"orders\.txt has more messages than ids can tell apart"):
        next(refused or iter(()))
    for ids in (message_id, lambda box, sequence, position: message_ids(box, sequence, [0, position])):
        with pytest.raises(OverflowError):
            ids(1, 2, 2**36)
