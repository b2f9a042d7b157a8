"""Runs: messages of one source made together are what they would be if each were made by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.message.columns import MessageColumns, id_texts, message_ids
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part, message_id
from crossdock.message.property import Value
from crossdock.messagebox.batch import Batch
from crossdock.pipeline.document import Document
from crossdock.receive.columns import message_columns

SHARED = Context(
    {"BTS.ReceivePortName": "100 % of it", "BTS.InboundTransportType": "FILE"},
    {"BTS.ReceiveLocationName": 'a "quoted" \\ %b %d name', "BTS.InterchangeID": "x"},
)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"', "\\", "%b", "%", "\0", "ø"]
)
values: st.SearchStrategy[Value] = st.one_of(
    text,
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=1 - 10**20, max_value=10**20 - 1, places=4),
    st.floats(allow_nan=False),
    st.datetimes(timezones=st.just(UTC)),
)
names = st.sampled_from(["Region", "Amount", "When", "Note", "BTS.MessageType"])
documents = st.lists(
    st.builds(
        Document,
        st.binary(max_size=4),
        st.none(),
        st.dictionaries(names, values),
        st.dictionaries(st.just("Own"), values),
    ),
    min_size=1,
    max_size=5,
)


def alone(id_: MessageId, document: Document, number: int, *, last: bool) -> Message:
    """The message of a document by itself."""
    promoted: dict[str, Value] = {
        **SHARED.promoted,
        "BTS.InterchangeSequenceNumber": number,
        "BTS.LastInterchangeMessage": last,
        **document.promoted,
    }
    written: dict[str, Value] = {**document.written, **SHARED.written, "BTS.MessageID": str(id_)}
    return Message(id_, Context(promoted, written, SHARED.labels), (Part("body", document.body),))


def together(documents: Sequence[Document], shared: Context = SHARED) -> MessageColumns:
    ids = message_ids(7, 3, range(len(documents)))
    run = message_columns(shared, ids, range(len(documents)), documents, before=10, end=len(documents) - 1)
    assert run is not None
    return run


@given(documents)
def test_message_of_a_run_is_what_it_would_be_by_itself(documents: list[Document]) -> None:
    run = together(documents)

    expected = [
        alone(message_id(7, 3, n), document, n + 11, last=n == len(documents) - 1)
        for n, document in enumerate(documents)
    ]
    assert list(run) == expected
    for name in {name for message in expected for name in message.context.promoted}:
        assert run.column(name) == [message.context.promoted.get(name) for message in expected]
    assert run[-1] == expected[-1]
    assert list(run[:2]) == expected[:2]


@given(st.integers(0, 2**36 - 2), st.integers(1, 2**47), st.integers(0, 2**38 - 1))
def test_ids_made_together_are_those_made_one_by_one(position: int, sequence: int, box: int) -> None:
    ids = message_ids(box, sequence, [position, position + 1])

    expected = [message_id(box, sequence, position), message_id(box, sequence, position + 1)]
    assert [MessageId(UUID(bytes=ids[start : start + 16])) for start in (0, 16)] == expected
    assert id_texts(ids) == [str(each).encode() for each in expected]


@pytest.mark.parametrize(
    "document",
    [
        Document(b"", promoted={"BTS.ReceivePortName": "another"}),
        Document(b"", written={"BTS.IsRequestResponse": True}),
        Document(b"", promoted={"Region": "half \ud800 of a pair"}),
    ],
)
def test_what_cannot_be_made_together_is_left_to_be_made_alone(document: Document) -> None:
    run = message_columns(SHARED, message_ids(7, 3, [0, 1]), [0, 1], [Document(b""), document], before=0, end=1)

    assert run is None


def test_batch_of_runs_and_messages_reads_as_one() -> None:
    labelled = Context(SHARED.promoted, SHARED.written, frozenset({"patient"}))
    first = together([Document(b"a", promoted={"Region": "NO"}), Document(b"b")])
    second = alone(message_id(7, 4, 0), Document(b"c", written={"BTS.IsRequestResponse": True}), 1, last=True)
    third = together(
        [Document(b"d", promoted={"Region": "SE", "Amount": Decimal(3), "When": datetime(2026, 1, 1, tzinfo=UTC)})],
        labelled,
    )

    batch = Batch([first, (), [second], third])

    assert len(batch) == 4
    assert [message.body for message in batch] == [b"a", b"b", b"c", b"d"] == [batch[n].body for n in range(4)]
    assert batch.column("Region") == ["NO", None, None, "SE"]
    assert [bytes(each) for each in batch.ids] == [message.id.bytes for message in batch]
    assert batch.requests() == [2]
    assert batch.labelled
    assert [batch.labels(n) for n in range(4)] == [frozenset()] * 3 + [frozenset({"patient"})]
    assert not Batch([first]).labelled
    assert len(Batch([])) == 0
