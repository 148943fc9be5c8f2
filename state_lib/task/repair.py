"""Rewrites lost topics of a task from the copy on its host: `holdfast repair changelog`.

First a marker with the logs `IN_DOUBT`: chunks make the logs longer, which would hide their loss.
Then chunks, each a transaction without a marker; then the log is read back and compared with the
copy; last the marker with the topics' ids, which makes them count. Interrupted before it, the
topics still count as lost, and the next repair writes the same again. Interrupted after it, the
changelogs are complete, and opening the task goes on from them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import structlog

from state_lib.changelog.log import LogRange, Writer
from state_lib.changelog.topics import changelog_topic
from state_lib.changelog.writer import OutcomeUnknown, Records
from state_lib.errors import LogLost, NotRepairable, Unavailable
from state_lib.failpoints import failpoint
from state_lib.keys import split_timestamp
from state_lib.protocol.marker import IN_DOUBT, Marker
from state_lib.restore.facts import LocalFacts, free_bytes, log_ranges
from state_lib.restore.listener import RestoreListener
from state_lib.restore.local import Local, look
from state_lib.restore.replay import Replay
from state_lib.restore.source import lost_commits
from state_lib.specs import StoreSpec
from state_lib.stores.digest import StoreDigest, store_digest
from state_lib.stores.task_stores import Checkpoint, TaskStores
from state_lib.task.copies import best_copy, brought
from state_lib.task.loss import Found, Loss, find, lost_stores
from state_lib.task.opening import Opening, write_marker
from state_lib.task.retention import lift_retention

log = structlog.get_logger(__name__)
CHUNK_RECORDS, CHUNK_BYTES = 50_000, 8 << 20
"""Bounds of one transaction, and so of memory."""
MIN_FREE_BYTES = 64 << 20
_SPACE = 3  # the log that is read back is on disk as runs, and once more while all are merged
Chunk = tuple[list[bytes], list[bytes | None], list[int] | None]


@dataclass(frozen=True)
class Repair:
    """The repair of one closed task.

    Attributes:
        opening: of the task; its listener gets the progress of writing and reading back.
        stores: names of those whose changelogs to repair; None: all that are lost.
    """

    opening: Opening
    stores: tuple[str, ...] | None = None

    def look(self, local: LocalFacts, found: Found | None = None) -> Loss:
        """What is lost, and whether it can be repaired. Changes nothing."""
        return best_copy(self.opening, local, found)

    def run(self) -> Marker:
        """Fence other writers, write what is lost, read it back, write the marker.

        Returns:
            The marker. The newest one if nothing is lost.

        Raises:
            NotRepairable: says why.
            Unavailable: Kafka or the disk is away; run it again.
            LogLost: the log as read back differs from the copy; it does not count.
        """
        o = self.opening
        local = look(o.topology, o.path, o.context.options)
        writer = None
        try:
            loss = self.look(local.facts)
            self.require(loss)  # before anybody is fenced
            if not loss.topics:
                return o.newest_marker()
            local = brought(o, loss, local)
            writer = o.writer()
            writer.open()
            return self._write(writer, local)
        except OutcomeUnknown as error:
            raise Unavailable(error.message, task=o.name) from error
        finally:
            if writer is not None:
                writer.close()
            local.close()

    def require(self, loss: Loss) -> None:
        """Raise NotRepairable, with what can be done, unless all that is lost can be repaired."""
        why = loss.why_not
        if why is None and loss.missing:
            why = f"{loss.missing[0]} does not exist: create it first"
        if why is not None:
            app, partition = self.opening.topology.app, self.opening.partition
            raise NotRepairable(
                f"task {loss.task} cannot be repaired: {why}; and no snapshot is of that very "
                f"commit ('holdfast snapshot list {app} --task {partition}'). If another host has "
                "a newer copy, put it back into HOLDFAST_HOSTS; or begin anew: 'holdfast app reset "
                f"{app}'",
                task=loss.task,
                why=why,
            )

    def _write(self, writer: Writer, local: Local) -> Marker:
        o = self.opening
        found = find(o.context.kafka, o.topology, o.partition)
        loss = self.look(local.facts, found)
        self.require(loss)
        stores, checkpoint = local.stores, local.facts.checkpoint
        if not loss.topics or stores is None or checkpoint is None:
            return found.marker
        wanted = lost_stores(o.topology, loss.topics)
        wanted = [s for s in wanted if self.stores is None or s.name in self.stores]
        self._check_disk(local.facts.size_bytes)
        base = checkpoint.marker if lost_commits(found.marker, checkpoint) else found.marker
        if wanted:  # from now on the logs grow
            doubting = base.doubting(o.context.host_id, map(self._topic, wanted))
            write_marker(writer, o.topology, o.partition, doubting)
        ends = {
            (topic := self._topic(spec)): self._rewrite(
                writer, stores, spec, found.logs[topic], checkpoint.marker
            )
            for spec in wanted
        }
        marker = self._marker(found, base, loss, ends)
        failpoint("repair.before_marker")
        write_marker(writer, o.topology, o.partition, marker)
        failpoint("repair.after_marker")
        self._remember(stores, checkpoint, marker, wanted)
        log.info(
            "repaired",
            task=o.name,
            topics=list(loss.topics),
            epoch=marker.epoch,
            batch_number=marker.batch_number,
        )
        return marker

    def _topic(self, spec: StoreSpec) -> str:
        return changelog_topic(self.opening.topology.app, spec.name)

    def _check_disk(self, size: int) -> None:
        path = self.opening.path
        free, needed = free_bytes(path), _SPACE * size + MIN_FREE_BYTES
        if free < needed:
            raise Unavailable(
                f"the disk under {path.parent} has {free >> 20} MiB free, to read a repaired "
                f"changelog of {self.opening.name} back needs about {needed >> 20} MiB: free space",
                free_bytes=free,
                needed_bytes=needed,
            )

    # ------------------------------------------------------------------ one changelog

    def _rewrite(
        self,
        writer: Writer,
        stores: TaskStores,
        spec: StoreSpec,
        there: LogRange,
        at: Marker,
    ) -> int:
        """Write a changelog from the copy; returns the offset after its last record."""
        o, topic, done, end = self.opening, self._topic(spec), 0, there.end
        if spec.is_window:
            lift_retention(o.context.log, topic)
        o.listener.on_restore_start(o.name, spec.name, 0, _entries(stores, spec))
        for keys, values, times in self._chunks(stores, spec, there, at.stream_time_ms):
            o.check_cancelled()
            end = writer.write_part(Records(topic, keys, values, times))
            done += len(keys)
            o.listener.on_batch_restored(o.name, spec.name, len(keys), done)
            failpoint("repair.after_chunk")
        o.listener.on_restore_end(o.name, spec.name, done)
        expected = store_digest(stores.stores[spec.name], at.stream_time_ms)
        if (seen := self._read_back(spec, end, at.stream_time_ms)) != expected:
            raise LogLost(
                f"{topic} of task {o.name} was written anew, and reads back as {seen} where the "
                f"copy has {expected}: does anybody else write there? The copy is kept, nothing "
                "counts of what was written; run the repair again",
                task=o.name,
                topic=topic,
            )
        return end

    def _chunks(
        self, stores: TaskStores, spec: StoreSpec, there: LogRange, clock: int
    ) -> Iterator[Chunk]:
        """Deletions of keys that only the log has, then all live entries."""
        store, topic = stores.stores[spec.name], self._topic(spec)
        o = self.opening
        for messages in o.context.log.read(topic, o.partition, there.start, there.end):
            keys = sorted({m.key() or b"" for m in messages})
            stale = [
                k
                for k, held in zip(keys, store.get_many(keys), strict=True)
                if held is None and not (spec.is_window and not store.live(k, clock))
            ]
            if stale:
                yield stale, [None] * len(stale), None
        keys, values, times, size = _empty()
        with store.scan() as entries:
            for key, stored in entries:
                if spec.is_window and not store.live(key, clock):
                    continue
                value, time = split_timestamp(stored) if spec.is_timestamped else (stored, 0)
                keys.append(key)
                values.append(value)
                times.append(time)
                size += len(key) + len(value)
                if len(keys) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                    yield keys, values, times if spec.is_timestamped else None
                    keys, values, times, size = _empty()
        if keys:
            yield keys, values, times if spec.is_timestamped else None

    def _read_back(self, spec: StoreSpec, end: int, clock: int) -> StoreDigest:
        """The digest of the state that the changelog alone gives.

        Waits for ``end``: brokers show the last transaction a moment after its commit.
        """
        o = self.opening
        path = o.path.with_name(f"{o.path.name}.repairing")
        shutil.rmtree(path, ignore_errors=True)
        aside = replace(o.topology, stores=(spec,))
        there = log_ranges(o.context.log, aside, o.partition)[self._topic(spec)]
        stores = TaskStores(aside, path, o.context.options)
        try:
            replay = Replay(
                log=o.context.log,
                app=o.topology.app,
                partition=o.partition,
                stores=stores,
                listener=_ReadBack(o.listener),
                clock=clock,
                check=o.check_cancelled,
            )
            replay.full(spec, there.start, max(end, there.end))
            return store_digest(stores.stores[spec.name], clock)
        finally:
            stores.close()
            shutil.rmtree(path, ignore_errors=True)

    # ------------------------------------------------------------------ what counts

    def _marker(
        self, found: Found, base: Marker, loss: Loss, repaired: Mapping[str, int]
    ) -> Marker:
        """The marker of the copy; topics that stay lost keep their old ids."""
        good = {t: g for t, g in found.logs.items() if t in repaired or t not in loss.topics}
        unknown = {t: IN_DOUBT for t in found.logs if t in loss.topics}
        ids = {**unknown, **base.logs, **{t: g.topic_id for t, g in good.items()}}
        starts = {**base.starts, **{t: found.logs[t].start for t in repaired}}
        cut = {t: c for t, c in base.cut.items() if t not in repaired}
        owned = base.owned_by(self.opening.context.host_id, ids)
        ends = {**owned.ends, **repaired}
        return replace(owned, starts=starts, cut=cut, ends=ends, settled=True)

    def _remember(
        self, stores: TaskStores, checkpoint: Checkpoint, marker: Marker, wanted: list[StoreSpec]
    ) -> None:
        """Write the new marker to the directory, durably."""
        o = self.opening
        logs = log_ranges(o.context.log, replace(o.topology, stores=tuple(wanted)), o.partition)
        offsets = {**checkpoint.offsets, **{t: [g.topic_id, g.end] for t, g in logs.items()}}
        stores.write({}, Checkpoint(marker, offsets, checkpoint.layouts))
        stores.rocks.flush()


class _ReadBack:
    """Reports a replay to a listener under another name than the writing."""

    def __init__(self, listener: RestoreListener) -> None:
        self._listener = listener

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """See `RestoreListener`."""
        self._listener.on_restore_start(task, f"{store}, read back", start, end)

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """See `RestoreListener`."""
        self._listener.on_batch_restored(task, f"{store}, read back", records, offset)

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """See `RestoreListener`."""
        self._listener.on_restore_end(task, f"{store}, read back", records)

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """Nothing."""

    def on_restore_error(self, task: str, why: str) -> None:
        """Nothing."""


def _empty() -> tuple[list[bytes], list[bytes | None], list[int], int]:
    return [], [], [], 0


def _entries(stores: TaskStores, spec: StoreSpec) -> int:
    """An estimate."""
    engine = stores.engine(spec.name)
    return sum(engine.approximate_num_entries(f) for f in stores.stores[spec.name].families())
