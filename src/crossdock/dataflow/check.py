"""A small job through the whole of Spark, to see whether it works here."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkException

from crossdock.dataflow.session import start_spark
from crossdock.errors import UnavailableError
from crossdock.settings import Settings


def check_spark(settings: Settings) -> None:
    """Start Spark, run one pass through Python workers, stop it. Raises UnavailableError if any of it fails."""
    spark = start_spark(settings)
    try:
        if spark.session.range(100).mapInArrow(_same, "id BIGINT").count() != 100:
            raise UnavailableError(f"Spark runs but its Python workers lose rows; see {spark.log}")
    except PySparkException as error:
        raise UnavailableError(f"Spark starts but cannot run Python workers; see {spark.log}") from error
    finally:
        spark.close()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
