from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.measure import HOLDFAST, PEER, Measurement
from benchmarks.suite import SUITE
from benchmarks.summary import summarize

ROUNDS = [{HOLDFAST: Measurement(150_000, 12.5, 2000, facts={"first commit after s": 7.6})}]
ROUNDS[0][PEER] = Measurement(60_000, 40, 900)


def test_a_readme_text_has_what_a_reader_needs() -> None:
    rows = summarize(ROUNDS, more_is_better=True)
    text = report.markdown(SUITE[0], rows, 0.5, {"date": "2026-01-02", "processor": "2 cores"})
    assert text.splitlines()[0] == (
        "Count by key, Zipf(1.2) keys, 24,000,000 records after 2,000,000 of warm-up; records/s; "
        "1 round, scale 0.5."
    )
    assert (
        "| holdfast | 150,000 | 150,000 to 150,000 | 2.50 | 12.5 | 2,000 | first commit after s "
        "7.60 |"
    ) in text
    assert "| kafka streams | 60,000 |" in text
    assert text.endswith("date 2026-01-02; processor 2 cores.")


def test_what_contenders_promise_stands_below_their_rates() -> None:
    rows = summarize(ROUNDS, more_is_better=True)
    lines = report.markdown(SUITE[0], rows, 1, {}).splitlines()
    promised = [line for line in lines if line.startswith("- ")]
    assert [line.partition(":")[0] for line in promised] == ["- holdfast", "- kafka streams"]
    assert set(SUITE[0].guarantees) == set(SUITE[0].contenders())


def test_a_table_has_as_many_cells_as_columns() -> None:
    for row in summarize(ROUNDS, more_is_better=True):
        assert len(report.cells(row)) == len(report.COLUMNS)


@pytest.mark.parametrize(
    ("value", "text"),
    [(226_559.4, "226,559"), (14.44, "14.4"), (0.9, "0.90"), (0.0123, "0.012"), (0, "0")],
)
def test_numbers(value: float, text: str) -> None:
    assert report.number(value) == text


def test_only_the_text_between_the_markers_changes(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(
        "# Top\n<!-- begin a -->\n<!-- end a -->\nkept\n"
        "<!-- begin b -->\nold\nold\n<!-- end b -->\nend\n"
    )
    report.write(readme, "b", r"new \1")
    report.write(readme, "a", "first")
    report.write(readme, "a", "second")
    assert readme.read_text() == (
        "# Top\n<!-- begin a -->\nsecond\n<!-- end a -->\nkept\n"
        "<!-- begin b -->\nnew \\1\n<!-- end b -->\nend\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "no markers\n",
        "<!-- begin a -->\nonly one\n",
        "<!-- end a -->\n<!-- begin a -->\n",
        "<!-- begin a -->\n<!-- end a -->\n<!-- begin a -->\n<!-- end a -->\n",
    ],
)
def test_a_readme_without_its_markers_is_left_alone(tmp_path: Path, text: str) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(ValueError, match="once and in order"):
        report.write(readme, "a", "new")
    assert readme.read_text() == text


def test_the_readme_has_a_place_for_every_benchmark(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(report.README.read_text())
    for benchmark in SUITE:
        report.write(copy, benchmark.name, "new")
    assert copy.read_text().count("\nnew\n") == len(SUITE)
