"""A message that says it has parts which nobody stored: it is of no use by itself, and holds up nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from crossdock.errors import CrossdockError, MessageGoneError, TerminalError
from crossdock.host.outcome import Complete, Suspend
from crossdock.message.message import Message, MessageId, Part
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.publish import SUBSCRIPTION_LOCK
from crossdock.send.port import SendPort
from express import a_message, claim, living, publish, rows
from role_attack import NORWAY, Attack, attack
from roles import roles

__all__ = ["attack", "roles"]


class Batches:
    """An adapter that takes many at once, and reads each of them."""

    def send(self, message: Message, *, attempt: int) -> None:
        raise NotImplementedError

    def send_batch(self, messages: Sequence[Message]) -> Sequence[CrossdockError | None]:
        if any(message.body == b"wrong" for message in messages):
            raise TerminalError("one is wrong")
        return [None] * len(messages)

    def close(self) -> None:
        """Nothing is open."""


def hollow(attack: Attack) -> UUID:
    """A message for another host, whose body is said to be in two fragments. There are none."""
    [(epoch,)] = attack.connection.execute("SELECT epoch_token FROM box").fetchall()
    query = (
        "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE service.name = 'Other'"
    )
    [(subscription,)] = rows(attack.database, query)
    id_ = uuid4()
    context = '{"promoted": {}, "written": {}}'
    attack.connection.execute(
        "SELECT publish_few(%s, %s::json[], %s, %s, '{body}', '{NULL}', '{9}', '{2}', %s, %s, NULL, %s, %s, NULL)",
        [[id_], [context], [id_], [id_], [id_], [subscription], SUBSCRIPTION_LOCK, epoch],
    )
    return id_


def test_body_that_nobody_stored_is_gone_for_good(attack: Attack, agent: Agent) -> None:
    id_ = hollow(attack)

    with living(agent, "Other") as life:
        [claimed] = [each for each in claim(agent, life, "Other") if each.message.id == id_]
        with pytest.raises(MessageGoneError, match="not in the MessageBox"):
            bytes(claimed.message.body)


def test_message_whose_body_nobody_stored_holds_up_no_other_of_its_batch(attack: Attack, agent: Agent) -> None:
    id_ = hollow(attack)
    publish(agent, NORWAY)
    sending = SendPort.from_definition({"name": "Other", "adapter": "file", "address": "/tmp/x"}, agent.message_id)
    sending.adapter = Batches()

    with living(agent, "Other") as life:
        claimed = claim(agent, life, "Other")
        batch = [(each.message, each.attempt) for each in claimed]
        outcomes = sending.deliver_batch(batch, now=lambda: datetime.now(UTC))

    told = {each.message.id: outcome for each, outcome in zip(claimed, outcomes, strict=True)}
    suspended = told.pop(MessageId(id_))
    assert isinstance(suspended, Suspend)
    assert suspended.code == "message-gone"
    assert all(isinstance(each, Complete) for each in told.values())
    assert len(told) > 1


def test_message_that_an_adapter_raises_for_is_suspended_alone(agent: Agent) -> None:
    sending = SendPort.from_definition({"name": "Out", "adapter": "file", "address": "/tmp/x"}, agent.message_id)
    sending.adapter = Batches()
    batch = [(a_message(agent, parts=[Part("body", body)]), 0) for body in (b"1", b"wrong", b"2")]

    outcomes = sending.deliver_batch(batch, now=lambda: datetime.now(UTC))

    assert [type(each) for each in outcomes] == [Complete, Suspend, Complete]
