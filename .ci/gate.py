"""Run stages of tests, each in a process and a place of its own, and say last of all what failed.

    gate.py [--quick] [--full] [STAGE …]

Stages are those of stages.toml, which says which are for whom. All of them run, even if an early
one is red. The exit code is 1 if any was. What a stage says, test by test, is in a report of its
own, so that a hang names itself.

The quick ones, and full ones that wait most of their time, run two at a time, where they can
have namespaces of their own, and speak at their ends; then the other full ones do. The later
ones come last, and CI begins them only if it has the time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import isolate
import psutil
import reports
import slowness

FOREIGN = re.compile(r"(AIRFLOW|HOLDFAST|SPARK|PYSPARK|KAFKA|PYTEST)(_|$)")
MARKER = "{}full and not long and not quarantine"
NO_TESTS = 5
CI_S = 80 * 60.0
"""What all stages of CI may take together, however slow the machine is."""
LANES, FULL_LANES = 2, 2
"""Stages at a time: Kafka's wait most of their time; kills and Airflow's processes take a core."""
OURS = "hf-"
TALKING = threading.Lock()
RERUNS = 2
"""Of tests that were not caught up in time, in one run of the gate."""


@dataclass(frozen=True)
class Stage:
    """One entry of stages.toml."""

    name: str
    tests: list[str]
    limit_s: float
    full: bool = False
    later: bool = False
    network: bool = False
    asked: bool = False
    beside: bool = False

    @property
    def shares(self) -> bool:
        """Whether another one may run at the same time."""
        return self.beside or not self.full


@dataclass
class Result:
    """What became of a stage."""

    stage: Stage
    code: int
    seconds: float
    left: list[str]
    report: reports.Report
    cpu_s: float
    flaky: list[str] = field(default_factory=list)

    @property
    def red(self) -> bool:
        """Whether it failed, or left processes running."""
        return self.code not in {0, NO_TESTS} or bool(self.left)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the stages of `make test`")
    parser.add_argument("--full", action="store_true", help="the stages of `make test-full`")
    parser.add_argument("stage", nargs="*", help="one of stages.toml")
    args = parser.parse_args()
    listed = tomllib.loads(Path(__file__).with_name("stages.toml").read_text())
    stages = [Stage(name, **entry) for name, entry in listed.items()]
    if unknown := set(args.stage) - set(listed):
        parser.error(f"no stage {sorted(unknown)}; there are {', '.join(listed)}")
    wanted = [
        s
        for s in stages
        if s.name in args.stage
        or (not s.asked and (args.full if s.full or s.later else args.quick))
    ]
    slow = slowness.measure()
    print(f"gate: {', '.join(s.name for s in wanted)}; slowness {slow:.1f}", flush=True)
    results: list[Result] = []
    end = time.monotonic() + (CI_S if args.quick and args.full else float("inf"))
    apart = bool(isolate.namespaces(network=False))
    shared, others = [s for s in wanted if s.shares], [s for s in wanted if not s.shares]
    early, late = [s for s in shared if not s.later], [s for s in shared if s.later]
    for stages, most in ((early, LANES), (others, FULL_LANES), (late, LANES)):
        lanes = min(most, len(stages)) if apart else 1
        given_slow = min(slowness.MOST, slow * lanes)

        def one(stage: Stage, lanes: int = lanes, given_slow: float = given_slow) -> None:
            left_s = end - time.monotonic()
            if stage.later and left_s < stage.limit_s * slow:
                return
            limit_s = max(1.0, min(stage.limit_s * given_slow, left_s))
            reruns = RERUNS - sum(len(r.flaky) for r in results)
            results.append(
                run(replace(stage, limit_s=limit_s), given_slow, reruns, beside=lanes > 1)
            )

        with ThreadPoolExecutor(max(1, lanes)) as pool:
            try:
                list(pool.map(one, stages))
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise
    say(sorted(results, key=lambda r: [s.name for s in wanted].index(r.stage.name)))
    if left_out := {s.name for s in wanted} - {r.stage.name for r in results}:
        print(f"NOT RUN, CI has no time for it on this machine: {', '.join(sorted(left_out))}")
    return int(any(r.red for r in results))


def run(stage: Stage, slow: float, reruns: int, *, beside: bool) -> Result:
    """One stage, and once more each of its tests that was only too slow.

    Args:
        stage: which.
        slow: how much slower than an idle machine this one is, for it.
        reruns: how many tests may be run again.
        beside: whether another one runs: it speaks at its end then.
    """
    print(f"\n=== {stage.name}: {_machine()}", flush=True)
    started = time.monotonic()
    with folder(stage.name) as place:
        output = place / "output" if beside else None
        marker = MARKER.format("" if stage.full else "not ")
        outcome, report = pytest(stage, place, slow, ["-m", marker, *stage.tests], output)
        result = Result(stage, outcome.code, 0, outcome.left, report, outcome.cpu_s)
        slow_ones = [f for f in report.failures if f.not_caught_up]
        too_slow = bool(slow_ones) and slow_ones == report.failures  # else pytest itself died
        if outcome.code == 1 and too_slow and len(slow_ones) <= reruns:
            for failure in slow_ones:
                print(f"\n=== {stage.name}: once more: {failure.nodeid}", flush=True)
                again, _ = pytest(stage, place, slow, ["-m", "", failure.nodeid], output)
                if again.code == 0:
                    result.flaky.append(failure.nodeid)
            result.code = 0 if len(result.flaky) == len(slow_ones) else 1
        with TALKING:
            if output is not None:
                sys.stdout.write(output.read_text(errors="replace"))
    result.seconds = time.monotonic() - started
    took = f"{_verdict(result)} in {result.seconds:.0f} s"
    print(f"=== {stage.name}: {took}; {_machine()}", flush=True)
    return result


def pytest(
    stage: Stage, place: Path, slow: float, arguments: list[str], output: Path | None
) -> tuple[isolate.Outcome, reports.Report]:
    """Pytest in a place of its own."""
    log = place / "report.jsonl"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--report-log={log}", *arguments]
    if os.environ.get("CI"):
        command[3] = "-v"  # the name before the test: a hang names itself
    outcome = isolate.run(
        command,
        environment(place, slow),
        place,
        network=stage.network,
        limit_s=stage.limit_s,
        output=output,
    )
    return outcome, reports.read(log)


def environment(place: Path, slow: float) -> dict[str, str]:
    """Nothing of ours, Airflow's or Spark's from outside; a temporary folder on disk."""
    kept = {k: v for k, v in os.environ.items() if not FOREIGN.match(k)}
    local = "127.0.0.1,localhost"
    return kept | {
        "TMPDIR": str(place / "t"),
        "AIRFLOW_HOME": str(place / "t" / "airflow"),
        "LANG": "C.UTF-8",
        "NO_PROXY": local,
        "no_proxy": local,
        slowness.VARIABLE: f"{slow:.2f}",
    }


@contextmanager
def folder(stage: str) -> Iterator[Path]:
    """A short one (sockets live in it), removed at the end; says what else is new beside it."""
    beside = [Path(tempfile.gettempdir()), Path("/dev/shm")]  # noqa: S108 - looked at, not written
    before = {p for place in beside if place.is_dir() for p in place.iterdir()}
    place = Path(tempfile.mkdtemp(prefix=OURS))
    (place / "t").mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        new = {p for folder in beside if folder.is_dir() for p in folder.iterdir()} - before
        for path in sorted(p for p in new if not p.name.startswith(OURS)):
            print(f"=== {stage}: left behind: {path}", flush=True)


def say(results: list[Result]) -> None:
    """Why it is red, last of all."""
    for result in results:
        for failure in result.report.failures if result.red else ():
            print(f"\n{'-' * 100}\n{failure.nodeid} ({failure.when})\n{failure.message}")
            print(failure.logs)
    print(f"\n{'=' * 100}")
    for result in results:
        _say_one(result)
    passed = sum(r.report.passed for r in results)
    print(f"\n{passed} passed, {sum(len(r.report.failures) for r in results if r.red)} failed")


def _say_one(result: Result) -> None:
    took = f"{result.seconds:5.0f} s, {result.cpu_s:5.0f} s of the cores"
    print(f"{result.stage.name:13} {_verdict(result):22} {took}")
    for line in result.report.slowest():
        print(f"    {line}")
    for line in result.left:
        print(f"    LEFT RUNNING {line}")
    for nodeid in result.flaky:
        print(f"    FLAKY {nodeid}: not caught up in time, passed in a process of its own")
    for line in result.report.skipped:
        print(f"    SKIPPED {line}")
    for message in result.report.flaky:
        print(f"    FLAKY {message}")
    if result.red and result.report.running:
        print(f"    RUNNING at its end: {result.report.running}")
    for failure in result.report.failures if result.red else ():
        print(f"    FAILED {failure.nodeid}: {failure.message.splitlines()[0][:200]}")
        for line in failure.errors:
            print(f"        {line[:250]}")


def _verdict(result: Result) -> str:
    if result.code == isolate.TOO_LONG:
        return "RED: over its limit"
    if result.left and result.code == 0:
        return "RED: left running"
    return f"RED (exit {result.code})" if result.red else f"green, {result.report.passed} passed"


def _machine() -> str:
    free = psutil.virtual_memory().available >> 20
    return f"{time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f}, {free} MiB free"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
