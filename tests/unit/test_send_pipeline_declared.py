"""Send pipelines as an application declares them: what is wrong is refused in one sentence, with its port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crossdock.errors import ApplicationError
from send_pipelines import PLACED, SCHEMAS, definition_of


def wrong() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"assemble": "csv"}, "'csv' is nothing to assemble as (there are: json, xml, flat, passthrough)"
    yield {"assemble": "json", "schema": "Order"}, "`schema` is for flat files"
    yield {"assemble": "json", "declaration": True}, "`declaration` is for XML"
    yield {"assemble": "flat", "schema": "Order"}, "the schema 'Order' is of format 'json', not 'flat'"
    yield {"assemble": "flat", "schema": "Other"}, "it names the schema 'Other', which is not declared"
    yield {"charset": "klingon"}, "there is no character set 'klingon'"
    yield {"assemble": "xml", "charset": "klingon"}, "there is no character set 'klingon'"
    yield (
        {"assemble": "xml", "charset": "unicode-escape"},
        "XML cannot be written in the character set 'unicode-escape'",
    )
    yield {"components": ["steps:missing"]}, "module 'steps' has no function 'missing'"
    yield {"encode": ["zip"]}, "'zip' does not name a function; write it as module:function"
    yield {"maps": [{"from": "Order", "to": "Other", "function": "steps:bill"}]}, "a map makes 'Other'"
    yield {"maps": [{"from": "Order", "to": "Bill", "xslt": "steps.py"}]}, "steps.py is not an XSLT that can be used"


@pytest.mark.parametrize(("pipeline", "reason"), list(wrong()))
def test_wrong_pipeline_is_refused_with_its_port(pipeline: dict[str, Any], reason: str, folder: Path) -> None:
    with pytest.raises(ApplicationError) as refused:
        definition_of(folder, **pipeline)

    assert str(refused.value).startswith(f"send port 'Out': {reason}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "Line", "format": "flat"}, "which has no `columns`"),
        ({**PLACED, "columns": {"id": [1, 4], "year": [3, 4]}}, "'id' and 'year' overlap"),
        (SCHEMAS[0], "there is no schema of format 'flat'; declare one under `schemas`"),
    ],
)
def test_schema_by_which_no_line_can_be_written_is_refused(schema: dict[str, Any], reason: str, folder: Path) -> None:
    with pytest.raises(ApplicationError, match=reason):
        definition_of(folder, schema, assemble="flat")
