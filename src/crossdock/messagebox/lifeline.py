"""The lifeline of a host instance: a connection whose advisory lock says that the instance lives.

The same connection listens for the wake-up calls of its host. When it is lost, the next `hold` registers a new
instance: what the old one had claimed, and perhaps never heard of, comes free with its lock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from secrets import randbelow
from typing import TypeVar

import psycopg

from crossdock.errors import TransientError
from crossdock.messagebox.outage import outage
from crossdock.messagebox.statement import statement

INSTANCE_LOCK = 0x0C05_5D0F
# Everybody who keeps a copy of the configuration listens here.
EPOCH_CHANNEL = "crossdock_epoch"
# Whoever waits for responses hears here of requests that will have none.
GIVEN_UP_CHANNEL = "crossdock_given_up"
# Whoever says nothing for so long hangs; it says something every second.
SILENCE = timedelta(seconds=10)

ISOLATED = "messaging isolated"
_INSTANCES = 2**31 - 1
_STOPPING = "stopping"

_Used = TypeVar("_Used")


class Lifeline:
    """Held from `hold` to `end`. `instance` is the id under which references are claimed."""

    def __init__(self, connect: Callable[[], psycopg.Connection], host_id: int, class_: str) -> None:
        self._connect = connect
        self._host_id = host_id
        self._class = class_
        self._connection: psycopg.Connection | None = None
        self._given_up: list[str] = []
        self.instance = 0

    def hold(self) -> None:
        """Make sure that a lock is held; cheap if it is."""
        if self._connection is not None and not self._connection.closed:
            return
        self._connection = None
        try:
            connection = self._connect()
            try:
                self.instance = self._register(connection)
                connection.execute(f"LISTEN {channel(self._host_id)}")
                if self._class == ISOLATED:
                    connection.execute(f"LISTEN {GIVEN_UP_CHANNEL}")
            except BaseException:
                connection.close()
                raise
        except psycopg.errors.UniqueViolation as error:  # a drawn id may be taken
            raise TransientError(f"The MessageBox asks to try again: {error}") from error
        except psycopg.Error as error:
            if (problem := outage(error)) is None:
                raise
            raise problem from error
        self._connection = connection

    def check(self, state: str, in_hand: int) -> None:
        """Say how the instance is. So a lost connection, and with it a lost lock, is noticed even if nobody waits."""
        said = {"state": state, "in_hand": in_hand, "instance": self.instance}
        self._guarded(lambda connection: connection.execute(statement("say_state"), said))

    def stopping(self) -> None:
        """Tell the others that this instance takes no more; they do not wait for it to end."""
        if self._connection is not None and not self._connection.closed:
            with suppress(TransientError):
                self.check(_STOPPING, 0)

    def living(self, grown: timedelta) -> list[int]:
        """The ids of the instances of this host and service class that share its work, the oldest first.

        One that has not lived for as long as `grown` has no part where there are others.
        """
        whose = {
            "host": self._host_id,
            "class": self._class,
            "lock": INSTANCE_LOCK,
            "grown": grown,
            "silence": SILENCE,
        }
        found = self._guarded(lambda connection: connection.execute(statement("list_living"), whose).fetchall())
        return [id_ for (id_,) in found]

    def wait(self, seconds: float) -> bool:
        """Until a message arrives for the host (True), or the time is over."""
        heard = self._guarded(lambda connection: list(connection.notifies(timeout=seconds, stop_after=1)))
        self._given_up += [each.payload for each in heard if each.channel == GIVEN_UP_CHANNEL]
        return bool(heard)

    def given_up(self) -> list[str]:
        """Who was told meanwhile that no response will come."""
        told, self._given_up = self._given_up, []
        return told

    def end(self) -> None:
        """Deregister; what is still claimed comes free with the lock."""
        if self._connection is not None and not self._connection.closed:
            self._connection.close()

    def _guarded(self, use: Callable[[psycopg.Connection], _Used]) -> _Used:
        assert self._connection is not None
        try:
            return use(self._connection)
        except psycopg.Error as error:
            self._connection.close()
            if (problem := outage(error)) is None:
                raise
            raise problem from error

    def _register(self, connection: psycopg.Connection) -> int:
        """The id is drawn here, so that no life has that of another.

        A restore sets sequences back: by a number from one, what a life claimed before the restore could be settled
        after it in the name of another life.
        """
        parameters = {
            "before": self.instance,
            "host_instance": 1 + randbelow(_INSTANCES),
            "host": self._host_id,
            "class": self._class,
            "machine": socket.gethostname(),
            "process": os.getpid(),
            "lock": INSTANCE_LOCK,
        }
        row = connection.execute(statement("register_instance"), parameters).fetchone()
        assert row is not None
        return int(row[0])


def channel(host_id: int) -> str:
    """The NOTIFY channel on which a host is woken."""
    return f"crossdock_host_{host_id}"
