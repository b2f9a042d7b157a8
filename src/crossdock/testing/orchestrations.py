"""For the tests of orchestrations: a MessageBox of one's own in a moment, without Spark, whose clock jumps.

Put `pytest_plugins = ["crossdock.testing.orchestrations"]` into the `conftest.py` beside your tests, and use the
fixture `messagebox`. Everything happens in the thread of the test: after each call the orchestrations have done all
they can do. The code is forgotten after every step, so that the next one replays all the steps before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from crossdock.administration.histories import save_histories
from crossdock.administration.instances import (
    DescribedInstance,
    Instance,
    cancel_instances,
    describe_instance,
    list_instances,
    resume_instances,
)
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import Mismatch, OrchestrationError, UsageError
from crossdock.host.limits import DEFAULT_LIMITS
from crossdock.host.token import new_token
from crossdock.message.context import Context
from crossdock.message.message import Message, Part
from crossdock.message.property import TOKEN, Value
from crossdock.message.publication import Awaited, Publication
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedPort
from crossdock.messagebox.lifeline import ISOLATED, Lifeline
from crossdock.messagebox.queues import ORCHESTRATIONS
from crossdock.messagebox.rows import Reference
from crossdock.messagebox.settle import Complete
from crossdock.messagebox.step import Step
from crossdock.messagebox.temporary import TemporaryServer, shift_clock
from crossdock.orchestration.body import encode_body
from crossdock.orchestration.program import Programs
from crossdock.orchestration.recorded import read_history, replay_recorded
from crossdock.orchestration.work import Worker
from crossdock.pipeline.build import receive_pipeline
from crossdock.pipeline.definition import PipelineDefinition
from crossdock.receive.express import response_service
from crossdock.send.report import error_report
from crossdock.send.response import route_back
from crossdock.settings import Settings

_AT_ONCE = 200
_ROUNDS_AT_MOST = 1_000
_DIFFERS, _FAILED = Mismatch.code, OrchestrationError.code


class OrchestrationFailed(AssertionError):  # noqa: N818 - what pytest shows
    """The code of an instance raised what it did not catch, or did something else in a replay."""


class Clock:
    """The clock of the MessageBox. It goes on, and jumps when it is told."""

    def __init__(self, database: str, after: Callable[[], None]) -> None:
        self._database = database
        self._after = after
        self._ahead = timedelta(0)

    def jump(self, **by: float) -> None:
        """Let so much time pass, as in `jump(days=14)`, and let orchestrations do what is due then."""
        step = timedelta(**by)
        if step < timedelta(0):
            raise UsageError("The clock of the MessageBox jumps forward only.")
        self._ahead += step
        shift_clock(self._database, self._ahead)
        self._after()


@dataclass(slots=True)
class Asked:
    """What a client of a two-way receive port has asked, and what it got: `reply` is None while it waits.

    `fault` says that the reply is one. `refused` is why no reply will come: the send port that had to answer gave up.
    """

    request: Message
    reply: Message | None = None
    refused: str | None = None

    @property
    def fault(self) -> bool:
        return self.reply is not None and self.reply.context.get("BTS.IsFault") is True


class TemporaryMessageBox:
    """Deploy an application, publish messages, and see what its orchestrations send. Send ports deliver nothing."""

    def __init__(self, database: str) -> None:
        self._stack = ExitStack()
        self.agent = self._stack.enter_context(Agent(database))
        self.clock = Clock(database, self.run)
        self._suspends = False
        self._schemas: dict[str, PipelineDefinition] = {}
        self._ports: dict[str, DeployedPort] = {}
        self._hosts: dict[int, _Host] = {}
        self._sent: defaultdict[str, list[Message]] = defaultdict(list)
        self._requests: defaultdict[str, list[tuple[_Host, Reference]]] = defaultdict(list)
        self._seen: set[str] = set()
        self._waiting_ports: dict[str, str] = {}
        self._asked: dict[UUID, Asked] = {}

    def close(self) -> None:
        self._stack.close()

    def deploy(self, application: Path | str, *, suspends: bool = False) -> None:
        """Deploy the application in this file; once more if it has changed.

        Unless an instance `suspends` in the test, one whose code raises is an OrchestrationFailed with its traceback.
        """
        file = Path(application)
        deployment = deployment_of(load_application(file), file, text_limit=Settings().text_limit)
        ports = [replace(port, ordered=False) for port in deployment.ports]  # in one queue: nothing is delivered
        self.agent.subscriptions.deploy(replace(deployment, ports=ports))
        self._suspends = suspends
        self._ports = {port.name: port for port in ports if port.group is None and not port.waits}
        self._waiting_ports = {port.name: port.host for port in ports if port.waits}
        for orchestration in deployment.orchestrations:
            for type_, stored in orchestration.definition["schemas"].items():
                self._schemas[type_] = PipelineDefinition.model_validate(stored)
        for id_ in self.agent.configuration.hosts().values():
            if id_ not in self._hosts:
                self._hosts[id_] = _Host(self.agent, id_, self._stack)
        self.run()

    def publish(self, type_: str, body: object = None, *, parts: Sequence[Part] = (), **promoted: Value) -> Message:
        """Publish a message as its receive location would: its schema promotes, and `promoted` is added to that.

        `body` is what JSON can hold, text or bytes; `parts` come after it. AssertionError if nobody subscribes to it.
        """
        message = self._made(type_, body, promoted, parts)
        host = next(iter(self._hosts.values()))
        published = self.agent.publish([Publication(host.id, (message,))])
        if published.unrouted:
            reasons = "; ".join(published.reasons.values())
            raise AssertionError(
                f"Nobody subscribes to this {type_}, which promotes {dict(message.context.promoted)}. {reasons}"
            )
        self.run()
        return message

    def ask(
        self, port: str, type_: str, body: object = None, *, parts: Sequence[Part] = (), **promoted: Value
    ) -> Asked:
        """Ask as a client of this two-way receive port would. See `reply` of what is given; it may come later.

        AssertionError if nobody would answer.
        """
        service = response_service(port)
        if service not in self._waiting_ports:
            known = ", ".join(name.removesuffix(".response") for name in self._waiting_ports) or "none"
            raise UsageError(f"There is no two-way receive port {port!r} (there are: {known}).")
        host = self._hosts[self.agent.configuration.hosts()[self._waiting_ports[service]]]
        waiting, token = uuid4(), new_token()
        made = self._made(type_, body, {"BTS.ReceivePortName": port, **promoted}, parts)
        context = made.context.write("BTS.IsRequestResponse", True).write(TOKEN, token)
        asked = self._asked[waiting] = Asked(Message(made.id, context, made.parts))
        id_ = self.agent.configuration.waiting_services()[service]
        awaits = Awaited(waiting, id_, host.id, {TOKEN: token}, host.asking.instance)
        published = self.agent.publish([Publication(host.id, (asked.request,), awaits=awaits)])
        if published.refused or published.unrouted:
            reasons = "; ".join({*published.refused.values(), *published.reasons.values()})
            raise AssertionError(f"Nobody answers this {type_}, which promotes {dict(context.promoted)}. {reasons}")
        self.run()
        return asked

    def sent_to(self, port: str) -> Sequence[Message]:
        """Every message that was sent to this send port so far, also by a group, the oldest first."""
        if port not in self._ports:
            raise UsageError(f"There is no send port {port!r} (there are: {', '.join(self._ports) or 'none'}).")
        return tuple(self._sent[port])

    def answer(
        self, port: str, type_: str, body: object = None, *, parts: Sequence[Part] = (), **promoted: Value
    ) -> Message:
        """Let the partner of a two-way send port answer the oldest request that has no answer yet."""
        host, reference = self._request(port)
        made = self._made(type_, body, promoted, parts)
        back = {**made.context.promoted, "BTS.SPName": port, **route_back(reference.message)}
        written = {**made.context.written, "BTS.RequestMessageID": str(reference.message.id)}
        answer = Message(made.id, Context(back, written, reference.message.context.labels), made.parts)
        host.settle(reference, answer)
        self.run()
        return answer

    def refuse(self, port: str, reason: str = "the partner refused it") -> None:
        """Let the delivery of the oldest request at this send port fail for good."""
        host, reference = self._request(port)
        token = reference.message.context.written.get(TOKEN)
        mine = [waiting for waiting, each in self._asked.items() if each.request.context.written[TOKEN] == token]
        if mine:
            asked = self._asked.pop(mine[0])
            asked.refused = reason
            host.settle(reference)
        else:
            host.settle(reference, error_report(self.agent.message_id(), reference.message, port, None, reason))
        self.run()

    def instances(self, *, state: str | None = None, where: str | None = None) -> list[Instance]:
        """Running instances, as `crossdock get instances` lists them."""
        return list_instances(self.agent, state=state, where=where, personal=True)

    def describe(self, instance: Instance | str) -> DescribedInstance:
        """All steps of an instance, or of the one with this id, as `crossdock describe` shows them."""
        return describe_instance(self.agent, _id(instance))

    def save(self, instance: Instance | str, folder: Path | str) -> Path:
        """Write the history of an instance to a file, as `crossdock save` does."""
        [saved] = save_histories(self.agent, [_id(instance)], Path(folder))
        return Path(saved.file)

    def replay(self, history: Path | str) -> None:
        """Replay a saved history with the code that is deployed. OrchestrationFailed if that does something else."""
        recorded = read_history(Path(history))
        programs = Programs(self.agent)
        programs.refresh()
        deployed = self.agent.configuration.orchestrations()
        known = {definition["name"]: id_ for id_, _, definition in deployed if definition is not None}
        if recorded.orchestration not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"No orchestration {recorded.orchestration!r} is deployed (there are: {names}).")
        different = replay_recorded(programs.of(known[recorded.orchestration]), recorded)
        if different is not None:
            raise OrchestrationFailed(f"{Path(history).name}: {different}") from different

    def resume(self, instance: Instance | str) -> None:
        self._seen.discard(_id(instance))
        resume_instances(self.agent, [_id(instance)])
        self.run()

    def cancel(self, instance: Instance | str) -> None:
        """Let an instance undo what it has done, and end."""
        cancel_instances(self.agent, [_id(instance)])
        self.run()

    def run(self) -> None:
        """Let orchestrations do everything that there is to do now. Each call of the others ends with it."""
        for _ in range(_ROUNDS_AT_MOST):
            busy = [self._round(host) for host in self._hosts.values()]
            if not any(busy):
                return
            self._check()
        raise AssertionError(f"The orchestrations have not come to rest after {_ROUNDS_AT_MOST:,} rounds.")

    # One after the other

    def _round(self, host: _Host) -> bool:
        """True if there was anything to do."""
        stepped = host.step()
        replied = self._hand_out(host)
        sent = self.agent.queues.dequeue(host.id, host.sending.instance, limit=_AT_ONCE)
        services = self.agent.configuration.services() if sent else []
        names = {id_: str(definition["name"]) for id_, _, definition in services if definition is not None}
        for reference in sent:
            port = names[reference.service_id]  # also of a port in a group
            self._sent[port].append(reference.message)
            if self._ports[port].two_way and reference.message.context.get(TOKEN) is not None:
                self._requests[port].append((host, reference))
            else:
                host.settle(reference)
        return bool(stepped or sent or replied)

    def _hand_out(self, host: _Host) -> bool:
        """Give replies to those who asked."""
        replies = self.agent.queues.dequeue_responses(host.id, host.asking.instance, limit=_AT_ONCE)
        for reference in replies:
            asked = None if reference.instance is None else self._asked.pop(reference.instance, None)
            if asked is not None and reference.instance is not None:
                asked.reply = reference.message
                self.agent.subscriptions.end_instance(reference.instance, host_id=host.id)
            self.agent.settle(host.asking.instance, [Complete(reference)])
        return bool(replies)

    def _check(self) -> None:
        for row in self.agent.instances.list():
            if row.state != "suspended" or str(row.id) in self._seen:
                continue
            self._seen.add(str(row.id))
            if row.code == _DIFFERS or (row.code == _FAILED and not self._suspends):
                raise OrchestrationFailed(f"{row.orchestration}, {row.line}: {row.reason}\n{row.traceback or ''}")

    def _request(self, port: str) -> tuple[_Host, Reference]:
        self.sent_to(port)
        if not self._requests[port]:
            raise AssertionError(f"No request at send port {port!r} waits for an answer.")
        return self._requests[port].pop(0)

    # Messages

    def _made(self, type_: str, body: object, promoted: dict[str, Value], parts: Sequence[Part]) -> Message:
        if not self._hosts:
            raise UsageError("Nothing is deployed. Call deploy() first.")
        definition = self._schemas.get(type_)
        if definition is None:
            known = ", ".join(self._schemas) or "none"
            raise UsageError(f"No schema declares the message type {type_!r} (there are: {known}).")
        [document] = receive_pipeline(definition).execute(encode_body(body))
        if document.error is not None:
            raise UsageError(f"This body is no {type_}: {document.error}")
        context = Context({"BTS.MessageType": type_, **document.promoted, **promoted}, document.written)
        return Message(self.agent.message_id(), context, (Part("body", document.body), *parts))


def _id(instance: Instance | str) -> str:
    if not isinstance(instance, str):
        return instance.id
    try:
        return str(UUID(instance))
    except ValueError as error:
        raise UsageError(f"{instance!r} is not the id of an instance. Take one of instances().") from error


class _Host:
    """A host that is worked for in the thread of the test."""

    def __init__(self, agent: Agent, id_: int, stack: ExitStack) -> None:
        self.id = id_
        self._agent = agent
        self.sending = self._life("messaging", stack)
        self._stepping = self._life("orchestration", stack)
        self.asking = self._life(ISOLATED, stack)
        self._worker = Worker(agent, id_, DEFAULT_LIMITS, _persist)
        stack.callback(self._worker.forget)

    def _life(self, class_: str, stack: ExitStack) -> Lifeline:
        life = self._agent.queues.lifeline(self.id, class_)
        life.hold()
        stack.callback(life.end)
        return life

    def step(self) -> bool:
        """True if anything was given to an instance, or was due."""
        self._agent.queues.requeue_due(self.id)
        claimed = self._stepping.instance
        references = self._agent.queues.dequeue(self.id, claimed, limit=_AT_ONCE, subqueue=ORCHESTRATIONS)
        due = self._agent.instances.due(self.id, limit=_AT_ONCE)
        if references or due:
            self._worker.work(claimed, references, due)
            self._worker.forget()
        return bool(references or due)

    def settle(self, reference: Reference, *published: Message) -> None:
        step = Step(self.id, self.sending.instance, [Complete(reference)], published)
        [done] = self._agent.step([step])
        assert done.done


def _persist(record: Callable[[], object]) -> bool:
    record()
    return True


@pytest.fixture(scope="session")
def messagebox_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryServer]:
    """One PostgreSQL for all tests."""
    with TemporaryServer(tmp_path_factory.mktemp("messagebox")) as server:
        yield server


@pytest.fixture
def messagebox(messagebox_server: TemporaryServer) -> Iterator[TemporaryMessageBox]:
    """A MessageBox of its own for each test."""
    database = messagebox_server.create()
    box = TemporaryMessageBox(database)
    yield box
    box.close()
    messagebox_server.drop(database)


__all__ = ["Asked", "Clock", "OrchestrationFailed", "TemporaryMessageBox", "messagebox", "messagebox_server"]
