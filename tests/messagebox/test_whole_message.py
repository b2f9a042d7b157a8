"""A message that is read once for its page is told as it is when each question reads it anew."""

from __future__ import annotations

import pytest

from console_box import Seeded, seeded
from crossdock.administration.service import Administration
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent


@pytest.fixture
def box(agent: Agent) -> Seeded:
    return seeded(agent)


def test_message_that_is_read_once_is_told_as_by_each_question(box: Seeded) -> None:
    service = Administration(box.agent, text_limit=256)
    [held] = [each.id for each in service.messages(port="Flow").messages]

    for id_ in (box.suspended, held):
        whole = service.whole_message(id_)

        assert whole.described() == service.describe(id_)
        assert whole.traced() == service.trace(id_)
        for now in (False, True):
            assert whole.explained(now=now) == service.explain(id_, now=now)
        assert whole.explained(subscription="Plain") == service.explain(id_, subscription="Plain")


def test_an_instance_is_no_message(box: Seeded) -> None:
    with pytest.raises(UsageError, match="this is the id of an instance"):
        Administration(box.agent, text_limit=256).whole_message(box.instance)


def test_services_of_some_subscriptions_are_those_among_all(box: Seeded) -> None:
    subscriptions = box.agent.subscriptions
    every = subscriptions.services()

    for number in every:
        assert subscriptions.services({number}) == {number: every[number]}
    assert subscriptions.services(set()) == {}
