"""`crossdock bench --plot`: the table of figures in a document, drawn as a picture."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from crossdock.bench.plot import draw, read_figures
from crossdock.cli.app import app
from crossdock.errors import UsageError

DOCUMENTS = Path(__file__).parents[2] / "docs"
_NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}


def a_table(*rows: str) -> str:
    head = "| what | subscriptions | figure | compared in the same run | command |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(f"| {row} | `crossdock bench` |\n" for row in rows)


def dots(picture: str, style: str) -> list[float]:
    """Where the marks of the lines are, from the left; those of the legend are left out."""
    circles = ElementTree.fromstring(picture).findall("svg:circle", _NAMESPACE)  # noqa: S314 - our own
    legend = min(float(each.get("cy", "")) for each in circles)
    return [
        float(each.get("cx", ""))
        for each in circles
        if each.get("class") == style and float(each.get("cy", "")) > legend
    ]


def texts(picture: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(picture).findall("svg:text", _NAMESPACE)]  # noqa: S314


def bench_plot(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "--plot", *arguments])


def test_picture_in_the_documents_is_what_the_command_draws_from_their_table(tmp_path: Path) -> None:
    shutil.copy(DOCUMENTS / "benchmarks.md", tmp_path)

    bench_plot(str(tmp_path / "benchmarks.svg"))

    drawn = (tmp_path / "benchmarks.svg").read_text()
    assert drawn == (DOCUMENTS / "benchmarks.svg").read_text(), "run: crossdock bench --plot docs/benchmarks.svg"


def test_ratio_gives_the_rate_of_the_baseline() -> None:
    [figure] = read_figures(
        a_table("publishing | 1,000 | 60,000 messages/s | 75 % of plain COPY, 1,000 times RabbitMQ")
    )

    assert figure.per_second == 60_000
    assert [each.per_second for each in figure.comparisons] == [80_000, 60]


def test_picture_names_every_rate_and_what_it_is_compared_with() -> None:
    rows = [
        "a < b & c | 1,000 | 60,000 messages/s (median) | 75 % of plain COPY, 3 times RabbitMQ",
        "other | 10 | 5 references/s |",
    ]

    shown = texts(draw(read_figures(a_table(*rows))))

    expected = {
        "a < b & c",
        "1,000",
        "60,000 messages/s",
        "75 % of plain COPY",
        "3 times RabbitMQ",
        "other",
        "5 references/s",
    }
    assert expected <= set(shown)


def test_higher_rate_is_further_to_the_right() -> None:
    rows = [f"matching | 10 | {rate} messages/s | 50 % of plain COPY" for rate in ("90", "100", "40,000")]

    picture = draw(read_figures(a_table(*rows)))

    assert dots(picture, "ours") == sorted(dots(picture, "ours"))
    assert all(ring > dot for dot, ring in zip(dots(picture, "ours"), dots(picture, "ring"), strict=True))


def test_peer_has_a_mark_of_its_own() -> None:
    picture = draw(read_figures(a_table("end to end | 10 | 90 messages/s | 50 % of plain COPY, 3 times RabbitMQ")))

    assert len(dots(picture, "ring")) == len(dots(picture, "ring peer")) == 1
    assert "RabbitMQ" in texts(picture)


def test_legend_leaves_out_a_peer_that_no_rate_is_compared_with() -> None:
    assert "RabbitMQ" not in texts(draw(read_figures(a_table("publishing | 10 | 90 messages/s | 50 % of plain COPY"))))


def test_equal_rates_can_be_drawn() -> None:
    assert len(dots(draw(read_figures(a_table("publishing | 10 | 100 messages/s |"))), "ours")) == 1


def test_figures_that_are_not_rates_are_left_out() -> None:
    rows = ["one message | 1 | 2.6 ms | 3 times a bare commit", "publishing | 1 | 90 messages/s |"]

    assert [figure.what for figure in read_figures(a_table(*rows))] == ["publishing"]


def test_tables_below_are_left_out() -> None:
    document = a_table("publishing | 1 | 90 messages/s |") + "\nText.\n\n| a | b | 7 messages/s | c |\n"

    assert [figure.what for figure in read_figures(document)] == ["publishing"]


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("publishing | 1 | many messages/s |", "many messages/s"),
        ("publishing | 1 | 0 messages/s |", "0 messages/s"),
        ("publishing | 1 | 90 messages/s | nearly as fast as COPY", "nearly as fast as COPY"),
        ("publishing | 1 | 90 messages/s | 0 % of COPY", "0 % of COPY"),
    ],
)
def test_row_that_cannot_be_read_is_named(row: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=f"Row 'publishing': '{wrong}'"):
        read_figures(a_table(row))


@pytest.mark.parametrize(
    "document", ["", "| a | b |\n| --- | --- |\n| 90 messages/s | |\n", a_table("demo | 1 | 25 s |")]
)
def test_document_without_rates_is_refused(document: str) -> None:
    with pytest.raises(UsageError, match="no table of rates"):
        read_figures(document)


def test_document_is_not_overwritten_by_its_picture(tmp_path: Path) -> None:
    document = tmp_path / "figures.md"
    document.write_text(a_table("publishing | 1 | 90 messages/s |"))

    refused = bench_plot(str(document))

    assert "ends in .svg" in str(refused.exception)
    assert document.read_text().startswith("| what")


def test_picture_without_a_document_is_refused(tmp_path: Path) -> None:
    assert "There is no document" in str(bench_plot(str(tmp_path / "figures.svg")).exception)


def test_plot_and_a_benchmark_in_one_command_are_refused(tmp_path: Path) -> None:
    assert "leave out 'matching'" in str(bench_plot(str(tmp_path / "figures.svg"), "matching").exception)
