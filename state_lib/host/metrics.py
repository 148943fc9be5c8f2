"""What a host counts, in Kafka Streams' words, for Prometheus.

`HostMetrics` is called for restores and commits; everything else is read when somebody asks
(`state_lib.host.collector`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from state_lib.host.collector import TaskCollector
from state_lib.host.tasks import TaskManager

PREFIX = "holdfast"
_STORE = ("app", "task", "store")
_COMMIT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class HostMetrics:
    """Counters of one host, in a registry of their own.

    It is a `state_lib.restore.listener.RestoreListener`: give it to the `TaskContext`. Calls may
    come from any thread. Tasks are named ``<app>/<partition>``.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._put = Counter(
            "put",
            "Entries that commits changed, deletes included.",
            _STORE,
            PREFIX,
            registry=self.registry,
        )
        self._latency = Histogram(
            "commit_latency_seconds",
            "Time of a commit: Kafka transaction and store write.",
            ("app", "task"),
            PREFIX,
            buckets=_COMMIT_BUCKETS_S,
            registry=self.registry,
        )
        self._restored = Counter(
            "restore",
            "Changelog records that restores applied.",
            _STORE,
            PREFIX,
            registry=self.registry,
        )
        self._remaining = Gauge(
            "restore_remaining_records_total",
            "Offsets still to be read by restores under way: at least the records.",
            _STORE,
            PREFIX,
            registry=self.registry,
        )
        self._rate = Gauge(
            "restore_rate",
            "Changelog records per second of the restore under way; 0 without one.",
            _STORE,
            PREFIX,
            registry=self.registry,
        )
        self._fetching = Gauge(
            "restore_remaining_snapshot_bytes",
            "Bytes of a snapshot that are still to be fetched by the restore under way.",
            ("app", "task"),
            PREFIX,
            registry=self.registry,
        )
        self._snapshot = Gauge(
            "snapshot_timestamp_seconds",
            "Wall time of the newest snapshot that this process has written of the task.",
            ("app", "task"),
            PREFIX,
            registry=self.registry,
        )
        self._began: dict[tuple[str, str], tuple[float, int]] = {}
        self._ends: dict[tuple[str, str], int] = {}
        self._newest: dict[str, int] = {}  # snapshots: task → wall time (ms)
        self._lock = threading.Lock()

    def watch(self, tasks: TaskManager) -> None:
        """Show these tasks too, as they are when metrics are asked for."""
        self.registry.register(TaskCollector(tasks, PREFIX))

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    # ------------------------------------------------------------------ what it is told

    def on_commit(self, task: str, puts: Mapping[str, int], seconds: float) -> None:
        """A commit was applied: changed entries per store, and how long it took."""
        app = _app(task)
        self._latency.labels(app, task).observe(seconds)
        for store, changed in puts.items():
            self._put.labels(app, task, store).inc(changed)

    def on_snapshot(self, task: str, written_at: int) -> None:
        """A snapshot is listed, or is found again; ``written_at`` is wall time (ms)."""
        with self._lock:
            newest = self._newest[task] = max(written_at, self._newest.get(task, written_at))
            self._snapshot.labels(_app(task), task).set(newest / 1000)

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """See `RestoreListener`."""
        with self._lock:
            self._ends[task, store] = end
            self._began[task, store] = time.monotonic(), 0
        self._remaining.labels(_app(task), task, store).set(max(0, end - start))

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """See `RestoreListener`."""
        with self._lock:
            end = self._ends.get((task, store), offset)
            began, before = self._began.get((task, store), (time.monotonic(), 0))
            self._began[task, store] = began, before + records
        seconds = max(time.monotonic() - began, 0.001)
        self._rate.labels(_app(task), task, store).set((before + records) / seconds)
        self._remaining.labels(_app(task), task, store).set(max(0, end - offset))
        self._restored.labels(_app(task), task, store).inc(records)

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """See `RestoreListener`."""
        del records  # counted batch by batch
        with self._lock:
            self._ends.pop((task, store), None)
            self._began.pop((task, store), None)
        self._remaining.labels(_app(task), task, store).set(0)
        self._rate.labels(_app(task), task, store).set(0)

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """See `RestoreListener`."""
        self._fetching.labels(_app(task), task).set(total - done)

    def on_restore_error(self, task: str, why: str) -> None:
        """See `RestoreListener`: what remains is to be read again; nothing moves meanwhile."""
        del why
        with self._lock:
            begun = [store for name, store in self._began if name == task]
            for store in begun:
                del self._began[task, store]
        for store in begun:
            self._rate.labels(_app(task), task, store).set(0)


def _app(task: str) -> str:
    return task.rpartition("/")[0]
