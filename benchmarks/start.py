"""From a driver's start to its first commit, phase by phase.

``python -m benchmarks.start [--times 5]``

Starts a broker and two hosts, then one driver after another on a source of 2 M records, and prints
the seconds of each phase: the first driver of an application, that is new to the hosts, and the
later ones, each of which takes over where the one before was killed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.contenders.engine import Query
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.world import World
from state_lib.logs import configure_logging

RECORDS = 2_000_000
LOOK_S = 0.05
PHASES = {
    "starting": "the JVM and Spark's session, Python beside them, the declaration",
    "spark is up": "topics looked up",
    "claimed": "expressions resolved, topics ensured, claim written",
    "all tasks claimed": "hosts open and claim the tasks",
    "streaming": "tasks aligned, Spark's query started",
    "batch": "first batch, committed",
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5, help="drivers after the first")
    times = parser.parse_args().times
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    configure_logging("WARNING")
    console = Console(width=None if sys.stdout.isatty() else 120)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        World(Path(folder), 1.0, console.print) as world,
    ):
        holdfast = Holdfast(world, Query("bench-start", world.source("zipf", RECORDS)))
        holdfast.start_hosts()
        try:
            first, *later = [_start(holdfast) for _ in range(1 + times)]
        finally:
            holdfast.kill()
    console.print(_table(first, later))


def _start(holdfast: Holdfast) -> dict[str, float]:
    """Start a driver, wait for its first commit, kill it; returns seconds by phase."""
    # Not psutil's `create_time`: it counts from a boot time that is known to the second only.
    before, spent = time.time(), dict[str, float]()
    holdfast.start_driver()
    driver = holdfast.driver
    assert driver is not None
    for event in PHASES:
        while not (found := driver.events(event=event)):
            holdfast.check()
            time.sleep(LOOK_S)
        at = _seconds(found[0])
        spent[event], before = at - before, at
    driver.kill()
    return spent


def _seconds(event: dict[str, Any]) -> float:
    return dt.datetime.fromisoformat(event["timestamp"]).timestamp()


def _table(first: dict[str, float], later: list[dict[str, float]]) -> Table:
    table = Table("phase", "seconds, first driver", "later ones, median", "least to most")
    for event, words in PHASES.items():
        table.add_row(words, *_cells(first[event], [spent[event] for spent in later]))
    table.add_section()
    table.add_row("all", *_cells(sum(first.values()), [sum(spent.values()) for spent in later]))
    return table


def _cells(first: float, later: list[float]) -> list[str]:
    spread = f"{min(later):.2f} to {max(later):.2f}"
    return [f"{first:.2f}", f"{median(later):.2f}", spread]


if __name__ == "__main__":
    main()
