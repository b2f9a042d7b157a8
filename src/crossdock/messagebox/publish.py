"""Publishing: one transaction that stores each message once and gives every matching subscription one reference.

What makes it happen exactly once is the order inside: the ledger rows are locked, the keys are inserted, and only the
interchanges whose key was new go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psycopg

from crossdock.message.message import Message
from crossdock.messagebox.rows import Published, storable
from crossdock.messagebox.statement import statement
from crossdock.receive.interchange import Interchange
from crossdock.subscription.router import Router, Subscription

# Shared by publishers at the end of their transaction, exclusive for whoever changes subscriptions.
SUBSCRIPTION_LOCK = 0x0C05_5D0D
_UNROUTED = "No subscription matches: {}"


class EpochMovedError(Exception):
    """Subscriptions changed while a batch was being published: match again and publish again."""


@dataclass(frozen=True, slots=True)
class _Routed:
    """An interchange with the decision for each of its messages."""

    interchange: Interchange
    routes: Sequence[tuple[Message, Sequence[Subscription]]]

    @property
    def published(self) -> int:
        return sum(1 for _, matches in self.routes if matches)

    @property
    def unrouted(self) -> int:
        return len(self.routes) - self.published


def publish(connection: psycopg.Connection, router: Router, interchanges: Iterable[Interchange]) -> Published:
    """Publish in the caller's connection; raises EpochMovedError, with nothing done, if the router is out of date."""
    routed = _route(router, list(interchanges))
    with connection.transaction():
        ours = _claim(connection, routed)
        _store(connection, [message for each in ours for message in _all_messages(each.interchange)])
        hosts = _refer(connection, ours)
        _check_epoch(connection, router)
    return Published(
        interchanges=len(ours),
        received=sum(len(each.routes) + len(each.interchange.failures) for each in ours),
        published=sum(each.published for each in ours),
        unrouted=sum(each.unrouted for each in ours),
        suspended=sum(len(each.interchange.failures) for each in ours),
        references=hosts.total(),
        hosts=frozenset(hosts),
    )


def _route(router: Router, interchanges: Sequence[Interchange]) -> list[_Routed]:
    """All messages in one call of the router, then dealt out again."""
    messages = [message for interchange in interchanges for message in interchange.messages]
    matches = iter(router.route_all([message.context.promoted for message in messages]))
    return [_Routed(each, [(message, next(matches)) for message in each.messages]) for each in interchanges]


def _claim(connection: psycopg.Connection, routed: Sequence[_Routed]) -> list[_Routed]:
    """The interchanges this transaction may publish: their source is still in the ledger and their key is new."""
    sequences = [each.interchange.sequence for each in routed]
    living = {row[0] for row in connection.execute(statement("lock_intake"), {"sequence": sequences})}
    candidates = [each for each in routed if each.interchange.sequence in living]
    won = set(
        connection.execute(
            statement("claim_publication"),
            {
                "sequence": [each.interchange.sequence for each in candidates],
                "range_start": [each.interchange.range_start for each in candidates],
                "location": [each.interchange.location_id for each in candidates],
                "received": [len(each.routes) + len(each.interchange.failures) for each in candidates],
                "published": [each.published for each in candidates],
                "unrouted": [each.unrouted for each in candidates],
                "suspended": [len(each.interchange.failures) for each in candidates],
            },
        )
    )
    return [each for each in candidates if (each.interchange.sequence, each.interchange.range_start) in won]


def _all_messages(interchange: Interchange) -> Iterable[Message]:
    yield from interchange.messages
    yield from (failure.message for failure in interchange.failures)


def _store(connection: psycopg.Connection, messages: Sequence[Message]) -> None:
    _copy(
        connection,
        "COPY message (id, context, part_count) FROM STDIN (FORMAT BINARY)",
        ("uuid", "bytea", "int2"),  # JSON goes over the wire as the bytes of its text, which is what we have
        ((message.id, message.context.to_json(), len(message.parts)) for message in messages),
    )
    _copy(
        connection,
        "COPY part (message_id, number, name, body) FROM STDIN (FORMAT BINARY)",
        ("uuid", "int2", "text", "bytea"),
        ((message.id, n, part.name, part.body) for message in messages for n, part in enumerate(message.parts)),
    )


def _refer(connection: psycopg.Connection, routed: Sequence[_Routed]) -> Counter[int]:
    """One row per subscription: queued if it is started, suspended if it is stopped. Gives the queued ones by host."""
    queued: list[tuple[object, ...]] = []
    suspended: list[tuple[object, ...]] = []
    for each in routed:
        host = each.interchange.host_id
        suspended += [
            (host, "receive", f.message.id, None, None, 5, storable(f.reason)) for f in each.interchange.failures
        ]
        for message, matches in each.routes:
            if not matches:
                suspended.append((host, "unrouted", message.id, None, None, 5, storable(_unrouted_reason(message))))
            for match in matches:
                reference = (match.host_id, match.priority, message.id, match.id, match.service_id)
                if match.state == "started":
                    queued.append(reference)
                else:
                    suspended.append(_stopped(match, message))
    _copy(
        connection,
        "COPY queue (host_id, priority, message_id, subscription_id, service_id) FROM STDIN (FORMAT BINARY)",
        ("int2", "int2", "uuid", "int4", "int4"),
        queued,
    )
    _copy(
        connection,
        "COPY suspended (host_id, kind, message_id, subscription_id, service_id, priority, reason)"
        " FROM STDIN (FORMAT BINARY)",
        ("int2", "text", "uuid", "int4", "int4", "int2", "text"),
        suspended,
    )
    return Counter(int(str(row[0])) for row in queued)


def _stopped(match: Subscription, message: Message) -> tuple[object, ...]:
    reason = f"Send port {match.service!r} is stopped."
    return (match.host_id, "stopped", message.id, match.id, match.service_id, match.priority, reason)


def _unrouted_reason(message: Message) -> str:
    kind = message.context.get("BTS.MessageType")
    return _UNROUTED.format(f"nobody wants this message of type {kind!r}." if kind else "the message has no type.")


def _check_epoch(connection: psycopg.Connection, router: Router) -> None:
    """Last step: from here to the commit nobody can change subscriptions, and nobody has since we matched."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [SUBSCRIPTION_LOCK])
    row = connection.execute("SELECT epoch FROM box").fetchone()
    if row is None or row[0] != router.epoch:
        raise EpochMovedError


def _copy(
    connection: psycopg.Connection, command: str, types: Sequence[str], rows: Iterable[tuple[object, ...]]
) -> None:
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)
