"""Parts: any number of them, of any size; a large one goes in and comes out a fragment at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from hashlib import sha256
from io import BytesIO, TextIOWrapper
from pathlib import Path
from random import Random

import psycopg
import pytest

import settling
from box import count
from crossdock.maintenance.references import CleanReferences
from crossdock.message.message import Message, Part, StreamedPart
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.store import PART_LIMIT_BYTES
from express import a_message, claim, delivered_now, deploy, living, port, publish, rows, unbalanced

MEGABYTE = 1024 * 1024
STREAMED_MEGABYTES = 500 if os.environ.get("CROSSDOCK_SOAK") else 40
HELD_BYTES = 64 * 1024


@pytest.fixture
def published(agent: Agent, database: str) -> Published:
    deploy(agent, port("All", "EXISTS(Region)"), port("Also", "EXISTS(Region)"))
    return Published(agent, database)


class Published:
    """Publishes messages made of parts, and gives them as a subscriber gets them."""

    def __init__(self, agent: Agent, database: str) -> None:
        self.agent = agent
        self.database = database

    def __call__(self, *parts: Part | StreamedPart) -> Message:
        message = a_message(self.agent, {"Region": "NO"}, parts=parts)
        publish(self.agent, message)
        return self.agent.messages.load([message.id])[message.id]

    def stored(self) -> list[tuple[str, int, int]]:
        """(name, size, fragments) of every part."""
        return rows(self.database, "SELECT name, size, fragments FROM part ORDER BY name")


def contents(message: Message) -> list[tuple[str, bytes]]:
    return [(part.name, b"".join(part.chunks())) for part in message.parts]


def test_parts_come_back_as_they_were_in_their_order(published: Published) -> None:
    parts = [Part("body", b"{}"), Part("attachment ü", b"\0\xff"), Part("", b""), Part("body", b"same name")]

    message = published(*parts)

    assert message.parts == tuple(parts)
    assert message.body == b"{}"
    assert rows(published.database, "SELECT part_count, cardinality(parts) FROM message") == [(4, 4)]


def test_batch_of_messages_keeps_the_parts_of_each_apart(published: Published) -> None:
    agent = published.agent
    made = [
        a_message(agent, {"Region": "NO"}, parts=[Part(f"{n}-{place}", b"%d" % place) for place in range(n % 4)])
        for n in range(80)
    ]

    publish(agent, *made)

    found = agent.messages.load([message.id for message in made])
    assert [found[message.id].parts for message in made] == [message.parts for message in made]


def test_message_without_parts_and_message_with_an_empty_body_are_delivered(published: Published) -> None:
    assert published().parts == ()
    assert published(Part("body", b"")).parts == (Part("body", b""),)
    empty = published(StreamedPart("body", partial(BytesIO, b"")))
    assert contents(empty) == [("body", b"")]

    assert len(delivered_now(published.agent)) == 6
    cleaned(published)


def test_part_over_the_limit_goes_in_as_fragments(published: Published) -> None:
    assert PART_LIMIT_BYTES == MEGABYTE
    fragments = {
        HELD_BYTES: 0, HELD_BYTES + 1: 0, MEGABYTE: 0, MEGABYTE + 1: 2, 3 * MEGABYTE: 3, 3 * MEGABYTE + 7: 4
    }  # fmt: skip
    bodies = {size: Random(size).randbytes(size) for size in fragments}

    messages = {size: published(Part(f"{size:07}", body), Part("small", b"tail")) for size, body in bodies.items()}

    for size, message in messages.items():
        assert contents(message) == [(f"{size:07}", bodies[size]), ("small", b"tail")]
        assert contents(message)[0][1] == bodies[size]  # every reading begins at the beginning
    assert published.stored()[: len(bodies)] == [(f"{size:07}", size, number) for size, number in fragments.items()]
    assert count(published.database, "fragment") == 9
    delivered_now(published.agent)
    cleaned(published)


def test_stream_can_be_read_in_pieces_of_any_size(published: Published) -> None:
    body = Random(1).randbytes(2 * MEGABYTE + 100)
    [part] = published(StreamedPart("body", partial(BytesIO, body))).parts
    assert isinstance(part, StreamedPart)

    for size in (1, 7, MEGABYTE - 1, MEGABYTE + 1, 5 * MEGABYTE):
        with part.open() as stream:
            pieces = [stream.read(size) for _ in range(min(len(body) // size + 2, 1000))]
        read = b"".join(pieces)
        assert read == body[: len(read)]
        assert len(read) == min(len(body), 1000 * size)
    with part.open() as stream:
        assert stream.read(0) == b""
        assert stream.read() == body
        assert stream.read() == b""
    with part.open() as stream:
        target = bytearray(10)
        assert stream.readinto(target) == 10  # type: ignore[attr-defined]
        assert target == body[:10]


def test_stream_can_be_read_as_lines_of_text(published: Published) -> None:
    lines = [f"line {n} ü\n" for n in range(200_000)]
    [part] = published(StreamedPart("body", partial(BytesIO, "".join(lines).encode()))).parts
    assert isinstance(part, StreamedPart)

    with TextIOWrapper(part.open(), encoding="utf-8") as text:
        assert list(text) == lines


def test_stream_that_gives_short_reads_is_stored_whole(published: Published) -> None:
    class Dripping(BytesIO):
        """Like a socket: never as much as was asked for."""

        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 300_000))

    body = Random(2).randbytes(MEGABYTE + 100)

    message = published(StreamedPart("body", partial(Dripping, body)))

    assert message.body == body
    assert published.stored() == [("body", len(body), 4)]


def test_stream_that_breaks_off_leaves_nothing_behind(published: Published) -> None:
    class Breaking(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > MEGABYTE:
                raise OSError("the line went dead")
            return super().read(size)

    with pytest.raises(OSError, match="the line went dead"):
        published(Part("body", b"x"), StreamedPart("large", partial(Breaking, bytes(3 * MEGABYTE))))

    for table in ("message", "part", "fragment", "queue", "message_ref_log_1", "part_ref_log_1"):
        assert count(published.database, table) == 0, table
    assert published(Part("body", b"after")).body == b"after"


def test_part_of_a_message_that_is_still_wanted_stays(published: Published) -> None:
    agent, host = published.agent, published.agent.configuration.hosts()["Default"]
    body = bytes(MEGABYTE + 1)
    published(Part("body", body))
    with living(agent) as life:
        [first, second] = claim(agent, life)
        settling.complete(agent, host, life.instance, [first.sequence])
        for _ in range(3):
            CleanReferences(agent).run_once()

        assert second.message.body == body
        assert count(published.database, "fragment") == 2
        settling.complete(agent, host, life.instance, [second.sequence])
    cleaned(published)


@pytest.mark.slow
def test_large_part_is_published_and_read_in_little_memory_also_where_the_server_is_slow(published: Published) -> None:
    program = Path(__file__).parents[1] / "support" / "streaming_process.py"
    size = STREAMED_MEGABYTES * MEGABYTE
    with psycopg.connect(published.database, autocommit=True, options="-csearch_path=crossdock") as connection:
        connection.execute(
            "CREATE FUNCTION slow_down() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END'"
        )
        connection.execute("CREATE TRIGGER slow BEFORE INSERT ON fragment FOR EACH ROW EXECUTE FUNCTION slow_down()")

    result = subprocess.run(
        [sys.executable, program, published.database, str(STREAMED_MEGABYTES)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert result.returncode == 0, result.stderr
    digest, read, grown = result.stdout.split()
    assert (int(read), digest) == (size, streamed_digest())
    assert int(grown) < 20 * MEGABYTE
    assert max(published.stored()) == ("body", size, STREAMED_MEGABYTES)
    cleaned(published)


def streamed_digest() -> str:
    """Of what the process streams: each megabyte filled with its number."""
    digest = sha256()
    for number in range(STREAMED_MEGABYTES):
        digest.update(bytes([number % 256]) * MEGABYTE)
    return digest.hexdigest()


def cleaned(published: Published) -> None:
    """After two rounds nothing is left: a part goes in the round after its message."""
    for _ in range(2):
        CleanReferences(published.agent).run_once()
    for table in ("message", "part", "fragment", "message_ref_total", "part_ref_total"):
        assert count(published.database, table) == 0, table
    assert unbalanced(published.database) == []
