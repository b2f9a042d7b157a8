"""What a worker has read and not published yet: no more than is good for one transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from crossdock.message.publication import Publication
from crossdock.pipeline.limits import TOGETHER_BYTES, body_bytes, context_bytes
from crossdock.receive.item import IntakeItem

_INTERCHANGES_PER_TRANSACTION = 500
_BYTES_PER_TRANSACTION = 8 * 1024 * 1024
_MESSAGES_PER_TRANSACTION = 50_000


@dataclass(slots=True)
class Pending:
    """What is to be published in one transaction."""

    publications: list[tuple[IntakeItem, Publication]] = field(default_factory=list)
    size: int = 0
    messages: int = 0
    contexts: int = 0
    began: float = field(default_factory=time.perf_counter)

    def add(self, item: IntakeItem, publication: Publication) -> None:
        self.publications.append((item, publication))
        failed = [failure.message for failure in publication.failures]
        # A source may be compressed, and what is taken out of an envelope may be larger than that.
        self.size += max(item.size, body_bytes(publication.messages) + body_bytes(failed))
        self.messages += len(publication.messages) + len(publication.failures)
        self.contexts += context_bytes(publication.messages)

    @property
    def is_full(self) -> bool:
        return (
            len(self.publications) >= _INTERCHANGES_PER_TRANSACTION
            or self.size >= _BYTES_PER_TRANSACTION
            or self.messages >= _MESSAGES_PER_TRANSACTION
            or self.contexts >= TOGETHER_BYTES
        )
