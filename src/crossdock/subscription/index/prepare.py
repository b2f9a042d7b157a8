"""Gets the compiled loops ready ahead of the first message: importing numba and loading them takes a second."""

from __future__ import annotations

from crossdock.message.property import PropertyType
from crossdock.subscription.index.index import SubscriptionIndex
from crossdock.subscription.predicate import Operator, Predicate

_NAME = "BTS.MessageType"


def prepare_matching() -> None:
    """Match one message by an index of one subscription; afterwards the loops are in memory."""
    predicate = Predicate(_NAME, Operator.EQUAL, "none")
    SubscriptionIndex.build([(0, ((predicate,),))], {_NAME: PropertyType.TEXT}).match_one({_NAME: "none"})
