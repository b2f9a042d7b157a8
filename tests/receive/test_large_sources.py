"""Sources that are too large to be read at once: range by range, each message once, whatever happens in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from uuid import UUID

import pytest

from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Published
from large_sources import CSV_ORDER, SMALL_IS_LARGE, last_ones, lines, listed, numbers, places, reasons, settled, worker

SUPPORT = Path(__file__).parents[1] / "support"
SOAK = bool(os.environ.get("CROSSDOCK_SOAK"))


def test_every_line_is_published_once_in_order_and_numbered_through(agent: Agent, database: str, folder: Path) -> None:
    item = listed(agent, folder, lines(200))

    outcomes = list(worker(agent).receive([item]))

    assert len(outcomes) > 10
    assert numbers(database) == list(range(200))
    assert places(database) == list(range(1, 201))
    assert last_ones(database) == [199]
    assert (settled(agent), agent.statistics().received) == (1, 200)


def test_short_line_after_the_last_full_range_is_published_too(agent: Agent, database: str, folder: Path) -> None:
    full = b"".join(b'{"n": %d, "fill": "%s"}\n' % (n, b"x" * 8) for n in range(10, 50))
    item = listed(agent, folder, full + b'{"n": 7}')
    assert len(full) == 40 * 30 == 4 * SMALL_IS_LARGE.range_bytes

    list(worker(agent).receive([item]))

    assert numbers(database) == [*range(10, 50), 7]
    assert last_ones(database) == [7]
    assert (settled(agent), agent.ledger.read(0, 2**62)) == (1, [])


@pytest.mark.parametrize("ranges", [0, 1, 5])
def test_worker_that_dies_in_the_middle_is_followed_by_one_that_goes_on(
    agent: Agent, database: str, folder: Path, ranges: int
) -> None:
    item = listed(agent, folder, lines(200))
    list(islice(worker(agent).receive([item]), ranges))
    assert (settled(agent), agent.statistics().unread) == (0, 1)
    assert agent.ledger.read(0, 2**62) == [item]
    agent.ledger.abandon([item.sequence] if ranges else [])

    list(worker(agent).receive([item]))

    assert numbers(database) == list(range(200))
    assert settled(agent) == 1


def test_ranges_of_another_length_after_an_upgrade_neither_overlap_nor_leave_gaps(
    agent: Agent, database: str, folder: Path
) -> None:
    item = listed(agent, folder, lines(200))
    list(islice(worker(agent).receive([item]), 3))
    stale = worker(agent).receive([item])
    next(stale)

    list(worker(agent, replace(SMALL_IS_LARGE, range_bytes=777)).receive([item]))
    list(stale)

    assert numbers(database) == list(range(200))


def test_tasks_that_work_on_the_same_source_at_once_publish_it_once(agent: Agent, database: str, folder: Path) -> None:
    item = listed(agent, folder, lines(500))

    def work(_: int) -> None:
        with Agent(database) as mine:
            list(worker(mine).receive([item]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    list(worker(agent).receive([item]))

    assert numbers(database) == list(range(500))
    assert (settled(agent), agent.statistics().received) == (1, 500)


def test_bad_line_is_suspended_with_its_place_in_the_file(agent: Agent, database: str, folder: Path) -> None:
    good = lines(100)
    listed_item = listed(agent, folder, good + b'{"n": oops}\n' + lines(3))

    list(worker(agent).receive([listed_item]))

    [row] = agent.suspended.messages()
    assert f"the line at byte {len(good) + 1} is not JSON" in row.reason
    assert agent.messages.load([row.id])[row.id].body == b'{"n": oops}'
    assert Counter(numbers(database)) == Counter([*range(100), *range(3)])


def test_line_longer_than_a_range_and_a_file_without_a_last_line_end(agent: Agent, database: str, folder: Path) -> None:
    long = b'{"n": 7, "fill": "' + b"x" * 2_000 + b'"}'
    item = listed(agent, folder, lines(5) + long + b"\n\n\n" + lines(2).rstrip(b"\n"))

    list(worker(agent).receive([item]))

    assert numbers(database) == [0, 1, 2, 3, 4, 7, 0, 1]
    assert settled(agent) == 1


def test_flat_file_whose_first_line_names_the_columns(agent: Agent, database: str, folder: Path) -> None:
    content = b"\xef\xbb\xbfn;x\n".replace(b";", b",") + b"".join(b"%d,abc\r\n" % n for n in range(300))
    item = listed(agent, folder, content, CSV_ORDER)

    list(worker(agent).receive([item]))

    assert numbers(database) == list(range(300))


@pytest.mark.parametrize(
    "content",
    [b"[" + b",".join(b'{"n": %d}' % n for n in range(300)) + b"]", b'{\n"n": 1, "fill": "' + b"x" * 5_000 + b'"}'],
    ids=["array", "document"],
)
def test_what_is_not_lines_is_read_whole(agent: Agent, database: str, folder: Path, content: bytes) -> None:
    item = listed(agent, folder, content)

    list(worker(agent).receive([item]))

    assert len(numbers(database)) == content.count(b'"n"')
    assert settled(agent) == 1


def test_source_that_vanishes_in_the_middle_stays_in_the_ledger_and_goes_on_when_it_is_back(
    agent: Agent, database: str, folder: Path
) -> None:
    item = listed(agent, folder, lines(200))
    list(islice(worker(agent).receive([item]), 3))
    (folder / "orders.txt").rename(folder / "elsewhere")

    [reason] = reasons(worker(agent).receive([item]))
    assert "is published in part and cannot be read on" in reason
    assert (settled(agent), agent.ledger.read(0, 2**62)) == (0, [item])
    (folder / "elsewhere").rename(folder / "orders.txt")
    list(worker(agent).receive([item]))

    assert numbers(database) == list(range(200))


@pytest.mark.parametrize("range_bytes", [300, 100_000])
def test_line_that_the_messagebox_cannot_hold_is_suspended_and_the_others_are_published(
    agent: Agent, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch, range_bytes: int
) -> None:
    item = listed(agent, folder, lines(300))
    publish = Agent.publish

    def picky(self: Agent, publications: list[Publication], **options: UUID | None) -> Published:
        if any(message.context.get("Amount") in (0, 77, 299) for each in publications for message in each.messages):
            raise ValueError("too odd")
        return publish(self, publications, **options)

    monkeypatch.setattr(Agent, "publish", picky)

    list(worker(agent, replace(SMALL_IS_LARGE, range_bytes=range_bytes)).receive([item]))

    rows = agent.suspended.messages()
    assert {row.reason for row in rows} == {"the MessageBox cannot hold it: ValueError: too odd"}
    bodies = [agent.messages.load([row.id])[row.id].body for row in rows]
    assert sorted(json.loads(body)["n"] for body in bodies) == [0, 77, 299]
    assert numbers(database) == sorted(set(range(300)) - {0, 77, 299})
    assert (sorted(places(database)), settled(agent)) == (list(range(1, 301)), 1)


def test_refused_range_leaves_no_collision_for_whoever_goes_on_after_a_crash(
    agent: Agent, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = listed(agent, folder, lines(200))
    publish = Agent.publish
    refused: list[int] = []

    def picky(self: Agent, publications: list[object], **options: int) -> object:
        if not refused:
            refused.append(1)
            raise ValueError("too odd")
        return publish(self, publications, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Agent, "publish", picky)
        list(islice(worker(agent).receive([item]), 3))
    list(worker(agent).receive([item]))

    assert agent.suspended.messages() == []
    assert (numbers(database), settled(agent)) == (list(range(200)), 1)


def test_second_attempt_that_is_overtaken_goes_on_until_all_is_published(
    agent: Agent, database: str, folder: Path
) -> None:
    item = listed(agent, folder, lines(200))
    first, second = worker(agent).receive([item]), worker(agent).receive([item])
    next(first)
    next(second)
    next(first)  # and now it is killed

    list(second)

    assert numbers(database) == list(range(200))
    assert settled(agent) == 1


def test_source_whose_pipeline_no_longer_reads_lines_half_way_is_not_read_whole(
    agent: Agent, database: str, folder: Path
) -> None:
    item = listed(agent, folder, lines(200))
    list(islice(worker(agent).receive([item]), 3))
    before = numbers(database)
    changed = worker(agent)
    changed._refresh()
    pipeline = replace(changed.locations[item.location_id].pipeline, standard=True)
    changed.locations[item.location_id] = replace(changed.locations[item.location_id], pipeline=pipeline)

    [reason] = reasons(changed.receive([item]))

    assert "is published in part and cannot be read on" in reason
    assert (numbers(database), settled(agent)) == (before, 0)


MEMORY = """
import re, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from crossdock.adapter.file.adapter import file_identity
from crossdock.dataflow.worker import Worker
from crossdock.messagebox.agent import Agent
from large_sources import listed

database, folder, megabytes = sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])

def most(name="VmHWM"):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

def forget_the_most():
    Path("/proc/self/clear_refs").write_text("5")

with Agent(database) as agent:
    line = b'{"n": 1, "fill": "' + b"x" * 10_000 + b'"}' + chr(10).encode()
    small = listed(agent, folder, line * 200)
    worker = Worker(agent)
    list(worker.receive([small]))  # what the first source of many lines takes: imports, compiled matching
    with (folder / "large.txt").open("wb") as file:
        for _ in range(megabytes * 100):
            file.write(line)
    size = (folder / "large.txt").stat().st_size
    agent.ledger.enter([(small.location_id, file_identity(folder / "large.txt"), size)])
    [item] = agent.ledger.read(small.sequence, 2**62)
    forget_the_most()
    before, peaks = most("VmRSS"), []
    for _ in worker.receive([item]):
        peaks.append(most() - before)
        forget_the_most()
    print(agent.statistics().received - 200, *peaks)
"""


@pytest.mark.slow
def test_file_of_lines_takes_little_memory_however_large_it_is(database: str, folder: Path) -> None:
    megabytes = 2_000 if SOAK else 150
    command = [sys.executable, "-c", MEMORY, str(SUPPORT), database, str(folder), str(megabytes)]

    received, *peaks = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())

    assert received == megabytes * 100
    assert max(peaks) < 120_000_000  # some copies of a range of 16 MB
    assert max(peaks) - max(peaks[:4]) < 10_000_000  # as much for the last range as for the first ones
