"""Publishes one large streamed part and reads it back; prints its digest, its size and how much memory that took.

Usage: streaming_process.py DATABASE MEGABYTES. A process of its own, so that nothing else grows meanwhile.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from io import RawIOBase
from typing import BinaryIO, cast

import psutil

import settling
from crossdock.message.message import StreamedPart
from crossdock.messagebox.agent import Agent
from express import a_message, claim, living, publish

MEGABYTE = 1024 * 1024


class Memory:
    """The most that was in use whenever somebody looked, over what was in use at first."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._first = self._process.memory_info().rss
        self.growth = 0

    def look(self) -> None:
        self.growth = max(self.growth, self._process.memory_info().rss - self._first)


class Numbered(RawIOBase):
    """Megabytes that are made when they are read, each filled with its number."""

    def __init__(self, megabytes: int, memory: Memory) -> None:
        self._megabytes = megabytes
        self._memory = memory
        self._next = 0

    def read(self, size: int = -1, /) -> bytes:
        assert size == MEGABYTE
        self._memory.look()
        if self._next == self._megabytes:
            return b""
        self._next += 1
        return bytes([(self._next - 1) % 256]) * MEGABYTE


def main(database: str, megabytes: int) -> None:
    with Agent(database) as agent, living(agent) as life:
        publish(agent, {"Region": "NO"})  # what every first call needs is not counted
        references = claim(agent, life)
        memory = Memory()
        part = StreamedPart("body", lambda: cast(BinaryIO, Numbered(megabytes, memory)))
        message = a_message(agent, {"Region": "NO"}, parts=[part])
        publish(agent, message)
        [reference, *_] = fresh = claim(agent, life)
        assert reference.message.id == message.id
        digest, read = sha256(), 0
        for chunk in reference.message.parts[0].chunks():
            digest.update(chunk)
            read += len(chunk)
            memory.look()
        done = [each.sequence for each in (*references, *fresh)]
        settling.complete(agent, agent.configuration.hosts()["Default"], life.instance, done)
        sys.stdout.write(f"{digest.hexdigest()} {read} {memory.growth}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
