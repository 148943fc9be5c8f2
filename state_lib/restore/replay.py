"""Applies changelog records to a store: a short tail by writes, a whole log by sorted SSTs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Message

from state_lib.changelog.reader import read
from state_lib.changelog.topics import changelog_topic
from state_lib.kafka import Kafka
from state_lib.restore.listener import RestoreListener
from state_lib.specs import StoreSpec
from state_lib.stores.task_stores import TaskStores

RUN_BYTES = 64 << 20
"""Bytes of keys and values that one sorted run may hold in memory before it is spilled."""
_ENTRY_OVERHEAD = 150
"""Bytes of Python objects per entry of a run, counted against `RUN_BYTES`."""
_stamp = struct.Struct(">q").pack
Pairs = list[tuple[bytes, bytes | None]]


class Replay:
    """Replays one task's changelogs into its stores.

    Args:
        kafka: connection.
        app, partition: of the task.
        stores: opened stores to write to.
        listener: told of progress.
        clock: of the marker that the stores are brought to; what is expired then is left out, so
            that a memory store needs no more room than it had.
        run_bytes: memory bound of a full replay, per task.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a restore is described by exactly these
        self,
        kafka: Kafka,
        app: str,
        partition: int,
        stores: TaskStores,
        listener: RestoreListener,
        clock: int,
        run_bytes: int = RUN_BYTES,
    ) -> None:
        self._kafka = kafka
        self._app = app
        self._partition = partition
        self._stores = stores
        self._listener = listener
        self._clock = clock
        self._run_bytes = run_bytes

    def tail(self, spec: StoreSpec, start: int, end: int) -> int:
        """Apply ``[start, end)`` by ordinary writes; right for short ranges and memory stores."""
        total = 0
        for pairs in self._batches(spec, start, end):
            keys, values = [k for k, _ in pairs], [v for _, v in pairs]
            if keys:
                self._stores.write({spec.name: (keys, values)}, None)
            total += len(pairs)
        return total

    def full(self, spec: StoreSpec, start: int, end: int) -> int:
        """Rebuild an empty RocksDB store from its whole log, with bounded memory.

        Last value per key in a run, sorted, written as one SST per family; runs are ingested in
        order, tombstones included, so a later run overrides an earlier one.
        """
        if spec.backend == "memory":
            return self.tail(spec, start, end)
        run: dict[bytes, bytes | None] = {}
        held = total = runs = 0
        for pairs in self._batches(spec, start, end):
            run.update(pairs)
            total += len(pairs)
            held += sum(len(k) + len(v or b"") + _ENTRY_OVERHEAD for k, v in pairs)
            if held > self._run_bytes:
                self._ingest(spec, run, runs)
                run, held, runs = {}, 0, runs + 1
        if run:
            self._ingest(spec, run, runs)
        return total

    def _ingest(self, spec: StoreSpec, run: dict[bytes, bytes | None], number: int) -> None:
        keys = sorted(run)
        changes = self._stores.stores[spec.name].changes(keys, [run[k] for k in keys])
        for family, (family_keys, values) in changes.items():
            path = Path(self._stores.path) / f"run-{number}-{family}.sst"
            self._stores.rocks.write_run(path, family_keys, values)
            self._stores.rocks.ingest(family, [path])

    def _batches(self, spec: StoreSpec, start: int, end: int) -> Iterator[Pairs]:
        topic = changelog_topic(self._app, spec.name)
        task = f"{self._app}/{self._partition}"
        self._listener.on_restore_start(task, spec.name, start, end)
        total = 0
        for messages in read(self._kafka, topic, self._partition, start, end):
            yield self._live(_stored(messages, spec), spec)
            total += len(messages)
            offset = (messages[-1].offset() or 0) + 1
            self._listener.on_batch_restored(task, spec.name, len(messages), offset)
        self._listener.on_restore_end(task, spec.name, total)

    def _live(self, pairs: Pairs, spec: StoreSpec) -> Pairs:
        if not spec.is_window:
            return pairs
        live = self._stores.stores[spec.name].live
        return [pair for pair in pairs if live(pair[0], self._clock)]


def _stored(messages: list[Message], spec: StoreSpec) -> Pairs:
    """Changelog records as stored pairs: a timestamped store keeps the record's time in front."""
    if not spec.is_timestamped:
        return [(m.key() or b"", m.value()) for m in messages]
    return [
        (m.key() or b"", None if (v := m.value()) is None else _stamp(m.timestamp()[1]) + v)
        for m in messages
    ]
