"""A large document is looked at as others are, and not held as a tree."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crossdock.errors import DocumentError
from crossdock.pipeline.tree_size import MOST_NODES
from crossdock.pipeline.well_formed import check_document

LARGE = b"<a/>" * (MOST_NODES + 1)
PEAK = """
from pathlib import Path
from crossdock.pipeline.assemble import XmlAssembler
from crossdock.pipeline.document import Document
body = b"<r>" + b"<a/>" * 4_000_000 + b"</r>"
assert XmlAssembler()(Document(body)) is body
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("content", [b"<a/>", b"<r>" + LARGE + b"</r>", b"<r>" + LARGE + b"</r><!-- after -->"])
def test_document_is_taken(content: bytes) -> None:
    check_document(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<r>" + LARGE, "the document is not XML: "),
        (b"<r>" + LARGE + b"</s>", "the document is not XML: "),
        (b"<r/>" + LARGE, "the document is not XML: "),
        (b'<!DOCTYPE r [<!ENTITY b "c">]><r>&b;' + LARGE + b"</r>", "the document has a document type declaration"),
        (b"<r>" + b"<!---->" * (MOST_NODES + 1) + b"</r>", "the document has too many comments"),
    ],
    ids=["cut off", "broken", "two roots", "entity", "comments"],
)
def test_what_is_no_document_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        check_document(content)


def test_document_that_goes_out_as_it_is_takes_little_memory() -> None:
    ended = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=120)

    assert int(ended.stdout.split()[1]) < 250_000  # in KB; a tree takes 550 MB
