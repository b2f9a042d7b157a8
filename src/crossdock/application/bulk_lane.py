"""The bulk lane of a process: Spark, and a query for each host that receives.

Spark takes seconds to start. It starts in a thread beside everything else, and only if there is a location for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING

from crossdock.messagebox.agent import Agent
from crossdock.settings import Settings

if TYPE_CHECKING:
    from crossdock.dataflow.receive import ReceiveFlow
    from crossdock.dataflow.session import Spark


class BulkLane:
    """`keep` it in every round; `stop` ends the queries and Spark."""

    def __init__(self, settings: Settings, agent: Agent, starting: Callable[[], object]) -> None:
        """`starting` is called when Spark begins to start."""
        self._settings = settings
        self._agent = agent
        self._say_starting = starting
        self._spark: Future[Spark] | None = None
        self._flows: dict[int, ReceiveFlow] = {}

    def keep(self, hosts: Collection[int]) -> None:
        """Queries for these hosts; one that is new begins, one that failed begins again.

        Raises UnavailableError if Spark does not start, or has ended.
        """
        if self._spark is None:
            if not hosts:
                return
            self._start()
        assert self._spark is not None
        if not self._spark.done():
            return
        self._follow(self._spark.result(), hosts)

    def _start(self) -> None:
        self._say_starting()
        self._spark = Future()
        Thread(target=self._run, args=[self._spark], name="start Spark", daemon=True).start()

    def _run(self, started: Future[Spark]) -> None:
        try:
            from crossdock.dataflow.session import start_spark  # takes a second to import

            started.set_result(start_spark(self._settings))
        except BaseException as error:
            started.set_exception(error)

    def _follow(self, spark: Spark, hosts: Collection[int]) -> None:
        from crossdock.dataflow.receive import ReceiveFlow

        for host in set(hosts) - self._flows.keys():
            self._flows[host] = ReceiveFlow(
                spark, self._agent.database, host, waits=self._agent.outage.waits, troubles=self._agent.troubles
            )
            self._flows[host].start()
        for flow in self._flows.values():
            flow.check()

    def stop(self) -> None:
        """A Spark that is still starting is waited for, so that nothing of it is left behind."""
        for flow in self._flows.values():
            flow.stop()
        if self._spark is not None and self._spark.exception() is None:
            self._spark.result().close()
