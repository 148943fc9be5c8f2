"""The result table, in a terminal and in README.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Benchmark
from benchmarks.summary import Row

README = Path(__file__).with_name("README.md")
COLUMNS = ("contender", "median", "spread", "x Kafka Streams", "CPU s", "peak MiB", "beside")


def show(console: Console, benchmark: Benchmark, rows: Sequence[Row]) -> None:
    """Print the table of one benchmark."""
    title = f"{benchmark.name}: {benchmark.title}, {benchmark.unit}"
    table = Table(title=title, title_justify="left")
    for column in COLUMNS:
        right = column not in (COLUMNS[0], COLUMNS[-1])
        table.add_column(column, justify="right" if right else "left")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    for line in guarantees(benchmark, rows):
        console.print(line, highlight=False)


def cells(row: Row) -> tuple[str, ...]:
    """The row's columns as text."""
    ratio = "" if row.ratio is None else number(row.ratio)
    if row.ratios is not None and row.ratios[0] != row.ratios[1]:
        ratio += f" ({number(row.ratios[0])} to {number(row.ratios[1])})"
    return (
        row.contender,
        number(row.median),
        f"{number(row.least)} to {number(row.most)}",
        ratio,
        number(row.cpu_s),
        f"{row.peak_mib:,}",
        ", ".join(f"{name} {number(value)}" for name, value in row.facts.items()),
    )


def guarantees(benchmark: Benchmark, rows: Sequence[Row]) -> list[str]:
    """What the contenders promise, a line each."""
    return [
        f"- {row.contender}: {benchmark.guarantees[row.contender]}"
        for row in rows
        if row.contender in benchmark.guarantees
    ]


def number(value: float) -> str:
    """Three digits that count, never an exponent."""
    for least, digits in ((100, 0), (10, 1), (0.1, 2)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}" if value else "0"


def markdown(
    benchmark: Benchmark, rows: Sequence[Row], scale: float, machine: Mapping[str, str]
) -> str:
    """What README.md says of one benchmark."""
    rounds = f"{rows[0].rounds} rounds" if rows[0].rounds > 1 else "1 round"
    promised = [f"{line}." for line in guarantees(benchmark, rows)]
    if promised:
        promised.append("")
    size = "" if scale == 1 else f", scale {scale:g}"
    lines = [
        f"{benchmark.title[0].upper()}{benchmark.title[1:]}; {benchmark.unit}; {rounds}{size}.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "---:|" * (len(COLUMNS) - 2) + "---|",
        *("| " + " | ".join(cells(row)) + " |" for row in rows),
        "",
        *promised,
        "; ".join(f"{name} {value}" for name, value in machine.items()) + ".",
    ]
    return "\n".join(lines)


def write(path: Path, name: str, text: str) -> None:
    """Put a text between the markers of a name, in place of what is there.

    Raises:
        ValueError: the file does not hold the two markers once each, in order.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    whole = path.read_text()
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if (whole.count(begin), whole.count(end), len(pattern.findall(whole))) != (1, 1, 1):
        raise ValueError(f"{path} must hold the lines {begin!r} and {end!r}, once and in order")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", whole))
