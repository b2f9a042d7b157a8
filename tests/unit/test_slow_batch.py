"""A micro-batch that takes long is said, so that whoever waits for other files knows why."""

from __future__ import annotations

import pytest

from crossdock.dataflow.slow_batch import SlowBatch


class Watch:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def seen_for(batch: SlowBatch, watch: Watch, seconds: int, *, busy: bool = True) -> None:
    for _ in range(seconds):
        batch.seen(busy=busy)
        watch.now += 1


def test_batch_that_takes_long_is_said_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()

    seen_for(SlowBatch(300, watch), watch, 120)

    assert [record.args for record in caplog.records] == [(30, 300), (90, 300)]
    assert "other files and rows wait" in caplog.text


def test_batches_that_end_in_time_are_not_said(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    batch = SlowBatch(300, watch)

    for _ in range(10):
        seen_for(batch, watch, 20)
        batch.ended()
        seen_for(batch, watch, 20)
        seen_for(batch, watch, 1, busy=False)

    assert caplog.records == []
