"""The commands about messages that are tracked: `explain`, `trace`, `describe`, `get messages` and `erase`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from crossdock.cli.asked import Asked, Place, acting, asking
from crossdock.cli.completion import names_of
from crossdock.cli.options import Output
from crossdock.cli.output import Format
from crossdock.cli.watching import shown

MessageId = Annotated[
    str, typer.Argument(metavar="ID", help="A message, as `get messages` shows it: short or in full.")
]


@asking
def explain(
    place: Place,
    id_: MessageId,
    subscription: Annotated[
        str | None, typer.Argument(metavar="[SUBSCRIPTION]", help="One port or orchestration, predicate by predicate.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="By the filters of now, not of when it was published.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Say who got a message and where each copy is, who did not and which predicate failed, and the nearest misses."""
    from crossdock.cli.show_message import print_explanation

    with place.asked() as service:
        explained = service.explain(id_, subscription=subscription, now=now)
    print_explanation(explained, output, in_full=subscription is not None)


@asking
def trace(
    place: Place,
    id_: MessageId,
    output: Output = Format.TABLE,
) -> None:
    """Show the journey of a message as a tree: each delivery with its attempts, answers, instances, what they sent."""
    from crossdock.cli.show_message import print_trace

    with place.asked() as service:
        traced = service.trace(id_)
    print_trace(traced, output)


@asking
def describe(
    place: Place,
    id_: Annotated[
        str,
        typer.Argument(
            metavar="ID|NAME",
            help="A message, an instance or a send port, as `get messages|instances|ports` show it.",
            autocompletion=names_of("port"),
        ),
    ],
    output: Output = Format.TABLE,
) -> None:
    """Show one message in full: its properties, its parts and its copies. Personal values are masked.

    Or one instance of an orchestration: every step with its source lines, and its messages. Or one send port: its
    filter, what waits there and why, and what is suspended there by code.
    """
    from crossdock.administration.described_port import describe_port
    from crossdock.administration.message_ids import may_be_id
    from crossdock.administration.service import DescribedMessage
    from crossdock.cli.show_instances import print_instance
    from crossdock.cli.show_message import print_message
    from crossdock.cli.show_port import print_port

    with place.asked() as service:
        if not may_be_id(id_):
            print_port(describe_port(service, id_), output)
            return
        described = service.describe(id_)
    if isinstance(described, DescribedMessage):
        print_message(described, output)
    else:
        print_instance(described, output)


@acting
def erase(
    place: Place,
    where: Annotated[str, typer.Option(help="Which messages, as \"CustomerId = 'C17'\".")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this they are only counted.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Erase what is tracked of the content of messages: their properties and bodies. That they were there stays.

    Nobody is shown it from then on. What is still in the box is not touched.
    """
    from crossdock.cli.output import print_rows

    with place.asked() as service:
        erased = service.erase(where, preview=not yes)
    print_rows([erased], output, empty="")
    if not yes and erased.found:
        typer.echo("Nothing is erased yet. To erase them, add: --yes", err=True)


def get_messages(service: Asked, output: Format, watch: float | None, **wanted: Any) -> None:
    """Print a page of messages, the newest first. How to go on is said on standard error."""
    from crossdock.administration.service import MessagePage
    from crossdock.cli.lists import columns_of_list, print_list
    from crossdock.cli.show_message import print_messages

    def print_page(page: MessagePage) -> None:
        show = partial(print_messages, page, output)
        print_list(page.messages, output, show, columns_of_list("messages"), watched=watch is not None)

    shown(partial(service.messages, **wanted), print_page, output, watch)
