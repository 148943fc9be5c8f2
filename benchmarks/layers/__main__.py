"""``python -m benchmarks.layers``: where the time of a commit goes, layer by layer.

Rates of single layers, in this process as far as possible, so on one core; CPU time is of this
process alone (threads of RocksDB and librdkafka included), peak memory of its Python objects.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.layers import commit, progress, serdes, store
from benchmarks.layers.timing import Timing
from benchmarks.machine import facts
from benchmarks.report import README, number, write
from benchmarks.world import World
from state_lib.logs import configure_logging

COLUMNS = ("layer", "operation", "rows", "ms", "rows/s", "µs/row", "CPU µs/row", "peak MiB")


def main(arguments: list[str] | None = None) -> None:
    """Run, print, and write README.md if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of one operation")
    parser.add_argument("--write", action="store_true", help="put results into README.md")
    parser.add_argument("--readme", type=Path, default=README, help="which README.md")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    configure_logging("WARNING")
    machine = "; ".join(f"{name} {value}" for name, value in facts().items())
    rows = [cells(timing) for timing in timings(options.rows)]
    table = Table()
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table, machine, sep="\n")
    if options.write:
        lines = [COLUMNS, ("---", "---", *["---:"] * (len(COLUMNS) - 2)), *rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        write(options.readme, "layers", f"{text}\n\n{machine}.")


def timings(rows: int) -> Iterator[Timing]:
    """Every layer, from the smallest."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield from serdes.run(rows)
        yield from store.run(rows, Path(folder))
        with World(Path(folder), 1.0, lambda _: None) as world:
            yield from commit.run(rows, world)
            yield from progress.run(rows, world)


def cells(timing: Timing) -> tuple[str, ...]:
    """A line of the table."""
    whole = f"{timing.rows:,}" if timing.rows else ""
    each = ("", "", "")
    if timing.rows:
        wall, cpu = (s * 1e6 / timing.rows for s in (timing.seconds, timing.cpu_s))
        each = (number(timing.rows / timing.seconds), number(wall), number(cpu))
    peak = number(timing.peak_bytes / (1 << 20)) if timing.peak_bytes else ""
    return (timing.layer, timing.operation, whole, number(timing.seconds * 1000), *each, peak)


if __name__ == "__main__":
    main()
