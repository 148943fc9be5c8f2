"""``python -m benchmarks``: Holdfast beside Kafka Streams and Spark, on this machine, now.

Starts a broker of its own in a temporary folder and ends all that it started. Every benchmark's
contenders run in turn, round by round; results that differ are an error. A contender or a benchmark
that fails does not end the others; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.machine import facts
from benchmarks.runner import run
from benchmarks.suite import SUITE
from benchmarks.summary import summarize
from benchmarks.world import World
from state_lib.logs import configure_logging


def main(arguments: list[str] | None = None) -> None:
    """Run, print, and write README.md if asked to."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what was started, as Ctrl-C does
    configure_logging("WARNING")
    width = None if sys.stdout.isatty() else 160
    console, progress = Console(width=width), Console(stderr=True, soft_wrap=True)
    chosen = [b for b in SUITE if not options.only or b.name in options.only]
    machine, failed = facts(), list[str]()
    console.print("; ".join(f"{name} {value}" for name, value in machine.items()))
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.folder) as folder,
        World(Path(folder), options.scale, progress.print) as world,
    ):
        for benchmark in chosen:
            try:
                rounds = run(benchmark, world, options.rounds, options.contender, options.limit_s)
            except Exception as error:  # noqa: BLE001 - whatever ends one does not end the others
                why = f"{benchmark.name} failed: {type(error).__name__}: {error}"
                console.print(why, markup=False, style="red")
                failed.append(benchmark.name)
                world.seeds.clear()  # what they hold may not be what they should
                continue
            asked = [c for c in benchmark.contenders() if c in (options.contender or [c])]
            failed += [f"{benchmark.name} ({c})" for c in asked if c not in rounds[0]]
            rows = summarize(rounds, more_is_better=benchmark.more_is_better)
            report.show(console, benchmark, rows)
            if options.write:
                text = report.markdown(benchmark, rows, options.scale, machine)
                report.write(options.readme, benchmark.name, text)
    if failed:
        sys.exit(f"no result of {', '.join(failed)}: see above")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{b.name:18}{b.title}" for b in SUITE),
    )
    parser.add_argument("--rounds", type=int, default=3, help="times that each contender runs")
    names = [b.name for b in SUITE]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help="this one; may be repeated"
    )
    contenders = list(dict.fromkeys(c for b in SUITE for c in b.contenders()))
    parser.add_argument(
        "--contender",
        action="append",
        choices=contenders,
        metavar="NAME",
        default=[],
        help=f"of {', '.join(repr(c) for c in contenders)}; may be repeated",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on numbers of records")
    parser.add_argument(
        "--limit-s",
        type=float,
        default=1200,
        help="a preparation or a run of a contender that takes longer is ended, in s; 0: no limit",
    )
    parser.add_argument("--write", action="store_true", help="put results into README.md")
    parser.add_argument("--readme", type=Path, default=report.README, help="which README.md")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    return parser


if __name__ == "__main__":
    main()
