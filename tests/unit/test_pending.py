"""What is read and not published yet: it is published before it is too much to hold."""

from __future__ import annotations

import gzip

from crossdock.dataflow.pending import Pending
from crossdock.pipeline.definition import PipelineDefinition
from crossdock.receive.item import IntakeItem
from crossdock.receive.location import LocationDefinition, ReceiveLocation


def location(**pipeline: object) -> ReceiveLocation:
    definition = LocationDefinition(
        name="In", port="In", adapter="file", address="/in/*", pipeline=PipelineDefinition.model_validate(pipeline)
    )
    return ReceiveLocation.from_definition(1, 1, definition.model_dump(mode="json"))


def test_compressed_source_counts_by_what_it_becomes() -> None:
    content = gzip.compress(bytes(9 * 1024 * 1024))
    item = IntakeItem(1, 1, b"1:1:1:/in/a.gz", len(content), 0)
    pending = Pending()

    pending.add(item, location(disassemble="passthrough", decode=["gzip"]).publication(item, content))

    assert pending.is_full


def test_envelope_counts_by_its_messages_also_by_those_that_failed() -> None:
    schemas = [{"type": "Batch", "format": "xml", "body": "/Batch"}]
    content = b'<Batch xmlns:a="urn:%b">%b</Batch>' % (b"a" * 1_900, b"<Order/>" * 5_000)
    item = IntakeItem(1, 1, b"1:1:1:/in/a.xml", len(content), 0)
    pending = Pending()

    pending.add(item, location(disassemble="xml", schemas=schemas).publication(item, content))

    assert (pending.messages, pending.is_full) == (5_000, True)
