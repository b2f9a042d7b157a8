"""Lines of a flat file taken apart all at once are what they are when they are taken apart one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crossdock.message.property import PropertyType
from crossdock.pipeline.document import DocumentColumns, Promoter, Promotion
from crossdock.pipeline.flat import FlatDisassembler, Record

NAMES = ["id", "amount", "note"]


def orders(
    *, delimiter: str = ",", field: str = "id", names: list[str] = NAMES, named: bool = False
) -> FlatDisassembler:
    promoter = Promoter(
        [
            Promotion("Id", PropertyType.TEXT, field, field),
            Promotion("Amount", PropertyType.DECIMAL, "amount", "amount"),
            Promotion("Note", PropertyType.TEXT, "note", "note", distinguished=True),
        ],
        8,
    )
    return FlatDisassembler("Order", Record(names, (), delimiter, '"', promoter), names_first=named)


lines = st.lists(
    st.sampled_from(
        [b"a,1.50,x", b"b,2,", b",,", b"c,many,x", b"d,1", b"e,1,x,y", b'"f",1,"a,b"', b"", b" ", b"\r", b"g,1,x\r", b"h\ri,1,x",
         b"\xff,1,x", b"i, 7 ,\xc3\xb8", b"a long text,1,x", b"j,-0.00,\xe2\x80\xa8"]
    ),
    min_size=1, max_size=5,
).map(b"\n".join)  # fmt: skip


@given(lines, st.sampled_from(["id", "elsewhere"]), st.sampled_from([NAMES, ["id", "id", "amount"]]))
def test_lines_taken_apart_together_are_what_each_is_by_itself(content: bytes, field: str, names: list[str]) -> None:
    disassembler = orders(field=field, names=names)
    together = disassembler.together(content)

    if together is not None:
        assert list(together) == list(disassembler.disassemble(content))


def test_plain_lines_are_taken_apart_together() -> None:
    content = b"\xef\xbb\xbfa,1.50,x\r\nb,2,\r\n\r\n"

    together = orders().together(content)

    assert isinstance(together, DocumentColumns)
    assert list(together) == list(orders().disassemble(content))
    assert list(together.bodies) == [b"a,1.50,x", b"b,2,"]


def test_files_that_say_more_than_their_lines_are_taken_apart_one_by_one() -> None:
    assert orders(named=True).together(b"id,amount,note\na,1,x\n") is None
    assert orders().together(b"\n\n") is None
    assert orders().together(b'"a",1,x\n') is None
