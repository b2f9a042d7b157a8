"""Answers that are compressed: unpacked, they are no larger than the port takes them."""

from __future__ import annotations

import gzip
from typing import Any
from uuid import UUID

import pytest

from crossdock.message.message import MessageId
from crossdock.send.port import SendPort

HTTP: dict[str, Any] = {"adapter": "http", "address": "https://partner.example.org/"}
LIMITED = {**HTTP, "options": {"maximum_response": 1_000}}
PLACES = {
    "allow": [
        {"kind": "http", "address": "https://a.example.org/", "options": {"maximum_response": 10}},
        {"kind": "http", "address": "https://b.example.org/", "options": {"maximum_response": 1_000}},
    ]
}


@pytest.mark.parametrize(("port", "most"), [(HTTP, 16 * 1024 * 1024), (LIMITED, 1_000), (PLACES, 1_000)])
def test_compressed_answer_is_unpacked_up_to_the_largest_that_is_taken(port: dict[str, Any], most: int) -> None:
    response = {"disassemble": "passthrough", "decode": ["gzip"]}
    made = SendPort.from_definition({"name": "Out", "response": response, **port}, lambda: MessageId(UUID(int=0)))

    assert made.response is not None
    [taken], [refused] = (made.response.execute(gzip.compress(bytes(size))) for size in (most, most + 1))

    assert (len(taken.body), taken.error) == (most, None)
    assert refused.error == f"the file has more than {most:,} bytes when it is unpacked"
