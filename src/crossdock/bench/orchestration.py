"""How many instances of orchestrations a host process runs in a second, and what many waiting ones cost.

Activate, one send, complete; and a conversation: activate, send, wait for a correlated message, send, complete. First
everything is published beforehand, and only the engine runs. Then the same with a publisher and a port beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.bench.dbos import dbos_rates
from crossdock.bench.messagebox import fresh_messagebox
from crossdock.bench.nowhere import Counter, NoService
from crossdock.bench.waiting import step_figures, waiting_figures
from crossdock.errors import CrossdockError
from crossdock.host.instance import HostInstance
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.publication import Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.queues import ORCHESTRATIONS
from crossdock.orchestration.engine import Engine

_FLOWS = """
from crossdock import Correlation, Message, Port, Process, Receive, orchestration

out = Port("Out")
case = Correlation("OrderId", types=["Payment"])
claim = Correlation("OrderId", types=["Decision"])
meter = Correlation("OrderId", types=["Reading"])

@orchestration(Receive("Order"))
async def forward(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", order.json()))

@orchestration(Receive("Case", initializes=case))
async def converse(process: Process, order: Message) -> None:
    await process.send(out, process.message("Note", order.json()))
    payment = await process.receive(case)
    await process.send(out, process.message("Note", payment.json()))

@orchestration(Receive("Claim", initializes=claim))
async def linger(process: Process, order: Message) -> None:
    decision = await process.receive(claim)
    await process.send(out, process.message("Note", decision.json()))

@orchestration(Receive("Meter", initializes=meter))
async def watch(process: Process, order: Message) -> None:
    while True:
        await process.receive(meter)
"""
_TYPES = ("Order", "Case", "Payment", "Claim", "Decision", "Meter", "Reading", "Note")
_FUNCTIONS = ("forward", "converse", "linger", "watch")
_PUBLISHED_TOGETHER = 2_000
_WARM_UP = 200
_DEADLINE_SECONDS = 600.0
# Ready or claimed by the engine; what was sent has another subqueue. A message that overtook the activation of its
# instance is scheduled until the engine's next upkeep.
_BUSY = """
SELECT EXISTS (SELECT FROM crossdock.queue WHERE host_id = %(host)s AND subqueue = %(subqueue)s)
    OR EXISTS (SELECT FROM crossdock.claimed WHERE host_id = %(host)s AND subqueue = %(subqueue)s)
    OR EXISTS (SELECT FROM crossdock.scheduled WHERE host_id = %(host)s)
"""

Progress = Callable[[str], None]
Figures = dict[str, Any]


def bench_orchestration(
    *, instances: int, waiting: int, woken_of: int, history: int, database: str, progress: Progress, warn: Progress
) -> Figures:
    """Every figure of one run. Raises CrossdockError unless every instance ended with everything delivered."""
    with fresh_messagebox(database) as (agent, home), Bench.begun(agent, home, progress) as bench:
        progress("warming up")
        bench.rate(_WARM_UP, ["Case", "Payment"], port=True)
        figures: Figures = {"instances": instances}
        for port, name in ((False, "{}_per_s"), (True, "{}_with_port_per_s")):
            beside = ", publisher and port beside it" if port else ""
            progress(f"{instances:,} instances: activate, one send, complete{beside}")
            figures[name.format("instances")] = round(bench.rate(instances, ["Order"], port=port))
            progress(f"{instances:,} conversations: activate, send, correlated receive, send, complete{beside}")
            figures[name.format("correlated")] = round(bench.rate(instances, ["Case", "Payment"], port=port))
        figures |= _beside_dbos(figures["instances_per_s"], agent.database, min(instances, 500), progress, warn)
        figures |= step_figures(bench, history)
        return figures | waiting_figures(bench, waiting, woken_of)


def _beside_dbos(ours: float, database: str, workflows: int, progress: Progress, warn: Progress) -> Figures:
    rates = dbos_rates(database, workflows, progress)
    if rates is None:
        warn("ratio_to_dbos is left out: dbos is not installed. Install it with: pip install 'crossdock[peer]'")
        return {}
    best = max(rates.values())
    return {
        "dbos_workflows_per_s": round(best),
        "dbos_workflows_per_s_each": {str(threads): round(rate) for threads, rate in rates.items()},
        "ratio_to_dbos": round(ours / best, 2),
    }


class Bench:
    """A MessageBox with orchestrations whose port is bound to nowhere."""

    def __init__(self, agent: Agent, connection: psycopg.Connection, progress: Progress) -> None:
        self.agent = agent
        self.host_id = agent.configuration.hosts()["Default"]
        self.connection = connection
        self.progress = progress

    @classmethod
    @contextmanager
    def begun(cls, agent: Agent, folder: Path, progress: Progress) -> Iterator[Bench]:
        (folder / "flows.py").write_text(_FLOWS)
        path = folder / "bench.yaml"
        path.write_text(_application())
        agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))
        with psycopg.connect(agent.database, autocommit=True) as connection:
            yield cls(agent, connection, progress)

    def publish(self, type_: str, numbers: range) -> None:
        for begin in range(0, len(numbers), _PUBLISHED_TOGETHER):
            some = numbers[begin : begin + _PUBLISHED_TOGETHER]
            messages = tuple(self.message(type_, number) for number in some)
            self.agent.publish([Publication(self.host_id, messages)])

    def message(self, type_: str, number: int) -> Message:
        context = Context({"BTS.MessageType": type_, "OrderId": str(number)})
        return Message(self.agent.message_id(), context, (Part("body", b'{"id": "%d", "amount": 17}' % number),))

    def rate(self, instances: int, types: Sequence[str], *, port: bool) -> float:
        """Instances per second until all have ended; with `port`, until everything they sent is delivered too."""
        delivered = self.agent.statistics().ports["Out"]
        began = time.perf_counter()
        if port:
            publisher = Thread(target=self._publish_each, args=(types, instances))
            with self.delivering(), self.running():
                publisher.start()
                publisher.join()
                self.wait(self.idle)
                seconds = time.perf_counter() - began
        else:
            self._publish_each(types, instances)
            began = time.perf_counter()
            with self.running():
                self.wait(lambda: not self.busy())
                seconds = time.perf_counter() - began
            with self.delivering():
                self.wait(self.idle)
        self._check(instances * len(types), delivered)
        return instances / seconds

    def busy(self) -> bool:
        """Whether anything is left for the engine to do."""
        row = self.connection.execute(_BUSY, {"host": self.host_id, "subqueue": ORCHESTRATIONS}).fetchone()
        assert row is not None
        return bool(row[0])

    def idle(self) -> bool:
        return self.agent.queues.idle(self.host_id) and not self.busy()

    @contextmanager
    def running(self) -> Iterator[None]:
        engine = Engine(self.agent, self.host_id)
        engine.start()
        with ExitStack() as stack:
            stack.callback(engine.stop)
            yield
            engine.check()

    @contextmanager
    def delivering(self) -> Iterator[None]:
        service = NoService("Out", Counter())
        host = HostInstance(self.agent, self.host_id, lambda _: service)
        host.start()
        with ExitStack() as stack:
            stack.callback(host.stop)
            yield
            host.check()

    def wait(self, condition: Callable[[], bool], *, pause: float = 0.01) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise CrossdockError(f"The orchestrations were not done in {_DEADLINE_SECONDS:.0f} s.")
            time.sleep(pause)

    def _publish_each(self, types: Sequence[str], instances: int) -> None:
        for type_ in types:
            self.publish(type_, range(instances))

    def _check(self, sends: int, delivered: int) -> None:
        """Each of these instances sends once for each message it receives."""
        statistics = self.agent.statistics()
        came = statistics.ports["Out"] - delivered
        if came != sends or statistics.waiting or statistics.suspended:
            raise CrossdockError(
                f"The figures are void: of {sends:,} sends {came:,} were delivered,"
                f" {statistics.waiting:,} instances wait and {statistics.suspended:,} messages are suspended."
            )


def _application() -> str:
    schemas = "\n".join(f"  - {{type: {each}, format: json, promote: {{OrderId: $.id}}}}" for each in _TYPES)
    functions = "\n".join(f'  - {{function: "flows:{each}", bind: {{Out: Out}}}}' for each in _FUNCTIONS)
    return f"""
application: bench
properties: {{OrderId: text}}
schemas:
{schemas}
send_ports: [{{name: Out, adapter: file, address: "out/%MessageID%"}}]
orchestrations:
{functions}
"""
