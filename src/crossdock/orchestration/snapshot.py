"""What `continue_with` keeps of an instance whose history is dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from crossdock.errors import DocumentError
from crossdock.message.context import Context
from crossdock.message.document import parse_json, write_json
from crossdock.message.message import Message
from crossdock.message.property import Value
from crossdock.orchestration.history import Continued, ContinuedArgument

if TYPE_CHECKING:
    from crossdock.orchestration.instance import Instance


def continued(instance: Instance, arguments: tuple[object, ...]) -> Continued:
    """Raises DocumentError for an argument that cannot be kept. Responses that nobody can await now stay behind."""
    return Continued(
        arguments=[_argument(instance, each) for each in arguments],
        sets={name: Context(promoted=values).to_json() for name, values in instance.sets.items()},
        inbox=[event for event in instance.waits.inbox if event.request is None],
        labels=sorted(instance.labels),
        open_requests=list(instance.open_requests),
        patches=dict(instance.patches),
        counters=dict(instance.counters),
        secret=instance.secret,
    )


def restored_sets(event: Continued) -> Mapping[str, Mapping[str, Value]]:
    return {name: Context.from_json(stored).promoted for name, stored in event.sets.items()}


def restored_arguments(event: Continued, load: Callable[[UUID], Message]) -> Iterator[Any]:
    for each in event.arguments:
        yield parse_json(each.value) if each.message is None else load(each.message)


def _argument(instance: Instance, value: object) -> ContinuedArgument:
    if not isinstance(value, Message):
        return ContinuedArgument(write_json(value))
    if value.id not in instance.given:
        raise DocumentError("a message that the code made is not stored; give its body instead")
    return ContinuedArgument(message=value.id)
