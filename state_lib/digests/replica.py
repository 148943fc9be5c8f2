"""A task's stores once more, built aside from what should give the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from state_lib.changelog.log import KafkaLog
from state_lib.changelog.topics import changelog_topic
from state_lib.digests.live import Progress
from state_lib.digests.room import require_room
from state_lib.errors import TopicRecreated
from state_lib.kafka import Kafka, ends, require, starts
from state_lib.restore.replay import Replay
from state_lib.scratch import scratch
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.digest import StoreDigest, store_digest
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import TaskStores

# Little memory: it has time, and live hosts may run on the same machine.
OPTIONS = RocksDBOptions(block_cache_bytes=32 << 20, write_budget_bytes=64 << 20)


class Replica:
    """Open stores in a directory of their own, and how far they have read each changelog.

    Args:
        kafka: connection.
        topology: with the stores wanted; see `aside`.
        partition: of the task.
        path: an empty directory, or one that holds the task's state up to ``offsets``.
        offsets: changelog topic → next offset; what is absent is read from the log's start.
        report: told of records that were replayed.

    Attributes:
        records: that were replayed so far.
    """

    def __init__(
        self,
        kafka: Kafka,
        topology: Topology,
        partition: int,
        path: Path,
        offsets: Mapping[str, int],
        report: Progress,
    ) -> None:
        self._kafka, self._topology, self._partition = kafka, topology, partition
        self._path, self._report = path, report
        self.records = 0
        self._offsets = dict(offsets)
        self._stores = TaskStores(topology, path, OPTIONS)

    def close(self) -> None:
        """Close the stores."""
        self._stores.close()

    def follow(self, to: Mapping[str, Sequence[Any]] | None = None, clock: int = -1) -> None:
        """Read the changelogs on.

        Args:
            to: changelog topic → ``[topic id, next offset]`` to stop at; None: as far as they go.
            clock: what is expired by it (ms) need not be kept.

        Raises:
            TopicRecreated: a changelog is not the one that ``to`` is about.
            Unavailable: Kafka is away, or the disk is too full.
        """
        admin = self._kafka.admin()
        topics = [changelog_topic(self._topology.app, s.name) for s in self._topology.stores]
        facts = require(admin, topics)
        partitions = [(t, self._partition) for t in topics]
        first, end = starts(admin, partitions), ends(admin, partitions)
        replay = Replay(
            KafkaLog(self._kafka), self._topology.app, self._partition, self._stores, self, clock
        )
        for spec, topic in zip(self._topology.stores, topics, strict=True):
            until = end[topic, self._partition]
            if to is not None:
                topic_id, until = to[topic]
                _require_same(topic, topic_id, facts[topic].id)
            self._read(replay, spec, topic, first[topic, self._partition], int(until))

    def digests(self, clock: int) -> dict[str, StoreDigest]:
        """Of every store, as live at ``clock`` (ms)."""
        return {name: store_digest(s, clock) for name, s in self._stores.stores.items()}

    def _read(self, replay: Replay, spec: StoreSpec, topic: str, first: int, until: int) -> None:
        known = self._offsets.get(topic)
        if known is None:
            self._stores.clear(spec.name)  # entries of a snapshot with another layout
            replay.full(spec, first, until)
        elif known < until:
            replay.tail(spec, known, until)
        self._offsets[topic] = max(until, known or 0)

    # ------------------------------------------------------------------ a RestoreListener

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """Look at the disk before anything is written."""
        del task, store, start, end
        require_room(self._path)

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """Tell how it goes; look at the disk."""
        del offset
        require_room(self._path)
        self.records += records
        self._report(task, f"replay of {store}", records)

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """Nothing."""

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """Nothing."""

    def on_restore_error(self, task: str, why: str) -> None:
        """Nothing."""


@contextmanager
def aside(  # noqa: PLR0913, PLR0917 - a replica is described by exactly these
    kafka: Kafka,
    topology: Topology,
    partition: int,
    stores: Sequence[str],
    fill: Callable[[Topology, int, Path], Mapping[str, int]],
    folder: Path | None,
    report: Progress,
) -> Iterator[Replica]:
    """A replica of some stores of a task, in a temporary directory that vanishes; see `scratch`.

    Memory stores lie on the disk here: a digest is the same whatever the backend.

    Args:
        kafka: connection.
        topology: of the application.
        partition: of the task.
        stores: names.
        fill: puts what it begins with into a directory, and says up to which offsets that goes.
        folder: where to make the directory; None: where the system has such.
        report: told of records that were replayed.
    """
    wanted = replace(topology, stores=tuple(s for s in topology.stores if s.name in stores))
    on_disk = tuple(replace(s, backend="rocksdb") for s in wanted.stores)
    chosen = replace(topology, stores=on_disk)
    with scratch("holdfast-aside-", folder) as made:
        path = made / "state"
        offsets = fill(wanted, partition, path)
        replica = Replica(kafka, chosen, partition, path, offsets, report)
        try:
            yield replica
        finally:
            replica.close()


def _require_same(topic: str, expected: str, actual: str) -> None:
    if expected != actual:
        raise TopicRecreated(
            f"changelog {topic!r} was deleted and created again while its store lives (its id was "
            f"{expected}, is {actual}): the store is not protected any more",
            topic=topic,
            expected_id=expected,
            actual_id=actual,
        )
