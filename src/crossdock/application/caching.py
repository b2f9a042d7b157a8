"""What a process keeps of the configuration: receive locations and send ports at work, as they are deployed now.

The caching service follows every new epoch as soon as it is there, so that a deployment reaches running processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from threading import Event, Lock, Thread
from typing import Any

from pydantic import ValidationError

from crossdock.errors import ApplicationError, TransientError
from crossdock.host.outcome import Elsewhere
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.caching import EpochWatch
from crossdock.receive.location import ReceiveLocation, locations_at_work
from crossdock.send.port import SendPort
from crossdock.subscription.router import Epoch

RECONNECT_SECONDS = 0.5

# A port at work with the definition that it was made of; None if it cannot work here.
_Kept = tuple[object, SendPort | Elsewhere | None]

logger = logging.getLogger(__name__)


class CachedConfiguration:
    """`locations` can be read again, `pushed` are sent to by partners, `disabled` rest.

    `own_hosts` gives the hosts whose pushed locations this process serves.
    """

    def __init__(self, agent: Agent, own_hosts: Callable[[], Collection[int]], *, time_limit: float) -> None:
        self._agent = agent
        self._own_hosts = own_hosts
        self._time_limit = time_limit
        self._watching = Event()
        self._refreshing = Lock()
        self._ports: dict[int, _Kept] = {}
        self._elsewhere = Elsewhere()
        self.epoch: Epoch | None = None
        self.locations: dict[int, ReceiveLocation] = {}
        self.disabled: dict[int, ReceiveLocation] = {}
        self.pushed: dict[int, ReceiveLocation] = {}

    def start(self, stack: ExitStack) -> None:
        """From here on it follows by itself, until `stack` is closed."""
        self.refresh()
        watch = self._agent.watch_epoch()
        thread = Thread(target=self._watch, args=[watch], name="caching", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self._watching.set)

    def _watch(self, watch: EpochWatch) -> None:
        while not self._watching.is_set():
            try:
                watch.wait()
                self.refresh()
            except TransientError as error:
                logger.debug("The configuration is not refreshed: %s", error)
                self._watching.wait(RECONNECT_SECONDS)
        watch.close()

    def refresh(self) -> None:
        """Follow changes of the configuration."""
        with self._refreshing:
            epoch = self._agent.epoch()
            if epoch == self.epoch:
                return
            mine = set(self._own_hosts())
            enabled = locations_at_work(self._agent.configuration.locations(), time_limit=self._time_limit)
            self.locations = {id_: each for id_, each in enabled.items() if not each.is_pushed}
            self.pushed = {id_: each for id_, each in enabled.items() if each.is_pushed and each.host_id in mine}
            self.disabled = locations_at_work(self._agent.configuration.locations(enabled=False))
            before, self._ports = self._ports, self._ports_at_work()
            for port in {id(port): port for _, port in before.values()}.values():
                if isinstance(port, SendPort) and all(port is not kept for _, kept in self._ports.values()):
                    port.close()  # whoever still sends by it finishes
            self.epoch = epoch

    def _ports_at_work(self) -> dict[int, _Kept]:
        """Those that have not changed stay: they have connections, and a pace. A port in a group is the port itself."""
        found: dict[int, _Kept] = {}
        named: dict[object, _Kept] = {}
        for id_, _, kept in self._agent.configuration.services():
            if kept is None:
                found[id_] = None, self._elsewhere
                continue
            alike = (each for each in (named.get(kept.get("name")), self._ports.get(id_)) if each and each[0] == kept)
            found[id_] = named[kept.get("name")] = next(alike, None) or self._port(kept)
        return found

    def _port(self, kept: Mapping[str, Any]) -> _Kept:
        try:
            return kept, SendPort.from_definition(kept, self._agent.message_id)
        except ApplicationError as error:
            logger.error("Send port %r cannot work here: %s", kept.get("name"), error)
        except ValidationError as error:  # what it shows of its input may hold a password
            problem = error.errors(include_input=False, include_url=False)[0]
            logger.error("Send port %r cannot work here: %s: %s", kept.get("name"), problem["loc"], problem["msg"])
        return kept, None

    def service(self, service_id: int) -> SendPort | Elsewhere | None:
        """For the hosts: a reference may be for a port that was deployed a moment ago."""
        if service_id not in self._ports:
            self.refresh()
        _, port = self._ports.get(service_id, (None, None))
        return port
