"""What is wrong with a receive pipeline is said before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crossdock.errors import ApplicationError
from stages import ORDER, XML_ORDER, location_of


@pytest.mark.parametrize(
    ("schemas", "location", "port", "problem"),
    [
        ([ORDER], {"decode": ["zip"]}, {}, "'zip' does not name a function"),
        ([ORDER], {"charset": "klingon"}, {}, "there is no character set 'klingon'"),
        ([ORDER], {"charset": "hex"}, {}, "there is no character set 'hex'"),
        ([XML_ORDER], {"pipeline": "xml", "charset": "latin-1"}, {}, "`charset` is not for XML"),
        ([{**XML_ORDER, "body": "/o:Other"}], {"pipeline": "xml"}, {}, "does not begin at the root of a urn:orders#Order"),
        ([{**XML_ORDER, "validate": "types/escaping.xsd"}], {"pipeline": "xml"}, {}, "which is not in its folder or below"),
        ([{"type": "L", "format": "flat", "columns": ["a"], "quote": ","}], {}, {}, "must differ, and be no line ends"),
        ([ORDER], {"decode": ["nowhere:f"]}, {}, "module 'nowhere' cannot be imported"),
        ([ORDER], {"decode": ["components:missing"]}, {}, "has no function 'missing'"),
        ([{**ORDER, "validate": "missing.json"}], {}, {}, "missing.json cannot be read: No such file"),
        ([{**ORDER, "validate": "order.xsd"}], {}, {}, "order.xsd is not a JSON Schema that can be used"),
        ([{**XML_ORDER, "validate": "order.json"}], {"pipeline": "xml"}, {}, "order.json is not an XSD that can be used"),
        ([ORDER], {}, {"maps": [{"from": "Order", "to": "Bill", "function": "components:doubled"}]}, "makes 'Bill', which is not declared"),
        ([ORDER], {}, {"maps": [{"from": "Order"}]}, "a map has either `xslt` or `function`"),
        ([XML_ORDER], {}, {}, "there is no schema of format 'json'"),
        ([XML_ORDER], {"schema": "urn:orders#Order"}, {}, "is of format 'xml', not 'json'"),
        ([XML_ORDER], {"pipeline": "xml", "split": "lines"}, {}, "`split` is for JSON"),
        ([{**XML_ORDER, "body": "//x"}], {"pipeline": "xml"}, {}, "must be a plain path of elements"),
        ([{**ORDER, "columns": ["a"]}], {}, {}, "`columns`, `header` and `trailer` are for flat files"),
        ([{"type": "L", "format": "flat", "columns": ["a", "a"]}], {}, {}, "the column 'a' is there twice"),
        ([{"type": "L", "format": "flat", "columns": ["a"], "promote": {"Region": "b"}}], {}, {}, "there is no column 'b' (there are: a)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_pipeline_is_said_before_anything_starts(
    folder: Path, schemas: list[Mapping[str, Any]], location: Mapping[str, Any], port: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(ApplicationError) as caught:
        location_of(folder, *schemas, location=location, port=port)

    assert problem in str(caught.value)
