"""Makes many waiting instances of a few: their rows are real ones, copied in the database with values of their own.

To make a million by running them takes many times as long. What differs from one instance to the next is made here
by the functions that the engine calls: ids, the hash of the correlation, and the record of the step, whose digest a
replay compares. The rest of each row is that of an instance which waits already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import structs

from crossdock.errors import CrossdockError
from crossdock.messagebox.instance_rows import new_instance_id
from crossdock.orchestration.history import Activated, StepRecord, decode_record, encode_record
from crossdock.orchestration.journal import digest
from crossdock.subscription.correlation import correlation_hash

if TYPE_CHECKING:
    from crossdock.bench.orchestration import Bench

_TEMPLATE = """
SELECT instance.id, history.record, subscription.correlation_id
  FROM crossdock.instance
  JOIN crossdock.history ON history.instance_id = instance.id
  JOIN crossdock.instance_subscription AS subscription ON subscription.instance_id = instance.id
  JOIN crossdock.held ON held.instance_id = instance.id
 WHERE instance.step = 1 AND NOT EXISTS (SELECT FROM crossdock.timer WHERE timer.instance_id = instance.id)
 LIMIT 1
"""
_CREATE = """
CREATE TEMPORARY TABLE copied
    (message_id uuid, context json, body bytea, instance_id uuid, hash uuid, value text, record bytea)
"""
_COPY = "COPY copied (message_id, context, body, instance_id, hash, value, record) FROM STDIN"
# All that a waiting instance has: its message and part, the instance, what it holds, its step, and by what it waits.
_INSERTS = (
    """
    INSERT INTO crossdock.message (id, context, part_count, parts, reference_count)
    SELECT copied.message_id, copied.context, message.part_count, ARRAY[copied.message_id], message.reference_count
      FROM copied, crossdock.instance JOIN crossdock.message ON message.id = instance.activation
     WHERE instance.id = %(template)s
    """,
    """
    INSERT INTO crossdock.part (name, body, id, size, fragments, reference_count)
    SELECT part.name, copied.body, copied.message_id, length(copied.body), part.fragments, part.reference_count
      FROM copied, crossdock.instance JOIN crossdock.part ON part.id = instance.activation
     WHERE instance.id = %(template)s
    """,
    """
    INSERT INTO crossdock.instance (host_id, id, service_id, version, activation, step, state, waiting_for, line)
    SELECT host_id, copied.instance_id, service_id, version, copied.message_id, step, state, waiting_for, line
      FROM copied, crossdock.instance
     WHERE instance.id = %(template)s
    """,
    """
    INSERT INTO crossdock.held (host_id, instance_id, sequence, message_id, step, subscription_id)
    SELECT host_id, copied.instance_id, nextval('crossdock.reference_sequence'), copied.message_id, step,
           subscription_id
      FROM copied, crossdock.held
     WHERE held.instance_id = %(template)s
    """,
    """
    INSERT INTO crossdock.history (host_id, instance_id, step, record)
    SELECT host_id, copied.instance_id, step, copied.record
      FROM copied, crossdock.history
     WHERE history.instance_id = %(template)s
    """,
    """
    INSERT INTO crossdock.instance_subscription
           (instance_id, service_id, host_id, correlation_id, hash, value, priority, bound_to)
    SELECT copied.instance_id, service_id, host_id, correlation_id, copied.hash, ARRAY[copied.value], priority, bound_to
      FROM copied, crossdock.instance_subscription AS subscription
     WHERE subscription.instance_id = %(template)s
    """,
)
# As autovacuum would have done while they came to wait one after the other.
_ANALYZE = (
    "ANALYZE crossdock.message, crossdock.part, crossdock.instance, crossdock.held, crossdock.history, "
    "crossdock.instance_subscription"
)


def multiply_waiting(bench: Bench, numbers: range) -> None:
    """Let an instance wait for each number, all like one that waits already after its first step."""
    template = bench.connection.execute(_TEMPLATE).fetchone()
    if template is None:
        raise CrossdockError("No instance waits after its first step, so none can be copied.")
    instance, stored, correlation = template
    record = decode_record(stored)
    with bench.connection.transaction():
        bench.connection.execute(_CREATE)
        with bench.connection.cursor().copy(_COPY) as copy:
            for row in _rows(bench, numbers, record, correlation):
                copy.write_row(row)
        for insert in _INSERTS:
            done = bench.connection.execute(insert.encode(), {"template": instance})
            if done.rowcount != len(numbers):
                raise CrossdockError(f"The figures are void: {done.rowcount:,} rows of {len(numbers):,} were copied.")
        bench.connection.execute("DROP TABLE copied")
    bench.connection.execute(_ANALYZE)


def _rows(bench: Bench, numbers: range, record: StepRecord, correlation: int) -> Iterator[tuple[Any, ...]]:
    case_sensitive = bench.agent.router().case_sensitive
    for number in numbers:
        message = bench.message("Claim", number)
        values = {"OrderId": str(number)}
        hash_ = correlation_hash(correlation, ("OrderId",), values, case_sensitive=case_sensitive)
        made = encode_record(_record_of(record, message.id, values))
        context = message.context.to_json().decode()
        yield message.id, context, message.body, new_instance_id(), hash_, str(number), made


def _record_of(record: StepRecord, message: UUID, values: dict[str, str]) -> StepRecord:
    """The record as if this message with these values had begun the instance."""
    [event] = record.events
    assert isinstance(event, Activated)
    initialized = digest([repr(sorted(values.items())).encode()])
    commands = [structs.replace(each, digest=initialized) if each.kind == "set" else each for each in record.commands]
    return structs.replace(record, events=[structs.replace(event, message=message)], commands=commands)
