"""One message for its page: read once, and told in three ways."""

from __future__ import annotations

from uuid import UUID

from crossdock.administration.explain import ExplainedMessage, explain_known
from crossdock.administration.known_message import look_at
from crossdock.administration.messages import DescribedMessage, described
from crossdock.administration.trace import Traced, trace_from
from crossdock.messagebox.agent import Agent


class WholeMessage:
    """What is known of a message, as it was when this was made. Raises UsageError if that is nothing."""

    def __init__(self, agent: Agent, id_: UUID) -> None:
        self._agent = agent
        self._looked = look_at(agent, id_)

    def described(self) -> DescribedMessage:
        return described(self._looked)

    def traced(self) -> Traced:
        return trace_from(self._agent, self._looked)

    def explained(
        self, *, subscription: str | None = None, now: bool = False, most: int | None = None
    ) -> ExplainedMessage:
        """Raises UsageError for a subscription that there is not."""
        return explain_known(
            self._agent,
            self._looked.message,
            self._looked.deliveries,
            subscription=subscription,
            now=now,
            most=most,
        )
