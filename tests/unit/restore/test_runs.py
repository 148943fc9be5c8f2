"""Sorted runs: what they hold is the fold of the log, whatever their bound of memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.keys import window_key
from state_lib.restore.runs import Batch, Run, RunJob, newest, write_runs
from state_lib.specs import StoreSpec
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions
from tests.support.apps import HOUR, KV, NOON, TS, WIN
from tests.support.stored import with_timestamp

Log = list[tuple[bytes, bytes | None]]
REPOSITORY = Path(__file__).parents[3]
MANY = 1 << 30
LOGS = st.lists(
    st.tuples(st.integers(0, 12).map(lambda n: b"k%d" % n), st.none() | st.binary(max_size=60)),
    max_size=80,
)


def batches(log: Log, size: int) -> Iterator[list[Message]]:
    records = [
        Message(topic="t", partition=0, offset=at, key=key, value=value, timestamp=(1, NOON + at))
        for at, (key, value) in enumerate(log)
    ]
    return (records[at : at + size] for at in range(0, len(records), size))


def written(spec: StoreSpec, log: Log, folder: Path, run_bytes: int, size: int = 7) -> list[Run]:
    options = RocksDBOptions()
    job = RunJob("t", 0, 0, len(log), spec, NOON, folder, "x", run_bytes, size, options)
    events = list(write_runs(job, batches(log, size)))
    assert sum(e.records for e in events if isinstance(e, Batch)) == len(log)
    return [e for e in events if isinstance(e, Run)]


def held(runs: list[Run], folder: Path) -> dict[str, dict[bytes, bytes]]:
    """What a store holds that ingested them in order, by family."""
    engine = RocksDBEngine(folder / "db")
    try:
        for run in runs:
            for family, path in run.files.items():
                engine.ingest(family, [Path(path)])
        found = {}
        for family in engine.families():
            with engine.scan(family, None, None) as entries:
                found[family] = dict(entries)
        return found
    finally:
        engine.close()


@settings(max_examples=25, deadline=None)
@given(LOGS, st.sampled_from([1, 1500, 4000, MANY]), st.sampled_from([1, 7, 100]))
def test_runs_hold_the_fold_of_the_log(log: Log, run_bytes: int, size: int) -> None:
    for spec in (KV, TS):
        last = {key: (at, value) for at, (key, value) in enumerate(log)}
        expected = {
            key: with_timestamp(value, NOON + at) if spec is TS else value
            for key, (at, value) in last.items()
            if value is not None
        }
        with TemporaryDirectory() as folder:
            runs = written(spec, log, Path(folder) / "runs", run_bytes, size)
            assert held(runs, Path(folder)).get(spec.name, {}) == expected


def test_keys_that_are_written_again_and_again_are_one_run(tmp_path: Path) -> None:
    log: Log = [(b"k%d" % (at % 5), b"%d" % at) for at in range(1000)]
    runs = written(KV, log, tmp_path / "runs", 20_000)
    assert len(runs) == 1
    assert held(runs, tmp_path)["kv"] == {b"k%d" % (at % 5): b"%d" % at for at in range(995, 1000)}
    other: Log = [(b"k%04d" % at, b"v") for at in range(1000)]
    assert len(written(KV, other, tmp_path / "more", 20_000)) > 5, "the bound holds"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("value_bytes", [8, 2_000])
def test_a_worker_takes_no_more_memory_than_is_said(tmp_path: Path, value_bytes: int) -> None:
    """`num_restore_workers` says 200 MB: all of the process, with a log of three runs.

    But for what its consumer holds unread, which is 32 MiB at most (`Kafka.reader`).
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.run_memory", str(tmp_path), str(value_bytes)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    runs, peak = map(int, done.stdout.split())
    assert runs >= 3
    assert peak + (32 << 20) < 200e6


def test_a_delete_covers_what_an_earlier_run_holds(tmp_path: Path) -> None:
    log: Log = [(b"a", b"1"), (b"b", b"1"), (b"a", None), (b"c", b"1")]
    runs = written(KV, log, tmp_path / "runs", 1, size=1)
    assert len(runs) == 4
    assert held(runs, tmp_path)["kv"] == {b"b": b"1", b"c": b"1"}


def test_expired_windows_are_left_out(tmp_path: Path) -> None:
    starts = [NOON - 5 * HOUR, NOON - 3 * HOUR, NOON]
    log: Log = [(window_key(b"k", start), b"%d" % start) for start in starts]
    found = held(written(WIN, log, tmp_path / "runs", MANY), tmp_path)
    assert {key: value for family in found.values() for key, value in family.items()} == {
        window_key(b"k", start): with_timestamp(b"%d" % start, NOON + at)
        for at, start in enumerate(starts)
        if start > NOON - 4 * HOUR
    }


def test_newest_sorts_and_keeps_the_last_of_each_key() -> None:
    assert newest([], []) == ([], [])
    keys, values = [b"b", b"a", b"b", b"", b"a"], [b"1", b"2", None, b"4", b"5"]
    assert newest(keys, values) == ([b"", b"a", b"b"], [b"4", b"5", None])
