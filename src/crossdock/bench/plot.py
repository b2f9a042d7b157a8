"""The table of figures in a document, drawn as an SVG. `read_figures` says what the table has to look like.

A row that states a rate is a line of the picture: a dot for the rate, and a ring for each rate that it is compared
with. Nothing is measured here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, groupby, takewhile
from math import ceil, floor, log10
from pathlib import Path
from xml.sax.saxutils import escape

from crossdock.errors import UsageError

_COLUMNS = ["what", "subscriptions", "figure", "compared in the same run"]
_RATE = re.compile(r"([1-9][\d,]*) (?:messages|references)/s")
_COMPARISON = re.compile(r"([\d,]*\d(?:\.\d+)?) (% of|times) (.+)")
_PEER = "RabbitMQ"

# In pixels. A line has, from the left: subscriptions and rate (where they end), the plot, what it is compared with.
_WIDTH, _SUBSCRIPTIONS, _RATES, _PLOT, _PLOT_END, _COMPARED = 960, 106, 260, 300, 630, 675
_HEAD, _GROUP, _LINE, _GAP, _FOOT = 70, 28, 22, 12, 44
_STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .paper { fill: #ffffff } .quiet { fill: #59636e } .strong { font-weight: 600 } .end { text-anchor: end }
  .middle { text-anchor: middle } .grid { stroke: #d1d9e0 } .span { stroke: #818b98 } .ours { fill: #0969da }
  .ring { fill: #ffffff; stroke: #59636e; stroke-width: 2 } .peer { stroke: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .paper { fill: #0d1117 } .quiet { fill: #9198a1 } .grid { stroke: #3d444d }
    .span { stroke: #656c76 } .ours { fill: #4493f8 } .ring { fill: #0d1117; stroke: #9198a1 } .peer { stroke: #f0883e }
  }
</style>"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a rate is compared with. `per_second` follows from the ratio in `text`."""

    text: str
    per_second: float

    @property
    def peer(self) -> bool:
        return _PEER in self.text


@dataclass(frozen=True, slots=True)
class Figure:
    """A row that states a rate, with its texts as the table has them."""

    what: str
    subscriptions: str
    rate: str
    per_second: float
    comparisons: tuple[Comparison, ...]

    @property
    def rates(self) -> list[float]:
        return [self.per_second, *(each.per_second for each in self.comparisons)]


def plot(picture: Path) -> None:
    """Write the SVG `picture` from the table in the document beside it: `figures.svg` from `figures.md`."""
    document = picture.with_suffix(".md")
    if picture.suffix != ".svg":
        raise UsageError(f"The picture {str(picture)!r} will be an SVG. Give it a name that ends in .svg")
    if not document.is_file():
        raise UsageError(f"There is no document {str(document)!r}, from which the figures are read")
    picture.write_text(draw(read_figures(document.read_text("utf-8"))), "utf-8")


def read_figures(document: str) -> list[Figure]:
    """The rows of the table that state a rate, such as `62,000 messages/s`. Rows with other figures are left out.

    A rate is compared as in `66 % of plain COPY` or `3 times RabbitMQ`, or with several: `, ` separates them.
    """
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in document.splitlines())
    table = takewhile(bool, dropwhile(lambda row: row[: len(_COLUMNS)] != _COLUMNS, rows))
    figures = [_figure(row) for row in table if any("/s" in cell for cell in row[2:3])]
    if not figures:
        raise UsageError(f"The document has no table of rates with the columns {', '.join(_COLUMNS)}")
    return figures


def draw(figures: Sequence[Figure]) -> str:
    """The SVG. The same figures give the same text."""
    rates = [rate for figure in figures for rate in figure.rates]
    lowest = floor(log10(min(rates)))
    axis = _Axis(lowest, max(lowest + 1, ceil(log10(max(rates)))))
    body, y = _head(peer=any(each.peer for figure in figures for each in figure.comparisons)), _HEAD
    for what, group in groupby(figures, key=lambda figure: figure.what):
        drawn, y = _group(what, list(group), axis, y)
        body += drawn
    body += [_text(axis.x(10**power), y + 8, f"{10**power:,}", "quiet middle") for power in axis.powers]
    unit = "per second; each step to the right is ten times the rate"
    body.append(_text((_PLOT + _PLOT_END) / 2, y + 28, unit, "quiet middle"))
    size = f'width="{_WIDTH}" height="{y + _FOOT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {y + _FOOT}" role="img">'
    return "\n".join([head, _STYLE, f'<rect class="paper" {size}/>', *body, "</svg>\n"])


@dataclass(frozen=True, slots=True)
class _Axis:
    """Logarithmic, between two powers of ten."""

    lowest: int
    highest: int

    @property
    def powers(self) -> range:
        return range(self.lowest, self.highest + 1)

    def x(self, rate: float) -> float:
        share = (log10(rate) - self.lowest) / (self.highest - self.lowest)
        return round(_PLOT + share * (_PLOT_END - _PLOT), 1)


def _figure(row: Sequence[str]) -> Figure:
    what, subscriptions, figure, compared = [*row, ""][: len(_COLUMNS)]
    rate = _RATE.match(figure)
    if not rate:
        raise UsageError(f"Row {what!r}: {figure!r} is no rate. Write for example: 62,000 messages/s")
    per_second = _number(rate[1])
    return Figure(what, subscriptions, rate[0], per_second, tuple(_comparisons(what, per_second, compared)))


def _comparisons(what: str, per_second: float, compared: str) -> Iterator[Comparison]:
    for text in filter(None, compared.split(", ")):
        found = _COMPARISON.fullmatch(text)
        if not found or not _number(found[1]):
            raise UsageError(f"Row {what!r}: {text!r} is no comparison. Write for example: 66 % of plain COPY")
        ratio = _number(found[1]) / (100 if found[2] == "% of" else 1)
        yield Comparison(text, per_second / ratio)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _head(*, peer: bool) -> list[str]:
    """The title, the names of the columns, and what the marks mean."""
    marks = [("ours", "Crossdock"), ("ring", "baseline"), *([("ring peer", _PEER)] if peer else [])]
    drawn = [
        _text(16, 28, "Messages or references per second, by number of subscriptions", "strong"),
        _text(_SUBSCRIPTIONS, 56, "subscriptions", "quiet end"),
        _text(_RATES, 56, "rate", "quiet end"),
        _text(_COMPARED, 56, "compared in the same run", "quiet"),
    ]
    for x, (mark, meaning) in zip(range(_PLOT, _PLOT_END, 110), marks, strict=False):
        drawn += [_dot(x, 52, mark), _text(x + 12, 56, meaning, "quiet")]
    return drawn


def _group(what: str, figures: Sequence[Figure], axis: _Axis, y: int) -> tuple[list[str], int]:
    """The lines of one kind of figure under its name, and where the next kind begins."""
    lines, top = [], y + _GROUP
    bottom = top
    for figure in figures:
        lines += _line(figure, axis, bottom + _LINE // 2)
        bottom += _LINE * max(1, len(figure.comparisons))
    grid = [f'<path class="grid" d="M{axis.x(10**power)} {top}V{bottom}"/>' for power in axis.powers]
    return [_text(16, y + 18, what, "strong"), *grid, *lines], bottom + _GAP


def _line(figure: Figure, axis: _Axis, y: int) -> list[str]:
    return [
        _text(_SUBSCRIPTIONS, y + 4, figure.subscriptions, "end"),
        _text(_RATES, y + 4, figure.rate, "end"),
        f'<path class="span" d="M{axis.x(min(figure.rates))} {y}H{axis.x(max(figure.rates))}"/>',
        *(_dot(axis.x(each.per_second), y, "ring peer" if each.peer else "ring") for each in figure.comparisons),
        _dot(axis.x(figure.per_second), y, "ours"),
        *(_text(_COMPARED, y + 4 + _LINE * number, each.text) for number, each in enumerate(figure.comparisons)),
    ]


def _dot(x: float, y: int, style: str) -> str:
    return f'<circle class="{style}" cx="{x}" cy="{y}" r="5"/>'


def _text(x: float, y: int, text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}"{named}>{escape(text)}</text>'
