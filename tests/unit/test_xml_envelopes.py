"""XML envelopes: a small source does not become many times its size, nor take minutes."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from crossdock.pipeline import envelope
from pipelines import STREAMED, WHOLE, execute, only, xml_schema

POST = xml_schema("Post", body="/Post")
LETTER = xml_schema("Letter")
MEGABYTE = 1024 * 1024


def post(namespaces: int, *letters: bytes) -> bytes:
    declared = b"".join(b' xmlns:n%d="urn:n"' % number for number in range(namespaces))
    return b"<Post%b>%b</Post>" % (declared, b"".join(letters))


@pytest.fixture(params=[WHOLE, STREAMED], ids=["whole", "streamed"])
def large_bytes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_envelope_with_very_many_namespaces_is_kept_back_whole_and_at_once(large_bytes: int) -> None:
    content = post(20_000, b"<Letter/>")

    started = time.process_time()
    document = only(content, POST, LETTER, large_bytes=large_bytes)

    assert time.process_time() - started < 1
    assert (document.body, document.piece) == (content, False)
    assert document.error == "the envelope declares 20,000 namespaces around its messages, and 256 is the most"
    assert "declares 257 namespaces" in str(only(post(257, b"<Letter/>"), POST, LETTER, large_bytes=large_bytes).error)
    assert only(post(256, b"<Letter/>"), POST, LETTER, large_bytes=large_bytes).error is None


def test_namespaces_of_a_message_itself_are_its_own_affair(large_bytes: int) -> None:
    letter = post(300).replace(b"Post", b"Letter")

    assert only(letter, POST, LETTER, large_bytes=large_bytes).error is None
    assert [each.error for each in execute(post(9, letter, letter), POST, LETTER, large_bytes=large_bytes)] == [
        None,
        None,
    ]


def test_namespaces_around_messages_do_not_multiply_a_source(large_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "BEYOND_BYTES", MEGABYTE)
    few, many = (post(200, *[b"<Letter/>"] * letters) for letters in (100, 2_000))

    tracemalloc.start()
    document = only(many, POST, LETTER, large_bytes=large_bytes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (document.body, document.piece) == (many, False)
    assert f"more than {MEGABYTE:,} bytes beyond the {len(many):,} of the file" in str(document.error)
    assert peak < 4 * MEGABYTE  # all of it would be 8 MB
    assert [each.error for each in execute(few, POST, LETTER, large_bytes=large_bytes)] == [None] * 100


def test_envelope_in_an_envelope_is_not_kept_beside_its_messages(large_bytes: int) -> None:
    content = b"<Letter>" + b"x" * MEGABYTE + b"</Letter>"
    for _ in range(envelope.ENVELOPES_LIMIT):
        content = post(0, content)

    tracemalloc.start()
    document = only(content, POST, LETTER, large_bytes=large_bytes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert document.error is None
    assert peak < 5 * MEGABYTE  # and not one for each envelope


def test_envelopes_are_nested_no_deeper_than_the_limit(large_bytes: int) -> None:
    content = b"<Letter/>"
    for _ in range(envelope.ENVELOPES_LIMIT + 1):
        content = post(0, content, b"<Letter/>")

    document = only(content, POST, LETTER, large_bytes=large_bytes)

    assert (document.body, document.piece) == (content, False)
    assert document.error == "it has envelopes in envelopes more than 8 deep"


def test_bad_envelope_in_an_envelope_keeps_its_own_bytes(large_bytes: int) -> None:
    documents = execute(post(0, post(0), b"<Letter/>", b"<Other/>"), POST, LETTER, large_bytes=large_bytes)

    assert [each.body for each in documents] == [b"<Post/>", b"<Letter/>", b"<Other/>"]
    assert [each.error is None for each in documents] == [False, True, False]
