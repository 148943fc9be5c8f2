"""What a what-if needs to know: how fast an application writes, and how fast it was restored."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import orjson

from state_lib.changelog.reader import read
from state_lib.changelog.topics import progress_topic
from state_lib.checks.facts import Facts, LogSample, TopicSeen
from state_lib.checks.what_if import Rates, StoreMeasured
from state_lib.kafka import Kafka, describe, ends, starts
from state_lib.protocol.marker import now_ms
from state_lib.restore.candidates import (
    FETCH_BYTES_PER_S,
    FULL_RECORDS_PER_S,
    OPEN_S,
    TAIL_RECORDS_PER_S,
)
from state_lib.specs import StoreSpec

_RECENT = 20_000
"""Offsets of the progress topic that are searched for restores."""
_LEAST_RECORDS = 10_000
"""A restore of fewer says nothing of a rate."""
_LEAST_MS = 10_000


def stores_measured(kafka: Kafka, facts: Facts, look_s: float = 5.0) -> list[StoreMeasured]:
    """Every store whose changelog was sampled.

    The pace of writing comes from what the last check on this machine saw; where that was never,
    or just now, the logs are looked at once more after ``look_s`` seconds.
    """
    later = _ends_later(kafka, facts, look_s)
    found = []
    for plan, seen in facts.changelogs():
        samples = (facts.samples or {}).get(plan.name, ())
        if plan.store is not None and samples:
            rate = _offsets_per_s(facts, plan.name, seen, later)
            found.append(_measured(facts, plan.store, seen, samples, rate))
    return found


def restore_rates(kafka: Kafka, app: str) -> Rates:
    """From the last restores that hosts report; from a benchmark if there are none."""
    rates = list(seen_rates(_told(kafka, app)))
    if not rates:
        return Rates(FULL_RECORDS_PER_S, TAIL_RECORDS_PER_S, FETCH_BYTES_PER_S, OPEN_S)
    rate = median(rates)
    return Rates(rate, rate, FETCH_BYTES_PER_S, OPEN_S, len(rates))


def seen_rates(events: Iterable[Mapping[str, Any]]) -> Iterable[float]:
    """Records per second of each restore of a store that began and ended. Pure."""
    began: dict[tuple[str, str], int] = {}
    for event in events:
        at = event.get("task", ""), event.get("store", "")
        if event.get("phase") == "start":
            began[at] = event["at"]
        elif event.get("phase") == "end" and at in began:
            took_ms = event["at"] - began.pop(at)
            if event["records"] >= _LEAST_RECORDS and took_ms > 0:
                yield event["records"] * 1000 / took_ms


def _told(kafka: Kafka, app: str) -> list[Mapping[str, Any]]:
    topic = progress_topic(app)
    if not describe(kafka.admin(), [topic]):
        return []
    at = (topic, 0)
    end, first = ends(kafka.admin(), [at])[at], starts(kafka.admin(), [at])[at]
    batches = read(kafka, topic, 0, max(first, end - _RECENT), end)
    bodies = (orjson.loads(m.value() or b"{}") for batch in batches for m in batch)
    return [body for body in bodies if body.get("kind") == "restore"]


def _ends_later(
    kafka: Kafka, facts: Facts, look_s: float
) -> tuple[int, dict[tuple[str, int], int]]:
    """Time and ends of a second look; nothing if the last check was long enough ago."""
    if facts.earlier and all(facts.now - at > _LEAST_MS for at, _, _ in facts.earlier.values()):
        return 0, {}
    time.sleep(max(0.0, look_s - (now_ms() - facts.now) / 1000))
    logs = [(plan.name, p) for plan, seen in facts.changelogs() for p in range(len(seen.ends))]
    return now_ms(), ends(kafka.admin(), logs)


def _offsets_per_s(
    facts: Facts, topic: str, seen: TopicSeen, later: tuple[int, Mapping[tuple[str, int], int]]
) -> float:
    """Of all partitions."""
    at, found = later
    if found:
        moved = sum(found[topic, p] - end for p, end in enumerate(seen.ends))
        return moved * 1000 / max(1, at - facts.now)
    rates = [
        (seen.ends[p] - end) * 1000 / (facts.now - then)
        for (name, p), (then, end, _) in facts.earlier.items()
        if name == topic and p < len(seen.ends) and facts.now > then
    ]
    return sum(rates) * seen.partitions / max(1, len(rates))


def _measured(
    facts: Facts,
    spec: StoreSpec,
    seen: TopicSeen,
    samples: Iterable[LogSample],
    offsets_per_s: float,
) -> StoreMeasured:
    whole = list(samples)
    records, offsets = sum(s.records for s in whole), sum(s.offsets for s in whole)
    dense = records / max(1, offsets)
    size = sum(s.record_bytes * s.records for s in whole) / max(1, records)
    length = sum(end - start for start, end in zip(seen.starts, seen.ends, strict=True))
    held = [
        task.stores[spec.name].entries
        for host in facts.hosts
        for task in host.tasks
        if spec.name in task.stores
    ]
    live = sum(held)
    return StoreMeasured(
        store=spec.name,
        partitions=seen.partitions,
        live=live,
        biggest=max(held) / live if live else 1 / seen.partitions,
        record_bytes=size,
        log_records=length * dense,
        per_s=max(0.0, offsets_per_s) * dense,
        deletes=sum(s.deletes for s in whole) / max(1, records),
        window_ms=spec.retention_ms if spec.is_window else 0,
        retention_ms=int(seen.config["retention.ms"]),
        delete_retention_ms=int(seen.config["delete.retention.ms"]),
        segment_bytes=int(seen.config["segment.bytes"]),
        segment_ms=int(seen.config["segment.ms"]),
        dirty_ratio=float(seen.config["min.cleanable.dirty.ratio"]),
    )
