"""The walk of one order names figures: each is what the code has, and none is named that this file does not know."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from crossdock.adapter.file.transport import MINIMUM_AGE_SECONDS
from crossdock.application import runtime
from crossdock.dataflow import pending, receive, session, source
from crossdock.host.limits import DEFAULT_LIMITS
from crossdock.maintenance.references import CleanReferences
from crossdock.maintenance.schedule import all_jobs
from crossdock.message.message import POSITION_LOW_BITS, POSITIONS, RANDOM_BITS, message_id
from crossdock.messagebox import claims, ledger, outage, queues
from crossdock.messagebox.agent import Agent
from crossdock.pipeline.limits import TOGETHER_BYTES
from crossdock.send.port import RETRY_COUNT, RETRY_INTERVAL

ROOT = Path(__file__).parents[2]
WALK = (ROOT / "docs" / "walk.md").read_text()
TEXT = " ".join(WALK.split())

_MEBIBYTE = 1024 * 1024
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = re.compile(rf"\d[\d,.]*|\b(?:{'|'.join(_WORDS[2:])})\b", re.IGNORECASE)
_POSITION_HIGH_BITS = POSITIONS.bit_length() - 1 - POSITION_LOW_BITS


def service_class(name: str) -> tuple[float, int]:
    """The seconds between two looks, and the threads that claim, as a new MessageBox has them."""
    schema = (ROOT / "src/crossdock/messagebox/schema.sql").read_text()
    found = re.search(rf"\('{name}', interval '(\d+) milliseconds', (\d+)\)", schema)
    assert found is not None
    return int(found[1]) / 1000, int(found[2])


def cleanup_seconds() -> float:
    with Agent("") as agent:  # it connects to nothing here
        return all_jobs(agent)[CleanReferences(agent)]


_POLLING_SECONDS, _CLAIMERS = service_class("messaging")

# What the walk says, with {} for a figure, and what the code has. A word is a figure too.
SAID: list[tuple[str, tuple[float | str, ...]]] = [
    ("rounds of the intake every {} s", (runtime._ROUND_SECONDS,)),
    ("it has not changed for {} s", (MINIMUM_AGE_SECONDS,)),
    ("with {} random bits that this process drew", (RANDOM_BITS,)),
    ("Every {} ms Spark asks", (int(receive._TRIGGER.removesuffix(" milliseconds")),)),
    ("claims up to {} sources or {} MiB", (source.ITEMS_PER_BATCH, source.BYTES_PER_BATCH / _MEBIBYTE)),
    (
        "partitions of about equal bytes, {} for each core",
        (_WORDS[source.PARTITIONS_PER_BATCH // (os.cpu_count() or 2)],),
    ),
    ("Any pipeline notices that within {} s", (claims._SWEEP_SECONDS,)),
    (
        "it is due again after {} s, then {}, up to {},",
        (
            ledger._FIRST_WAIT.total_seconds(),
            2 * ledger._FIRST_WAIT.total_seconds(),
            ledger._LONGEST_WAIT.total_seconds(),
        ),
    ),
    (
        "| bits | {} | 4 | {} | 2 | {} | {} |",
        (
            128 - 4 - _POSITION_HIGH_BITS - 2 - POSITION_LOW_BITS - RANDOM_BITS,
            _POSITION_HIGH_BITS,
            POSITION_LOW_BITS,
            RANDOM_BITS,
        ),
    ),
    ("| version, {} |", (message_id(0, 1, 0).version or 0,)),
    ("the {} bits that were drawn when the file was listed", (RANDOM_BITS,)),
    ("one transaction for up to {} interchanges", (pending._INTERCHANGES_PER_TRANSACTION,)),
    (
        "once they have {} MiB, {} messages or {} MiB of contexts together",
        (
            pending._BYTES_PER_TRANSACTION / _MEBIBYTE,
            pending._MESSAGES_PER_TRANSACTION,
            TOGETHER_BYTES / _MEBIBYTE,
        ),
    ),
    ("Host instances look every {} s anyway", (_POLLING_SECONDS,)),
    ("claims up to {} references", (DEFAULT_LIMITS.claim_size,)),
    ("{} threads claim, {} deliver", (_WORDS[_CLAIMERS].capitalize(), _WORDS[DEFAULT_LIMITS.workers])),
    ("Every instance of the host looks every {} s", (DEFAULT_LIMITS.upkeep_seconds,)),
    ("In the first {} s after PostgreSQL has started", (queues._DEAD_GRACE.total_seconds(),)),
    ("Every {} s `release_dead` also looks", (DEFAULT_LIMITS.claims_check_seconds,)),
    ("for {} minutes, {} times, unless", (RETRY_INTERVAL.total_seconds() / 60, _WORDS[RETRY_COUNT])),
    ("Every {} s `maintenance/references.py`", (cleanup_seconds(),)),
    ("Spark runs the task again, up to {} times in all", (_WORDS[session._TASK_ATTEMPTS],)),
    ("after {} failures without a batch", (_WORDS[receive._FAILURES_IN_A_ROW],)),
    (
        "the query begins again after {} s, then {}, up to {},",
        (receive._FIRST_PAUSE_SECONDS, 2 * receive._FIRST_PAUSE_SECONDS, receive._LONGEST_PAUSE_SECONDS),
    ),
    ("once and then every {} s, and goes on by itself", (outage._SAY_AGAIN_SECONDS,)),
]
# The order of the example, the status of http, and words that count what the sentence itself names.
NOT_FROM_THE_CODE = [
    "`kill -9`",
    "Amount >= 1000",
    "`in/order-17.json`",
    '`{"id": "17", "region": "EU", "amount": 1200.50}`',
    "decimal `1200.50`",
    "say with sequence 42",
    "Sequence 42, position 0",
    "the key (42, 0)",
    "-order-17.json`",
    "two processes that list the same files",
    "Two processes that read one ledger",
    "the client gets its 202",
    "*Two-way*",
]
# Numbers of headings, of points in a list, of steps and of decisions.
_ORDINAL = re.compile(r"^(?:## )?\d+\. |\bstep \d+|\[(?:decision\s)?\d{4}\]\([^)]*\)|\([^)\s]*\.md\)", re.MULTILINE)


def sentence(said: str, figures: tuple[float | str, ...]) -> str:
    return said.format(*(figure if isinstance(figure, str) else f"{figure:,g}" for figure in figures))


@pytest.mark.parametrize(("said", "figures"), SAID, ids=[said for said, _ in SAID])
def test_figure_of_the_walk_is_what_the_code_has(said: str, figures: tuple[float | str, ...]) -> None:
    assert sentence(said, figures) in TEXT


def test_walk_names_no_figure_that_is_not_compared_with_the_code() -> None:
    left = " ".join(_ORDINAL.sub(" ", WALK).split())

    for known in (*(sentence(*each) for each in SAID), *NOT_FROM_THE_CODE):
        left = left.replace(known, " ")

    assert [left[max(0, found.start() - 40) : found.end() + 20] for found in _NUMBER.finditer(left)] == []


@pytest.mark.parametrize("example", NOT_FROM_THE_CODE)
def test_what_is_not_from_the_code_is_still_in_the_walk(example: str) -> None:
    assert example in TEXT
