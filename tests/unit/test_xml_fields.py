"""Fields that are children of the root of a message are found together, as each would be found by itself."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from crossdock.errors import PromotionError
from crossdock.message.property import PropertyType, Value
from crossdock.pipeline.document import Promoter, Promotion
from crossdock.pipeline.xml import XmlShape, parse_xpath

NAMESPACES = {"o": "urn:orders"}
FIELDS = {"Id": PropertyType.TEXT, "Amount": PropertyType.DECIMAL, "Note": PropertyType.TEXT}
children = st.lists(
    st.sampled_from(
        ["<Id>a</Id>", "<Id/>", "<Id> a <!-- b --> c</Id>", "<Id><b>a</b></Id>", "<Id><![CDATA[<a>]]></Id>", '<Id x="1">a</Id>',
         "<Amount>12.50</Amount>", "<Amount>many</Amount>", '<Amount xsi:nil="true"/>', '<Amount xsi:nil="false">1</Amount>',
         "<Amount><?pi?>7</Amount>", "<Note>text</Note>", '<Id xmlns="urn:else">b</Id>', "<Other><Id>c</Id></Other>", "<!-- -->"]
    ),
    max_size=5,
)  # fmt: skip
Promoted = tuple[dict[str, Value], dict[str, Value]]


def promoter(*paths: str) -> XmlShape:
    promotions = [
        Promotion(name, type_, path, parse_xpath(path, NAMESPACES), name == "Note")
        for (name, type_), path in zip(FIELDS.items(), paths, strict=False)
    ]
    return XmlShape("urn:orders#Order", Promoter(promotions, 256))


ORDER = promoter("/o:Order/o:Id", "/o:Order/o:Amount", "/o:Order/o:Note")


@given(children)
def test_fields_found_together_are_those_found_one_by_one(children: list[str]) -> None:
    xsi = "http://www.w3.org/2001/XMLSchema-instance"
    root = etree.fromstring(f'<Order xmlns="urn:orders" xmlns:xsi="{xsi}">{"".join(children)}</Order>')
    assert ORDER.children is not None

    together = _outcome(lambda: ORDER.promote(root))

    assert together == _outcome(lambda: ORDER.promoter.promote(lambda path: path.find(root)))


def _outcome(promote: Callable[[], Promoted]) -> Promoted | str:
    try:
        return promote()
    except PromotionError as error:
        return str(error)


def test_fields_elsewhere_are_found_one_by_one() -> None:
    assert promoter("/o:Order/@id").children is None
    assert promoter("/o:Order/o:Id", "/o:Order/o:Total/o:Amount").children is None
    assert promoter("/o:Order/o:Id", "/o:Order/o:Id").children is None
    assert promoter("/o:Other/o:Id").children is None
    assert promoter("/o:Order/o:Id", "/o:Order/o:Line[1]").children is None
