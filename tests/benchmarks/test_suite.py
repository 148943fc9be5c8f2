"""Every benchmark runs, its contenders agree, and its result has what the report needs.

No figure is asserted: at this scale they mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import report
from benchmarks.layers.__main__ import cells, timings
from benchmarks.measure import HOLDFAST, PEER, Benchmark
from benchmarks.runner import run
from benchmarks.suite import SUITE
from benchmarks.summary import summarize
from benchmarks.world import World
from tests.support import jvm

pytestmark = pytest.mark.long


FEW = {"count-distinct": (HOLDFAST, PEER)}  # the others do the same as in count-zipf
SHORT_SESSION = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("bench"), 0.0005, print, SHORT_SESSION) as world:
        yield world


@pytest.mark.parametrize("benchmark", SUITE, ids=lambda b: b.name)
def test_a_benchmark_runs(
    world: World, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DRIVER_JAVA_OPTIONS", jvm.options(jvm.QUICK))
    rounds = run(benchmark, world, 1, FEW.get(benchmark.name, ()))
    rows = summarize(rounds, more_is_better=benchmark.more_is_better)
    assert rows[0].contender == HOLDFAST
    for row in rows:
        assert row.rounds == 1
        assert row.median > 0
        assert row.cpu_s > 0
        assert row.peak_mib > 0
    text = report.markdown(benchmark, rows, world.scale, {"date": "today"})
    assert all(f"| {row.contender} | {report.number(row.median)} |" in text for row in rows)


def test_layers() -> None:
    measured = list(timings(500))
    assert {t.layer for t in measured} == {"serde", "store", "exchange", "commit", "progress"}
    assert all(t.seconds > 0 for t in measured)
    assert [t.layer for t in measured if t.peak_bytes > 0] == ["progress"]
    assert all(len(cells(t)) == len(cells(measured[0])) for t in measured)
