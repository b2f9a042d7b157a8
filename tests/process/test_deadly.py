"""Sources that end the process which reads them: each is suspended after a few attempts, and everything else goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import psycopg
import pytest

from crossdock.dataflow.worker import Worker
from crossdock.errors import TransientError
from crossdock.messagebox.agent import Agent
from large_sources import lines, numbers, places, reasons, settled
from large_sources import listed as large_listed
from large_sources import worker as large_worker
from small_sources import deployed, listed
from walk import Walk, expected

REASON = "reading it ended the process, 2 times by itself; it was not tried again"
ATTEMPTS = 40
# What a Spark task does with all sources in the ledger, as an attempt after the first.
TASK = """
import os, signal, sys
from dataclasses import replace
from crossdock.dataflow import worker as working
from crossdock.messagebox.agent import Agent
from crossdock.receive import time_limit
from crossdock.receive.ranges import RangeLimits
from lxml import etree

working._CAREFUL_MESSAGES = 5
time_limit.LAST_RESORT_SECONDS = 1
QUADRATIC = etree.XSLT(etree.XML(
    '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/">'
    '<xsl:for-each select="//x"><xsl:value-of select="count(preceding-sibling::x)"/></xsl:for-each>'
    '</xsl:template></xsl:stylesheet>'
))

def deadly(document):
    if b"deadly" in document.body:
        os.kill(os.getpid(), signal.SIGKILL)
    if b"endless" in document.body:
        QUADRATIC(etree.fromstring("<q>" + "<x/>" * 400_000 + "</q>"))  # minutes in C, which no signal interrupts
    return document

def work(database, *, carefully):
    with Agent(database) as agent:
        limits = RangeLimits(large_bytes=1_000, range_bytes=3_000)
        worker = working.Worker(agent, time_limit=1, range_limits=limits)
        worker._refresh()
        for id_, location in worker.locations.items():
            worker.locations[id_] = replace(location, pipeline=replace(location.pipeline, components=[deadly]))
        for _ in worker.receive(agent.ledger.read(0, 2**62), carefully=carefully):
            pass

for number in range(int(sys.argv[2])):
    process = os.fork()  # what is imported is imported once; each attempt is a process of its own all the same
    if process == 0:
        work(sys.argv[1], carefully=number % 4 > 0)  # after four attempts Spark gives up, and the query begins anew
        os._exit(0)
    if os.waitpid(process, 0)[1] == 0:
        print(number)
        break
"""


def deaths(database: str) -> int:
    """How many processes end before one is through: the first as any task, the others as Spark would repeat it."""
    command = [sys.executable, "-c", TASK, database, str(ATTEMPTS)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    assert ended, "it never ends"
    return int(ended)


def test_source_that_ended_the_process_twice_by_itself_is_suspended_unread_and_the_others_are_published(
    agent: Agent, database: str, folder: Path
) -> None:
    deployed(agent, folder)
    listed(agent, folder, a=b"{}", b=b'{"deadly": 0}\n{}', c=b"{}", d=b'{"deadly": 1}', e=b"{}")

    assert deaths(database) == 5  # three for the first, and two for the second, which is tried by itself at once

    bodies = {agent.messages.load([row.id])[row.id].body: (row.kind, row.reason) for row in agent.suspended.messages()}
    assert bodies == dict.fromkeys([b'{"deadly": 0}\n{}', b'{"deadly": 1}'], ("receive", REASON))
    assert (agent.statistics().published, settled(agent), agent.ledger.read(0, 2**62)) == (3, 5, [])


def test_source_that_keeps_code_in_c_busy_for_ever_ends_its_process_and_is_set_aside(
    agent: Agent, database: str, folder: Path
) -> None:
    deployed(agent, folder)
    listed(agent, folder, a=b"{}", b=b'{"endless": 0}', c=b"{}")

    assert deaths(database) == 3

    [suspended] = agent.suspended.messages()
    assert (suspended.kind, suspended.reason) == ("receive", REASON)
    assert (agent.statistics().published, settled(agent), agent.ledger.read(0, 2**62)) == (2, 3, [])


def test_large_source_goes_on_behind_the_lines_that_ended_the_process(
    agent: Agent, database: str, folder: Path
) -> None:
    deadly = b'{"n": 1000, "deadly": true}\n'
    large_listed(agent, folder, lines(103) + deadly + lines(200) + deadly)

    assert deaths(database) <= 8

    rows = agent.suspended.messages()
    assert {row.reason for row in rows} == {REASON}
    suspended = [json.loads(agent.messages.load([row.id])[row.id].body)["n"] for row in rows]
    assert (suspended.count(1000), len(suspended) <= 10) == (2, True)
    kept = sorted(number for number in suspended if number < 1000)
    assert sorted([*kept, *numbers(database)]) == sorted([*range(103), *range(200)])
    assert (sorted(places(database)), settled(agent)) == (list(range(1, 306)), 1)


def test_attempt_that_fails_without_ending_the_process_does_not_count(
    agent: Agent, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(agent, folder)
    listed(agent, folder, a=b"{}")
    worker = Worker(agent)

    def away(*_: object, **__: object) -> None:
        raise TransientError("The MessageBox cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(Agent, "publish", away)
        for _ in range(5):
            with pytest.raises(TransientError):
                list(worker.receive(agent.ledger.read(0, 2**62), carefully=True))
    with psycopg.connect(database, options="-csearch_path=crossdock") as connection:
        assert connection.execute("SELECT attempts FROM intake").fetchall() == [(0,)]
    list(worker.receive(agent.ledger.read(0, 2**62), carefully=True))

    assert (agent.statistics().published, agent.suspended.messages()) == (1, [])


def test_source_that_is_published_in_part_and_away_is_not_taken_for_one_that_ends_the_process(
    agent: Agent, database: str, folder: Path
) -> None:
    item = large_listed(agent, folder, lines(200))
    list(islice(large_worker(agent).receive([item]), 3))
    (folder / "orders.txt").rename(folder / "elsewhere")

    for _ in range(5):
        [reason] = reasons(large_worker(agent).receive(agent.ledger.read(0, 2**62), carefully=True))
        assert "cannot be read on" in reason
    (folder / "elsewhere").rename(folder / "orders.txt")
    list(large_worker(agent).receive(agent.ledger.read(0, 2**62), carefully=True))

    assert (numbers(database), agent.suspended.messages()) == (list(range(200)), [])


@pytest.mark.process
def test_run_gets_through_with_sources_that_end_the_workers_of_spark(folder: Path) -> None:
    walk = Walk(folder)
    (folder / "ends.py").write_text(
        "import os, signal\n"
        "def ends(document):\n"
        "    if b'exit' in document.body:\n"
        "        os._exit(3)\n"
        "    if b'crash' in document.body:\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if b'quit' in document.body:\n"
        "        raise SystemExit(3)\n"
        "    return document\n"
    )
    application = (folder / "orders.yaml").read_text()
    changed = application.replace("pipeline: json", "pipeline: own")
    assert changed != application
    own = 'pipelines: [{name: own, disassemble: json, components: ["ends:ends"]}]\n'
    (folder / "orders.yaml").write_text(changed + own)
    walk.put_orders(60)
    for name in ("exit", "crash", "quit"):
        walk.put(f"{name}.json", b'{"id": "%s"}' % name.encode())

    code, summary = walk.run()

    assert (code, summary["received"], summary["published"]) == (3, 63, 60)
    rows = {Path(row["source_file"]).stem: row["reason"] for row in walk.get("suspended")}
    assert rows == {"exit": REASON, "crash": REASON, "quit": "the pipeline failed: SystemExit: 3"}
    assert walk.delivered("all") == expected(60)[0]
    assert walk.waiting_input() == []
