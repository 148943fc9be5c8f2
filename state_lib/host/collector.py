"""Metrics that are read from tasks and stores at the moment of the question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from state_lib.errors import HoldfastError
from state_lib.host.tasks import TaskManager
from state_lib.protocol.marker import Marker
from state_lib.stores.rocksdb import RocksDBEngine
from state_lib.stores.segments import META_FAMILY
from state_lib.stores.task_stores import TaskStores
from state_lib.task import StateTask

_MS = 1000
# Kafka Streams' names of RocksDB's properties (KIP-607), summed over the families of a store.
PROPERTIES = {
    "size_all_mem_tables_bytes": "rocksdb.size-all-mem-tables",
    "total_sst_files_size_bytes": "rocksdb.total-sst-files-size",
    "compaction_pending": "rocksdb.compaction-pending",
}
RUNNING_COMPACTIONS = "rocksdb.num-running-compactions"  # of a whole database: of a task
# Properties of the block cache that all engines of the process share.
CACHE_PROPERTIES = {
    "block_cache_usage_bytes": "rocksdb.block-cache-usage",
    "block_cache_capacity_bytes": "rocksdb.block-cache-capacity",
    "block_cache_pinned_usage_bytes": "rocksdb.block-cache-pinned-usage",
}
_TASK, _STORE = ("app", "task"), ("app", "task", "store")


class TaskCollector(Collector):
    """Reads a manager's tasks; a task that closes meanwhile is shown as not open."""

    def __init__(self, tasks: TaskManager, prefix: str) -> None:
        self._tasks = tasks
        self._prefix = prefix
        self._process = psutil.Process()

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        tasks = list(self._tasks.tasks.values())
        found: list[tuple[StateTask, Marker, TaskStores]] = []
        opened = self._gauge("task_open", "1 if the task commits and answers.", _TASK)
        commits = self._counter("commit", "Commits since the task was made.", _TASK)
        for task in tasks:
            labels = (task.topology.app, task.name)
            commits.add_metric(labels, task.commits)
            try:
                with task.view() as (marker, stores):
                    found.append((task, marker, stores))
            except HoldfastError:
                opened.add_metric(labels, 0)
            else:
                opened.add_metric(labels, 1)
        yield opened
        yield commits
        yield from self._of_markers(found)
        yield from self._of_stores(found)
        yield self._of_compactions(found)
        yield from self._of_disk()
        yield from self._of_process()

    def _of_markers(self, found: list[tuple[StateTask, Marker, TaskStores]]) -> Iterator[Metric]:
        about = "Records that were not used, since the application's beginning (in the marker)."
        dropped = self._counter("dropped_records", about, (*_TASK, "reason"))
        epoch = self._gauge("marker_epoch", "Epoch of the last commit's driver.", _TASK)
        number = self._gauge(
            "marker_batch_number", "Number of the last commit in its epoch.", _TASK
        )
        stream_time = self._gauge("stream_time_seconds", "Stream time of the last commit.", _TASK)
        written = self._gauge("commit_timestamp_seconds", "Wall time of the last commit.", _TASK)
        where = (*_TASK, "topic", "partition")
        offsets = self._gauge("position", "Next source offset.", where)
        for task, marker, _ in found:
            labels = (task.topology.app, task.name)
            for reason, count in marker.dropped.items():
                dropped.add_metric((*labels, reason), count)
            epoch.add_metric(labels, marker.epoch)
            number.add_metric(labels, marker.batch_number)
            stream_time.add_metric(labels, marker.stream_time_ms / _MS)
            written.add_metric(labels, marker.written_at / _MS)
            for (topic, partition), offset in marker.positions.items():
                offsets.add_metric((*labels, topic, str(partition)), offset)
        yield from (dropped, epoch, number, stream_time, written, offsets)

    def _of_stores(self, found: list[tuple[StateTask, Marker, TaskStores]]) -> Iterator[Metric]:
        keys = self._gauge("estimate_num_keys", "Entries, estimated.", _STORE)
        sizes = {n: self._gauge(n, f"RocksDB's {p}.", _STORE) for n, p in PROPERTIES.items()}
        memory = self._gauge("memory_store_bytes", "Bytes of a memory store.", _STORE)
        cache = {n: self._gauge(n, f"{p}, shared.", ()) for n, p in CACHE_PROPERTIES.items()}
        seen: dict[str, int] = {}
        for task, _, stores in found:
            for name, store in list(stores.stores.items()):
                labels = (task.topology.app, task.name, name)
                engine = stores.engine(name)
                try:
                    families = store.families()
                    entries = sum(engine.approximate_num_entries(f) for f in families)
                    if isinstance(engine, RocksDBEngine):
                        values = {n: _sum(engine, families, p) for n, p in PROPERTIES.items()}
                        for shared, one in CACHE_PROPERTIES.items():
                            seen[shared] = max(seen.get(shared, 0), _sum(engine, families[:1], one))
                    else:
                        values = {}
                        memory.add_metric(labels, sum(engine.size_bytes(f) for f in families))
                except HoldfastError:  # closed meanwhile
                    continue
                keys.add_metric(labels, entries)
                for metric, value in values.items():
                    sizes[metric].add_metric(labels, value)
        for metric, value in seen.items():
            cache[metric].add_metric((), value)
        yield from (keys, memory, *sizes.values(), *cache.values())

    def _of_compactions(self, found: list[tuple[StateTask, Marker, TaskStores]]) -> Metric:
        about = f"RocksDB's {RUNNING_COMPACTIONS}."
        running = self._gauge("num_running_compactions", about, _TASK)
        for task, _, stores in found:
            with suppress(HoldfastError):  # closed meanwhile
                count = stores.rocks.property_int(META_FAMILY, RUNNING_COMPACTIONS)
                running.add_metric((task.topology.app, task.name), count)
        return running

    def _of_disk(self) -> Iterator[Metric]:
        disk = self._tasks.disk.to_json()
        size = self._gauge("disk_size_bytes", "Of the disk that directories are on.", ())
        free = self._gauge("disk_free_bytes", "That may still be used of it.", ())
        size.add_metric((), disk["total"])
        free.add_metric((), disk["free"])
        yield from (size, free)

    def _of_process(self) -> Iterator[Metric]:
        rss = GaugeMetricFamily("process_resident_memory_bytes", "Resident memory.")
        rss.add_metric((), self._process.memory_info().rss)
        start = GaugeMetricFamily("process_start_time_seconds", "Wall time of the start.")
        start.add_metric((), self._process.create_time())
        cpu = CounterMetricFamily("process_cpu_seconds", "User and system time.")
        times = self._process.cpu_times()
        cpu.add_metric((), times.user + times.system)
        yield from (rss, start, cpu)

    def _gauge(self, name: str, about: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{self._prefix}_{name}", about, labels=labels)

    def _counter(self, name: str, about: str, labels: tuple[str, ...]) -> CounterMetricFamily:
        return CounterMetricFamily(f"{self._prefix}_{name}", about, labels=labels)


def _sum(engine: RocksDBEngine, families: list[str], name: str) -> int:
    return sum(engine.property_int(family, name) for family in families)
