"""Flat files: lines cut into columns by a delimiter or at positions, with a header before them and a trailer after.

Each line is a message and keeps its own bytes. What is promoted from the header goes to every message.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

from crossdock.errors import DocumentError, PromotionError
from crossdock.message.property import Value
from crossdock.pipeline.document import Document, DocumentColumns, LineReader, Promoter
from crossdock.pipeline.lines import lines_of

_BOM = b"\xef\xbb\xbf"
_HEADER_CHARACTERS = 1_000
_DELIMITERS_LIMIT = 1_000_000  # in one line: as columns, they take eighty times their bytes
_BLANKS = " \t\r\n\v\f"


@dataclass(frozen=True, slots=True)
class Record:
    """How a line is cut. `names` may be empty where the header of the file says them."""

    names: Sequence[str]
    positions: Sequence[tuple[int, int]]
    delimiter: str
    quote: str
    promoter: Promoter[str]

    @property
    def blanks(self) -> str:
        """What a line is blank of: not of its delimiters, which stand between empty columns."""
        return _BLANKS if self.positions else _BLANKS.replace(self.delimiter, "")

    def named(self, names: Sequence[str]) -> Record:
        return Record(names, self.positions, self.delimiter, self.quote, self.promoter)

    def cut(self, line: str) -> list[str]:
        """The text of each column. A positional line may end early, and then its last columns are empty."""
        if self.positions:
            end = max(start - 1 + length for start, length in self.positions)
            if len(line) > end and line[end:].strip():
                raise DocumentError(f"it has {len(line.rstrip())} characters, and its columns end at {end}")
            return [line[start - 1 : start - 1 + length].strip() for start, length in self.positions]
        delimiters = line.count(self.delimiter)
        if self.names and self.quote not in line and delimiters + 1 != len(self.names):
            raise _miscounted(delimiters + 1, self.names)
        if delimiters > _DELIMITERS_LIMIT:
            raise DocumentError(f"it has {delimiters:,} delimiters, and {_DELIMITERS_LIMIT:,} is the most")
        if self.quote not in line:
            return line.split(self.delimiter)
        if len(line) > csv.field_size_limit():
            csv.field_size_limit(len(line))  # for the whole process, and only ever raised: our lines are bounded before
        try:
            [columns] = csv.reader([line], delimiter=self.delimiter, quotechar=self.quote, strict=True)
        except csv.Error as error:
            raise DocumentError(str(error)) from error
        return columns

    def join(self, columns: Sequence[str]) -> str:
        """The line that is cut into these columns. Raises DocumentError if there is none."""
        for name, text in zip(self.names, columns, strict=True):
            if "\n" in text or "\r" in text:
                raise DocumentError(f"the column {name!r} holds a line end")
        line = self._placed(columns) if self.positions else self._delimited(columns)
        if not line.strip(self.blanks):
            raise DocumentError(f"it has none of the columns {', '.join(self.names)}")
        return line

    def _placed(self, columns: Sequence[str]) -> str:
        line = " " * max(start - 1 + length for start, length in self.positions)
        for name, text, (start, length) in zip(self.names, columns, self.positions, strict=True):
            if len(text) > length:
                raise DocumentError(f"the column {name!r} has {len(text)} characters, and {length} is the most")
            line = line[: start - 1] + text.ljust(length) + line[start - 1 + length :]
        return line

    def _delimited(self, columns: Sequence[str]) -> str:
        written = StringIO()
        csv.writer(written, delimiter=self.delimiter, quotechar=self.quote, lineterminator="").writerow(columns)
        return written.getvalue()

    def values(self, line: str) -> dict[str, str]:
        """The text of each column by its name. Raises DocumentError if it does not have the columns it should have."""
        columns = self.cut(line)
        if len(columns) != len(self.names):
            raise _miscounted(len(columns), self.names)
        return dict(zip(self.names, columns, strict=True))

    def columns(self, lines: Sequence[str]) -> list[list[str | None]] | None:
        """The texts that are promoted from lines in which nothing is quoted; None if one has not its columns."""
        delimiters = len(self.names) - 1
        if any(line.count(self.delimiter) != delimiters for line in lines):
            return None
        rows = [line.split(self.delimiter) for line in lines]
        places = {name: place for place, name in enumerate(self.names)}
        wanted = [places.get(each.path) for each in self.promoter.promotions]
        return [[None if place is None else row[place] or None for row in rows] for place in wanted]

    def promote(self, line: str) -> tuple[dict[str, Value], dict[str, Value]]:
        """(promoted, written) of a line."""
        values = self.values(line)
        # An empty column is a column without a value, as every flat file means it.
        return self.promoter.promote(lambda name: values.get(name) or None)


@dataclass(frozen=True, slots=True)
class FlatDisassembler:
    """`names_first`: the first line names the columns. `count`: the column of the trailer that says how many lines."""

    type: str
    record: Record
    header: Record | None = None
    trailer: Record | None = None
    count: str | None = None
    names_first: bool = False

    def disassemble(self, content: bytes, *, piece: bool = False) -> Iterator[Document]:
        if piece:
            if self.names_first:
                raise DocumentError("the first line of its file names the columns, and is not here")
            yield self._line(self.record, "the line", content, {}, {})
            return
        blanks = self.record.blanks.encode()
        lines = [
            (number, line.rstrip(b"\r"))
            for number, line in enumerate(lines_of(content.removeprefix(_BOM)), start=1)
            if line.strip(blanks)
        ]
        if not lines:
            raise DocumentError("the file is empty" if not content else "the file holds no message")
        record, promoted, written = self._begin(lines)
        self._end(lines)
        if not lines:
            raise DocumentError("the file holds no message between its header and its trailer")
        for number, line in lines:
            yield self._line(record, f"line {number}", line, promoted, written)

    def together(self, content: bytes, start: int | None = None) -> DocumentColumns | None:
        """The lines of a plain file, all at once: delimited, nothing quoted, neither header nor trailer."""
        record = self.record
        if record.positions or self.names_first or self.header is not None or self.trailer is not None:
            return None
        body = content if start else content.removeprefix(_BOM)
        blanks = record.blanks.encode()
        lines = [line.rstrip(b"\r") for line in lines_of(body) if line.strip(blanks)]
        try:
            texts = b"\n".join(lines).decode()
        except UnicodeDecodeError:
            return None
        plain = lines and record.quote not in texts and "\r" not in texts
        columns = record.columns(texts.split("\n")) if plain else None
        try:
            return None if columns is None else DocumentColumns(lines, self.type, *record.promoter.columns(columns))
        except PromotionError:
            return None

    def by_lines(self, head: bytes) -> LineReader | None:
        """How to read a file that begins so line by line; a trailer would have to be known before."""
        first = head.removeprefix(_BOM).split(b"\n", 1)[0]
        blanks = self.record.blanks.encode()
        if self.trailer is not None or b"\n" not in head or not first.strip(blanks):
            return None
        lines = [(1, first.rstrip(b"\r"))]
        record, promoted, written = self._begin(lines)
        if sum(len(str(value)) for value in (*promoted.values(), *written.values())) > _HEADER_CHARACTERS:
            return None  # too much to give to each of so many lines; read whole, they are counted first
        skipped = 0 if lines else head.index(b"\n") + 1

        def read(content: bytes, start: int) -> Iterator[Document]:
            for line in content.split(b"\n"):
                stripped = (line if start else line.removeprefix(_BOM)).rstrip(b"\r")
                if stripped.strip(blanks) and start >= skipped:
                    yield self._line(record, f"the line at byte {start + 1}", stripped, promoted, written)
                start += len(line) + 1

        return read

    def _begin(self, lines: list[tuple[int, bytes]]) -> tuple[Record, Mapping[str, Value], Mapping[str, Value]]:
        """Take the header away: how lines are cut, and what they inherit."""
        if self.names_first:
            names = self.record.cut(_text(lines.pop(0)[1]))
            missing = [each.field for each in self.record.promoter.promotions if each.field not in names]
            if missing:
                raise DocumentError(f"the first line names no column {missing[0]!r}")
            repeated = [each.field for each in self.record.promoter.promotions if names.count(each.field) > 1]
            if repeated:
                raise DocumentError(f"the first line names the column {repeated[0]!r} more than once")
            return self.record.named(names), {}, {}
        if self.header is None:
            return self.record, {}, {}
        number, line = lines.pop(0)
        promoted, written = self._special(self.header, "header", number, line)
        return self.record, promoted, written

    def _end(self, lines: list[tuple[int, bytes]]) -> None:
        """Take the trailer away, and see whether it counts the lines right."""
        if self.trailer is None:
            return
        if not lines:
            raise DocumentError("the file has no trailer")
        number, line = lines.pop()
        self._special(self.trailer, "trailer", number, line)
        if self.count is not None:
            counted = dict(zip(self.trailer.names, self.trailer.cut(_text(line)), strict=True))[self.count]
            if counted.strip().lstrip("0") != (str(len(lines)) if lines else ""):
                raise DocumentError(f"the trailer counts {counted!r} lines, and there are {len(lines)}")

    def _special(
        self, record: Record, what: str, number: int, line: bytes
    ) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
        try:
            return record.promote(_text(line))
        except (DocumentError, PromotionError) as error:
            raise DocumentError(f"the {what} in line {number} cannot be used: {error}") from error

    def _line(
        self, record: Record, place: str, line: bytes, promoted: Mapping[str, Value], written: Mapping[str, Value]
    ) -> Document:
        try:
            mine, distinguished = record.promote(line_text(line))
        except (DocumentError, PromotionError) as error:
            return Document(line, self.type, error=f"{place}: {error}", code=error.code)
        everything = {"BTS.MessageType": self.type, **promoted, **mine}
        return Document(line, self.type, everything, {**written, **distinguished})


def _miscounted(columns: int, names: Sequence[str]) -> DocumentError:
    return DocumentError(f"it has {columns} columns instead of {len(names)}")


def line_text(line: bytes) -> str:
    """The text of one line. Raises DocumentError if it is more than one, or no text."""
    if b"\n" in line or b"\r" in line:
        raise DocumentError("it holds a line end")
    return _text(line)


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DocumentError(f"byte {error.start + 1} is 0x{line[error.start]:02x}, which is not UTF-8") from error
