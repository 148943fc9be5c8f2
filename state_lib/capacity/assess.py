"""From gathered facts to the figures of a report. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from state_lib.capacity.growth import growth
from state_lib.capacity.model import (
    Capacity,
    Cell,
    HostCapacity,
    Point,
    StoreCapacity,
    TaskCapacity,
)
from state_lib.changelog.topics import changelog_topic
from state_lib.checks.compaction import RECORD_BYTES
from state_lib.checks.facts import Facts, LogSample, StoreSeen, TaskSeen
from state_lib.checks.what_if import Rates, StoreMeasured
from state_lib.specs import StoreSpec
from state_lib.words import some


@dataclass(frozen=True)
class Measured:
    """What is known beside the facts.

    Attributes:
        stores: pace of writing and sizes.
        rates: of restores.
        rates_from: in words.
        stored: partition → (bytes in storage, snapshots).
        earlier: reports before this one, oldest first.
    """

    stores: Sequence[StoreMeasured]
    rates: Rates
    rates_from: str
    stored: Mapping[int, tuple[int, int]]
    earlier: Sequence[Point] = ()


def assess(facts: Facts, measured: Measured) -> Capacity:
    """Every figure."""
    held = _held(facts)
    cells = tuple(_cells(facts, held))
    by_store, by_task = defaultdict[str, list[Cell]](list), defaultdict[int, list[Cell]](list)
    for cell in cells:
        by_store[cell.store].append(cell)
        by_task[cell.partition].append(cell)
    stores = tuple(_store(measured, s, by_store[s.name]) for s in facts.topology.stores)
    paces = {s.store: s.written_per_s / max(1, s.changelog_records) for s in stores}
    tasks = tuple(
        _task(facts, measured, held.get(p, ("", TaskSeen(p))), by_task[p], paces)
        for p in range(facts.topology.partitions)
    )
    now = Point(
        facts.now,
        {t.partition: t.bytes for t in tasks},
        {s.store: s.records for s in stores},
        {s.store: s.memory_bytes for s in stores},
    )
    history = (*measured.earlier, now)
    return Capacity(
        app=facts.app,
        at=facts.now,
        stores=tuple(_grown(s, history) for s in stores),
        tasks=tuple(
            replace(t, growth=growth([(h.at, h.task_bytes.get(t.partition, 0)) for h in history]))
            for t in tasks
        ),
        cells=cells,
        hosts=tuple(
            HostCapacity(
                h.id,
                h.away,
                h.disk_total,
                h.disk_free,
                h.disk_used,
                growth(h.disk_used, h.disk_free),
            )
            for h in facts.hosts
        ),
        rates=measured.rates,
        rates_from=measured.rates_from,
        history=history,
        notes=tuple(_notes(facts)),
    )


def _grown(store: StoreCapacity, history: Sequence[Point]) -> StoreCapacity:
    """A memory store grows towards its bound, any other in records."""
    if store.bound:
        points = [(h.at, h.memory_bytes.get(store.store, 0)) for h in history]
        return replace(store, growth=growth(points, max(0, store.bound - store.memory_bytes)))
    points = [(h.at, h.records.get(store.store, 0)) for h in history]
    return replace(store, growth=growth(points))


def _cells(facts: Facts, held: Mapping[int, tuple[str, TaskSeen]]) -> Iterator[Cell]:
    for spec in facts.topology.stores:
        for partition in range(facts.topology.partitions):
            task = held.get(partition)
            seen = StoreSeen() if task is None else task[1].stores.get(spec.name, StoreSeen())
            records, size = _in_log(facts, spec, partition)
            yield Cell(
                spec.name,
                partition,
                seen.entries,
                records,
                size,
                seen.memory_bytes,
                seen.max_bytes,
            )


def _in_log(facts: Facts, spec: StoreSpec, partition: int) -> tuple[int, int]:
    """Records and bytes of a changelog's partition, by its own sample or by those of others."""
    topic = changelog_topic(facts.app, spec.name)
    seen = facts.topics.get(topic)
    if seen is None or partition >= len(seen.ends):
        return 0, 0
    samples = (facts.samples or {}).get(topic, ())
    own = [s for s in samples if s.partition == partition and s.records]
    records, offsets, size = _summed(own or samples)
    length = seen.ends[partition] - seen.starts[partition]
    estimated = length * (records / offsets if offsets else 1.0)
    return round(estimated), round(estimated * (size / max(1, records) + RECORD_BYTES))


def _summed(samples: Iterable[LogSample]) -> tuple[int, int, float]:
    """Records, offsets and bytes that were read."""
    whole = list(samples)
    return (
        sum(s.records for s in whole),
        sum(s.offsets for s in whole),
        sum(s.record_bytes * s.records for s in whole),
    )


def _store(measured: Measured, spec: StoreSpec, own: Sequence[Cell]) -> StoreCapacity:
    pace = next((s for s in measured.stores if s.store == spec.name), None)
    return StoreCapacity(
        store=spec.name,
        kind=spec.kind,
        backend=spec.backend,
        records=sum(c.records for c in own),
        changelog_records=sum(c.changelog_records for c in own),
        changelog_bytes=sum(c.changelog_bytes for c in own),
        record_bytes=round(pace.record_bytes, 1) if pace else 0.0,
        written_per_s=round(pace.per_s, 2) if pace else 0.0,
        memory_bytes=sum(c.memory_bytes for c in own),
        bound=sum(c.max_bytes for c in own),
    )


def _task(
    facts: Facts,
    measured: Measured,
    held: tuple[str, TaskSeen],
    own: Sequence[Cell],
    paces: Mapping[str, float],
) -> TaskCapacity:
    """``paces``: records written per second, of each that is in the store's changelog."""
    host, task = held
    partition = task.partition
    snapshot = None if facts.snapshots is None else facts.snapshots.newest.get(partition)
    stored, count = measured.stored.get(partition, (0, 0))
    rates, from_snapshot, age = measured.rates, None, None
    if snapshot is not None:
        # A snapshot at the newest commit has no tail, however old it is.
        age = 0 if snapshot.current else max(0, facts.now - snapshot.written_at)
        if snapshot.why_not is None:
            tail = sum(c.changelog_records * min(1.0, paces[c.store] * age / 1000) for c in own)
            took = snapshot.bytes / rates.fetch_bytes_per_s + tail / rates.tail_records_per_s
            from_snapshot = round(rates.open_s + took, 2)
    replayed = sum(c.changelog_records for c in own)
    return TaskCapacity(
        partition=partition,
        host=host,
        bytes=task.bytes,
        records=sum(c.records for c in own),
        changelog_bytes=sum(c.changelog_bytes for c in own),
        snapshot_bytes=0 if snapshot is None else snapshot.bytes,
        snapshot_age_ms=age,
        stored_bytes=stored,
        snapshots=count,
        from_snapshot_s=from_snapshot,
        from_changelog_s=round(rates.open_s + replayed / rates.full_records_per_s, 2),
    )


def _held(facts: Facts) -> dict[int, tuple[str, TaskSeen]]:
    """Partition → host and task; an open one wins over one that is left there."""
    found: dict[int, tuple[str, TaskSeen]] = {}
    for host in facts.hosts:
        for task in host.tasks:
            known = found.get(task.partition)
            if known is None or (task.state == "open" and known[1].state != "open"):
                found[task.partition] = host.id, task
    return found


def _notes(facts: Facts) -> Iterator[str]:
    for host in facts.hosts:
        if host.away is not None:
            yield f"host {host.id} is away, its tasks and disk are not counted: {host.away}"
    held = _held(facts)
    if missing := [p for p in range(facts.topology.partitions) if p not in held]:
        yield f"no host holds tasks {some(missing)}"
    if facts.snapshots is not None and facts.snapshots.away is not None:
        yield f"snapshots are not counted: {facts.snapshots.away}"
    for topic, samples in (facts.samples or {}).items():
        if bad := [s for s in samples if s.error is not None]:
            yield f"{topic}/{bad[0].partition} could not be read: {bad[0].error}"
