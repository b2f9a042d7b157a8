"""What code of one's own may do wrong in a pipeline: it raises, ends, or does not end; and sources that hold too much."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossdock.pipeline.definition import RecordDefinition, SchemaDefinition
from crossdock.pipeline.lines import MESSAGES_LIMIT
from pipelines import execute, only
from stages import ORDER, location_of, reason, received


@pytest.mark.parametrize(("function", "raised"), [("broken", "ZeroDivisionError: oops"), ("ends", "SystemExit: 3")])
def test_component_that_raises_fails_the_document_and_no_other(folder: Path, function: str, raised: str) -> None:
    own = {"name": "own", "disassemble": "json", "components": [f"components:{function}"]}
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own])

    made = received(location, b'{"region": "NO"}\n{}\n{"region": "SE"}')

    assert [message.context.get("Region") for message in made.messages] == ["NO", "SE"]
    [failure] = made.failures
    assert (failure.message.body, failure.reason) == (b"{}", f"the pipeline failed: {raised}")
    assert reason(received(location, b"{}")) == f"the pipeline failed: {raised}"


def test_decoder_that_raises_or_ends_suspends_the_source_whole(folder: Path) -> None:
    own = {"name": "own", "decode": ["components:ends"], "disassemble": "json"}
    location = location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own])

    made = received(location, b'{"region": "NO"}\n{}')

    assert (reason(made), made.failures[0].message.body) == (
        "the pipeline failed: SystemExit: 3",
        b'{"region": "NO"}\n{}',
    )


def test_component_that_does_not_end_has_the_source_suspended_and_leaves_no_alarm(folder: Path) -> None:
    own = {"name": "own", "disassemble": "json", "components": ["components:endless"]}
    location = replace(location_of(folder, ORDER, location={"pipeline": "own"}, pipelines=[own]), time_limit=0.2)
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0

    made = received(location, b'{"region": "NO"}\n{}')

    assert (reason(made), made.failures[0].message.body) == (
        "the pipeline took more than 0.2 seconds",
        b'{"region": "NO"}\n{}',
    )
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0) == before
    with ThreadPoolExecutor(1) as pool:  # where there are no signals there is no limit, and nothing goes wrong
        assert len(pool.submit(received, location, b'{"region": "NO"}').result().messages) == 1


@pytest.mark.parametrize(("interchange", "found"), [("standard", 2), ("recoverable", 1)])
def test_what_a_component_broke_on_can_be_resumed_once_that_is_mended(
    folder: Path, interchange: str, found: int
) -> None:
    """A standard interchange goes through the pipeline from the start, a line of another one by itself."""
    own = {"name": "own", "decode": ["gzip"], "disassemble": "json", "components": ["components:broken"]}
    broken = location_of(folder, ORDER, location={"pipeline": "own", "interchange": interchange}, pipelines=[own])
    [failure] = received(broken, gzip.compress(b'{"region": "NO"}\n{}')).failures

    mended = location_of(folder, ORDER, location={"decode": ["gzip"]})
    again = mended.again(1, failure.message, 1, lambda: failure.message.id)

    assert (len(again.messages), again.failures) == (found, ())


JSON = SchemaDefinition(type="Order", format="json")
FLAT = SchemaDefinition(type="Order", format="flat", record=RecordDefinition(columns=("n",)))
TOO_MANY = "the file holds more than 500,000 messages, and can only be read whole; send it in parts"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"[" + b"1," * MESSAGES_LIMIT + b"1]", {"disassemble": "json"}),
        (b"1\n" * (MESSAGES_LIMIT + 1), {"disassemble": "json"}),
        (gzip.compress(b"1\n" * (MESSAGES_LIMIT + 1)), {"disassemble": "json", "decode": ("gzip",)}),
        (b"1\n" * (MESSAGES_LIMIT + 1), {"disassemble": "flat"}),
    ],
    ids=["array", "lines", "gzip", "flat"],
)
def test_source_that_has_to_be_read_whole_and_holds_too_many_messages_is_kept_back(
    content: bytes, options: dict[str, Any]
) -> None:
    document = only(content, FLAT if options["disassemble"] == "flat" else JSON, **options)

    assert (document.error, document.body, document.piece) == (TOO_MANY, content, False)


def test_commas_inside_elements_do_not_count() -> None:
    element = b"[" + b"1," * MESSAGES_LIMIT + b'"1,1"]'

    documents = execute(b"[" + element + b"," + element + b"]", JSON, disassemble="json")

    assert [document.body for document in documents] == [element, element]


MEMORY = """
import resource, sys
sys.path[:0] = sys.argv[1].split(":")
from test_pipeline_faults import FLAT, JSON, SHAPES
from pipelines import execute

content, schema, options = SHAPES[sys.argv[2]]()
execute(b"1", JSON, disassemble="json")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
errors = [document.error for document in execute(content, schema, **options)]
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 // len(content), len(errors), errors[0])
"""
MEGABYTES_20 = 20 * 1024 * 1024
SHAPES: dict[str, Callable[[], tuple[bytes, SchemaDefinition, dict[str, Any]]]] = {
    "one document": lambda: (
        b'{"a": [' + b'{"b": "\\"[", "c": [1, 2]},' * (MEGABYTES_20 // 25) + b"{}]}",
        JSON,
        {"disassemble": "json", "split": "document"},
    ),
    "array": lambda: (b"[" + b"1," * (MEGABYTES_20 // 2) + b"1]", JSON, {"disassemble": "json"}),
    "flat": lambda: (b"1\n" * (MEGABYTES_20 // 2), FLAT, {"disassemble": "flat"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["one document", "array", "flat"])
def test_memory_does_not_grow_with_what_a_source_holds(shape: str) -> None:
    """At most so many times the bytes of the source: it is decoded and checked, but not taken apart."""
    here = Path(__file__).parent
    command = [sys.executable, "-c", MEMORY, f"{here}:{here.parent / 'support'}", shape]

    times, count, *error = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split(" ", 2)

    assert (int(times) <= 3, count) == (True, "1")
    assert error == (["None\n"] if shape == "one document" else [TOO_MANY + "\n"])
