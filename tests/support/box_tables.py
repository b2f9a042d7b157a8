"""What the tables of a MessageBox hold, read as they are, to be compared with what they should hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import psycopg

_REFERENCES = """
SELECT 'queued', host_id, sequence, message_id, service_id, subscription_id, instance_id, subqueue, priority, attempt,
       NULL, NULL::integer, NULL::timestamptz
  FROM queue
 UNION ALL
SELECT 'claimed', host_id, sequence, message_id, service_id, subscription_id, instance_id, subqueue, priority, attempt,
       NULL, claimed_by, NULL
  FROM claimed
 UNION ALL
SELECT 'scheduled', host_id, sequence, message_id, service_id, subscription_id, instance_id, subqueue, priority, attempt,
       NULL, NULL, due_at
  FROM scheduled
 UNION ALL
SELECT 'suspended', host_id, sequence, message_id, service_id, subscription_id, instance_id, 0, priority, attempt,
       kind, NULL, NULL
  FROM suspended
"""
_COUNTED = """
SELECT {0}_id, sum(number)
  FROM (SELECT {0}_id, living AS number FROM {0}_ref_total
         UNION ALL
        SELECT {0}_id, delta FROM {0}_ref_log_1
         UNION ALL
        SELECT {0}_id, delta FROM {0}_ref_log_2
         UNION ALL
        SELECT id, reference_count FROM {0} WHERE id NOT IN (SELECT {0}_id FROM {0}_ref_total)) AS counted
 GROUP BY {0}_id
HAVING sum(number) <> 0
"""
_LEFT = ("message", "part", "fragment", "message_ref_total", "part_ref_total", "message_ref_log_1",
         "message_ref_log_2", "part_ref_log_1", "part_ref_log_2", "routing_failure", "refusal")  # fmt: skip
# Children before their parents; hosts stay, since their tables do.
_EMPTIED = ("queue", "claimed", "scheduled", "suspended", *_LEFT, "intake", "publication", "publication_total",
            "delivery", "delivery_total", "subqueue_lease", "instance_subscription", "correlation", "predicate",
            "subscription", "subscription_removal", "subscription_version", "service", "receive_location", "application", "property",
            "host_instance")  # fmt: skip


class Row(NamedTuple):
    """A reference, from whichever of the four tables has it."""

    place: str
    host_id: int
    sequence: int
    message_id: UUID
    service_id: int | None
    subscription_id: int | None
    instance_id: UUID | None
    subqueue: int
    priority: int
    attempt: int
    kind: str | None
    claimed_by: int | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class Tables:
    """One look at everything that concerns references."""

    references: list[Row]
    leases: dict[int, int]
    messages: dict[UUID, list[UUID]]
    parts: dict[UUID, int]
    fragments: dict[UUID, int]
    noted: set[UUID]
    message_counts: dict[UUID, int]
    part_counts: dict[UUID, int]

    @classmethod
    def read(cls, connection: psycopg.Connection) -> Tables:
        def pairs(query: str) -> dict[UUID, int]:
            return {key: int(number) for key, number in connection.execute(query)}

        return cls(
            [Row(*row) for row in connection.execute(_REFERENCES)],
            dict(connection.execute("SELECT service_id, held_by FROM subqueue_lease WHERE held_by IS NOT NULL")),
            dict(connection.execute("SELECT id, parts FROM message")),
            pairs("SELECT id, fragments FROM part"),
            pairs("SELECT part_id, count(*) FROM fragment GROUP BY part_id"),
            {
                id_
                for (id_,) in connection.execute(
                    "SELECT message_id FROM routing_failure UNION SELECT message_id FROM refusal"
                )
            },
            pairs(_COUNTED.format("message")),
            pairs(_COUNTED.format("part")),
        )

    def check(self) -> None:
        """What holds at any moment: nothing is deleted while somebody needs it, and every reference is counted."""
        assert self.message_counts == Counter(row.message_id for row in self.references)
        assert {row.message_id for row in self.references} <= self.messages.keys()
        wanted = Counter(part for parts in self.messages.values() for part in parts)
        assert self.part_counts == wanted
        assert wanted.keys() <= self.parts.keys()
        assert self.fragments == {part: fragments for part, fragments in self.parts.items() if fragments}
        assert self.noted <= self.messages.keys()


def empty(connection: psycopg.Connection) -> None:
    """As if the MessageBox had just been created; much faster than to create it."""
    connection.execute("; ".join(f"DELETE FROM {table}" for table in _EMPTIED))
    connection.execute("UPDATE host SET labels = '{}'")


def left_over(connection: psycopg.Connection) -> dict[str, int]:
    """The number of rows, by table, of what should be gone when nobody refers to anything."""
    query = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in _LEFT)
    return {table: rows for table, rows in connection.execute(query) if rows}
