"""What the test of the model draws: ports and how they change, documents and the messages made of them, outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from box_model import FILTERS, Port
from crossdock.maintenance.counts import FoldCounts
from crossdock.maintenance.references import CleanReferences
from crossdock.maintenance.routing_failures import ReportRoutingFailures
from crossdock.maintenance.schedule import Job
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, StreamedPart
from crossdock.message.property import Value
from crossdock.message.publication import Failure
from crossdock.messagebox.agent import Agent

HOSTS = {"Default": frozenset({"secret"}), "Sending": frozenset[str]()}
PORTS = {
    "Norway": Port("Default", "Region = 'NO'", two_way=True),
    "Small": Port("Sending", "Region IN ('NO', 'SE') AND NOT EXISTS(Amount)", priority=2),
    "Large": Port("Sending", "Amount >= 10", ordered=True, two_way=True),
    "Abroad": Port("Default", "Region = 'SE' OR Amount >= 10", ordered=True),
}
SHAPES: dict[str, Callable[[int], tuple[Part | StreamedPart, ...]]] = {
    "short": lambda number: (Part("body", b"%d" % number),),
    "long": lambda number: (Part("body", b"in several fragments: %d" % number),),
    "attachment": lambda number: (Part("body", b"%d" % number), Part("attachment", b"with an attachment: %d" % number)),
    "stream": lambda number: (StreamedPart("body", partial(BytesIO, b"%d" % number)), Part("note", b"%d" % number)),
    "empty stream": lambda _: (StreamedPart("body", BytesIO),),
    "nothing": lambda _: (),
}
# Promoted properties, whether it is labelled, whether it is a request, a key of SHAPES.
Document = tuple[dict[str, Value], bool, bool, str]

names = st.sampled_from(list(PORTS))
hosts = st.sampled_from(list(HOSTS))
differences: st.SearchStrategy[Mapping[str, Any]] = st.one_of(
    st.fixed_dictionaries({"host": hosts}),
    st.fixed_dictionaries({"priority": st.sampled_from([2, 5])}),
    st.fixed_dictionaries({"ordered": st.booleans()}),
    st.fixed_dictionaries({"host": hosts, "ordered": st.booleans()}),
    st.fixed_dictionaries({"filter": st.sampled_from(list(FILTERS)), "two_way": st.booleans()}),
)
instances = st.integers(1, 3).map(lambda number: UUID(int=number))
correlated: st.SearchStrategy[dict[str, Value]] = st.sampled_from(
    [{"Region": "NO"}, {"Region": "dk"}, {"Amount": Decimal(10), "Region": "no"}]
)
regions: st.SearchStrategy[Value] = st.sampled_from(["NO", "no ", "NO\t", "SE", "DK"])
amounts: st.SearchStrategy[Value] = st.sampled_from([Decimal(5), Decimal("10.0")])
promoted = st.fixed_dictionaries({"Region": regions}, optional={"Amount": amounts}) | st.fixed_dictionaries(
    {}, optional={"Region": regions, "Amount": amounts}
)
rarely = st.sampled_from([False] * 4 + [True])
document = st.tuples(promoted, rarely, rarely, st.sampled_from(list(SHAPES)))
documents: st.SearchStrategy[Sequence[Document]] = rarely.flatmap(
    lambda none: st.lists(document, min_size=0 if none else 1, max_size=0 if none else 4)
)
failures = st.sampled_from([0, 0, 0, 0, 1])
limits = st.integers(1, 4)
outcomes = st.sampled_from(["complete", "complete", "retry", "suspend", "give back", "hold"])
jobs: st.SearchStrategy[Callable[[Agent], Job]] = st.sampled_from(
    [CleanReferences, CleanReferences, FoldCounts, ReportRoutingFailures]
)
minutes = st.integers(1, 5).map(lambda number: timedelta(minutes=number))


def messages_of(
    content: Sequence[Document], failed: int, new_id: Callable[[], MessageId], numbers: count[int]
) -> tuple[tuple[Message, ...], tuple[Failure, ...]]:
    messages = []
    for promoted, labelled, request, shape in content:
        properties = {**promoted, "BTS.IsRequestResponse": True} if request else promoted
        context = Context(properties, labels=frozenset({"secret"} if labelled else ()))
        messages.append(Message(new_id(), context, SHAPES[shape](next(numbers))))
    broken = (Message(new_id(), Context(), SHAPES["short"](next(numbers))) for _ in range(failed))
    return tuple(messages), tuple(Failure(message, "the file is not JSON") for message in broken)


def content_of(message: Message) -> object:
    parts = [(part.name, b"".join(part.chunks())) for part in message.parts]
    return message.id, message.context, parts
