"""What an operator does in the demo while messages flow: the verbs of the command line, and what they print."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from crossdock.administration.running import Statistics
from crossdock.administration.service import Administration, Selection, opened
from crossdock.cli.demo_at_work import AtWork, bars_of
from crossdock.cli.output import Format, print_edited, print_published, print_rows, short, table_of
from crossdock.demo.orders import INCOMPLETE, LARGE
from crossdock.settings import Settings

_STOPPED = "NewCustomers"
_MENDED = "Christmas"


def operate(out: Console, work: AtWork, settings: Settings, application: Path, messages: int) -> None:
    """Stop a port, publish by hand, route the rest, start the port, mend a message, let an orchestration go on.

    `messages`: how many arrive in the folder that is read. Raises InterruptedDemoError.
    """
    deployed = work.wait_until_deployed()
    _head(out, "Deployed", deployed)
    with opened(settings) as service:
        _stop_port(out, service)
        _publish(out, work, service, application.parent / "large.json")
        _route(out, work, service, messages + 1)
        _start_port(out, work, service)
        _mend(out, work, service, application.parent)
        _pay(out, work, service, application.parent / "payment.json")


def _stop_port(out: Console, service: Administration) -> None:
    _head(out, "A partner is away", f"stop the port {_STOPPED}. Its messages are kept.")
    _command(out, f"stop {_STOPPED}")
    print_rows([service.stop(_STOPPED)], Format.TABLE, empty="")


def _publish(out: Console, work: AtWork, service: Administration, order: Path) -> None:
    _head(out, "Spark still starts", "hosts deliver already. Publish an order by hand:")
    _command(out, f"publish {order} --location OrdersIn.file")
    print_published(list(service.publish([order], location="OrdersIn.file", to=None, properties=[])), Format.TABLE)
    work.wait(lambda told: told.ports.get("Letters", 0) > 0, "delivering")  # its orchestration has sent the invoice
    receivers = ", ".join(name for name, count in work.latest.ports.items() if count)
    out.print(f"Delivered: {receivers}.", highlight=False)


def _route(out: Console, work: AtWork, service: Administration, messages: int) -> None:
    _head(out, "Routing", "what is in the folder, as soon as Spark has started.")
    work.wait(lambda told: _all_routed(told, messages), "Spark starts, then it routes")
    ports = service.ports()
    delivered = {port.name: port.delivered for port in ports}
    out.print(bars_of(delivered, out.width, {port.name: port.suspended for port in ports}))
    suspended = service.suspended(Selection())
    others = [row for row in suspended if row.kind == "receive"]
    out.print()
    out.print(table_of([{"suspended file": _file(row.source_file), "reason": row.reason} for row in others]))
    unrouted = Counter(str(row.type) for row in suspended if row.kind == "unrouted")
    out.print(f"Nobody wants {unrouted.total():,} orders. They are kept too.", highlight=False)


def _all_routed(told: Statistics, messages: int) -> bool:
    """Each invoice that went to the bank comes back as a payment, and what is paid is shipped."""
    invoices = told.ports.get("Bank", 0)
    at_rest = not (told.unread or told.ready or told.claimed)
    return at_rest and told.received == messages + invoices and told.ports.get("Shipping", 0) == invoices


def _start_port(out: Console, work: AtWork, service: Administration) -> None:
    _head(out, "The partner is back", "start the port. What was kept is delivered.")
    _command(out, f"start {_STOPPED}")
    started = service.start(_STOPPED)
    print_rows([started], Format.TABLE, empty="")
    work.wait(lambda told: told.ports.get(_STOPPED, 0) >= started.resumed, "delivering")
    out.print(f"{_STOPPED} has delivered {work.latest.ports[_STOPPED]:,}.", highlight=False)


def _mend(out: Console, work: AtWork, service: Administration, folder: Path) -> None:
    _head(out, "One message failed", f"at one of its two ports. Order {INCOMPLETE} names no country:")
    [row] = service.suspended(Selection(port=_MENDED, where=f"OrderId = '{INCOMPLETE}'"))
    out.print(f"  {row.code}: {row.reason}", markup=False, highlight=False)
    before = work.latest.ports.get(_MENDED, 0)
    _command(out, f"edit {short(row.id)} --port {_MENDED} --property Country=NO")
    edited = service.edit(service.editable(str(row.id), _MENDED), body=None, properties=["Country=NO"])
    print_edited(edited, Format.TABLE)
    work.wait(lambda told: told.ports.get(_MENDED, 0) > before, "delivering")
    [written] = (folder / "out" / "christmas").glob(f"*/{edited.edited_id}.json")
    out.print(f"Now it is there: {written}", highlight=False, soft_wrap=True)


def _pay(out: Console, work: AtWork, service: Administration, payment: Path) -> None:
    [waiting] = service.instances(where=f"OrderId = '{LARGE}'")
    paid = work.latest.ports.get("Shipping", 0)
    others = len(service.instances())
    _head(
        out,
        "An orchestration",
        f"looks after each urgent order. {paid:,} were paid and shipped, {others:,} wait as rows in PostgreSQL.",
    )
    out.print(f"Order {LARGE} waits: {waiting.waits_for}. Here is its payment:", markup=False, highlight=False)
    _command(out, f"publish {payment} --location Payments.file")
    published = list(service.publish([payment], location="Payments.file", to=None, properties=[]))
    print_published(published, Format.TABLE)
    work.wait(lambda told: told.ports.get("Shipping", 0) > paid, "delivering")
    out.print("The instance went on, shipped the order, and ended.")


def _head(out: Console, title: str, text: str) -> None:
    out.print()
    out.print(f"[bold]{title}[/bold]: {text}", highlight=False)


def _command(out: Console, command: str) -> None:
    out.print(f"$ crossdock {command}", style="cyan", markup=False, highlight=False, soft_wrap=True)


def _file(source: str | None) -> str:
    return Path(source or "-").name
