"""Worker processes: the same state as by one process, bounded, and none outlives its host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from state_lib.errors import StateCorrupt, Unavailable
from state_lib.kafka import Kafka
from state_lib.restore.options import RestoreOptions
from state_lib.restore.pool import WorkerPool
from state_lib.restore.runs import Batch, Run, RunJob
from state_lib.stores.rocksdb.options import RocksDBOptions
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, NOON, TS, WIN, App, batch, digests, kv
from tests.support.counting import Counting
from tests.support.filled import filled
from tests.support.fold import committed
from tests.support.waiting import until

REPOSITORY = Path(__file__).parents[3]
EAGER = RestoreOptions(worker_records=20, run_bytes=3_000, batch_size=7)
STORES = [KV, TS, WIN, replace(KV, name="empty")]


def aborted(app: App) -> None:
    """Records of a transaction that never was, in the middle of the log."""
    producer = app.kafka.producer(**{"transactional.id": f"{app.name}-0"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in range(30):
        for store in ("kv", "ts"):
            producer.produce(app.topic(store), b"ghost", b"k%d" % i, 0)
    producer.flush(30)
    producer.abort_transaction(30)


def children() -> list[psutil.Process]:
    found = psutil.Process().children()
    return [p for p in found if "state_lib.restore.worker" in " ".join(p.cmdline())]


def test_ranges_side_by_side_give_the_same_state(make_app: MakeApp) -> None:
    app = make_app(STORES)
    task = filled(app, 10)
    app.close()
    aborted(app)
    task = app.opened()
    for i in range(6):
        pairs = [(f"k{i}", None), (f"k{i + 6}", f"late {i}"), ("same", f"{i}")]
        task.commit(batch(task.marker, {"kv": kv(*pairs), "ts": kv(*pairs)}, clock=NOON))
    before = digests(task)
    servers = str(app.kafka.properties["bootstrap.servers"])
    written = {s.name: len(committed(servers, app.topic(s.name))) for s in STORES}
    assert before["kv"].entries > 10
    seen, pool = Counting(), WorkerPool(app.kafka, 3)
    app.close()
    shutil.rmtree(task.path)
    task = app.opened(listener=seen, restore=EAGER, pool=pool)
    assert digests(task) == before
    assert seen.records == {name: n for name, n in written.items() if n}
    assert set(seen.ended) == set(written)
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    assert not children(), "idle workers end with the restore"
    assert task.commit(batch(task.marker)).batch_number == 17


class Watched(WorkerPool):
    """Knows what it was asked for."""

    def __init__(self, kafka: Kafka, size: int) -> None:
        super().__init__(kafka, size)
        self.jobs: list[RunJob] = []

    def run(self, job: RunJob) -> Generator[Batch | Run, None, None]:
        """As any pool."""
        self.jobs.append(job)
        return super().run(job)


def test_a_short_log_starts_no_worker(make_app: MakeApp) -> None:
    """To start one takes longer than to read it; `RestoreOptions.worker_records` is the bound."""
    app = make_app([KV])
    task = filled(app, 10)
    before = digests(task)
    written = len(committed(app.servers, app.topic("kv")))
    for options, jobs in (
        (RestoreOptions(), 0),
        (RestoreOptions(worker_records=2 * written), 0),
        (RestoreOptions(worker_records=written * 2 // 3), 1),
        (RestoreOptions(worker_records=10), 3),
    ):
        app.close()
        shutil.rmtree(task.path)
        seen, pool = Counting(), Watched(app.kafka, 3)
        task = app.opened(listener=seen, restore=options, pool=pool)
        assert digests(task) == before
        assert seen.records["kv"] == written > 100
        assert len(pool.jobs) == jobs, options


def test_a_worker_that_dies_is_no_end_of_data(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app = make_app([KV])
    task = filled(app, 10)
    before = digests(task)
    app.close()
    shutil.rmtree(task.path)
    (tmp_path / "once").mkdir()
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", "restore.after_run=kill")
    monkeypatch.setenv("HOLDFAST_FAILPOINTS_DIR", str(tmp_path / "once"))
    seen = Counting()
    task = app.task(listener=seen, restore=EAGER, pool=WorkerPool(app.kafka, 2))
    with pytest.raises(Unavailable, match="worker ended with -9"):
        task.open()
    assert seen.errors
    assert not task.path.exists()
    assert not children()
    task.open()
    assert digests(task) == before


def test_no_worker_outlives_its_host(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app, 10)
    before = digests(task)
    app.close()
    shutil.rmtree(task.path)
    host = subprocess.Popen(
        [
            sys.executable, "-m", "tests.support.restorer",
            str(app.kafka.properties["bootstrap.servers"]), str(app.root / "host-1"),
            json.dumps(app.topology.to_json()), "", "", "2",
        ],
        cwd=REPOSITORY,
        env=os.environ
        | {"HOLDFAST_FAILPOINTS": "restore.after_run=sleep:300", "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        seen = psutil.Process(host.pid)
        until(lambda: len(seen.children()) == 2, 60)
        workers = seen.children()
        until(lambda: bool(list(task.path.parent.glob("0.restoring/runs/*.sst"))), 60)
    finally:
        host.kill()
        host.wait(60)
    until(lambda: not any(w.is_running() and w.status() != "zombie" for w in workers), 60)
    task = app.opened(restore=EAGER, pool=WorkerPool(app.kafka, 2))
    assert digests(task) == before
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]


def job(app: App, folder: Path, start: int, end: int) -> RunJob:
    return RunJob(
        app.topic("kv"), 0, start, end, KV, NOON, folder, "x", 1 << 20, 100, RocksDBOptions()
    )


def test_a_worker_is_used_again_also_after_an_error(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app([KV])
    task = filled(app, 10)
    end = task.marker.cut[app.topic("kv")][0]
    pool = WorkerPool(app.kafka, 1)
    with pool.in_use():
        first = list(pool.run(job(app, tmp_path, 0, end)))
        (worker,) = children()
        with pytest.raises(StateCorrupt, match="not in the log"):
            list(pool.run(job(app, tmp_path, end + 1000, end + 1001)))
        assert list(pool.run(job(app, tmp_path, 5, 5))) == [Batch(0, 5)]
        parts = [list(pool.run(job(app, tmp_path, i, min(i + 7, end)))) for i in range(0, end, 7)]
    read = sum(e.records for e in first if isinstance(e, Batch))
    assert sum(e.records for part in parts for e in part if isinstance(e, Batch)) == read > 100
    assert len([e for e in first if isinstance(e, Run)]) == 1
    until(lambda: not worker.is_running(), 60)
    assert not children()


def test_a_worker_imports_nothing_heavy() -> None:
    heavy = ("numpy", "pyarrow", "pyspark", "pandas", "fastapi", "fsspec", "rich", "pydantic")
    code = (
        "import sys, state_lib.restore.worker\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
