"""Runs what a test has given once more: cut otherwise, or with crashes and repeats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from confluent_kafka import Message

from state_lib.changelog.topics import dead_letter_queue
from state_lib.keys import partition_for, split_timestamp
from state_lib.serdes import serde_from
from state_lib.testing.pipeline import Given, Pipeline
from state_lib.testing.tasks import Tasks

_CUTS = (1, 2, 5)
_SHOWN = 5


@dataclass(frozen=True)
class Piped:
    """A batch, and wall time then (ms)."""

    records: tuple[Given, ...]
    now: int


@dataclass(frozen=True)
class Tick:
    """A move of stream time; see `Pipeline.tick`."""

    stream_time_ms: int | None
    now: int


Event = Piped | Tick


class Fresh(Protocol):
    """Makes a pipeline that has seen nothing."""

    def __call__(self, *, crashing: bool = False) -> Pipeline:
        """See `Pipeline`."""


def assert_same_however_cut(seen: Pipeline, events: Sequence[Event], fresh: Fresh) -> None:
    """Raise AssertionError unless other cuts give the same; see `TopologyTestDriver`.

    Between two moves of stream time all that was piped is one stream, cut into equal parts.
    """
    wanted = (_entries(seen.tasks), _last(seen.tasks), dropped(seen.tasks))
    for parts in _CUTS:
        again = fresh()
        try:
            for event in _joined(events):
                if isinstance(event, Tick):
                    again.tick(event.stream_time_ms, event.now)
                    continue
                step = max(1, math.ceil(len(event.records) / parts))
                for at in range(0, len(event.records), step):
                    later = event.records[at + step :]
                    again.run(event.records[at : at + step], event.now, later)
            found = (_entries(again.tasks), _last(again.tasks), dropped(again.tasks))
        finally:
            again.close()
        names = ("entries of stores", "last outputs by key", "dropped records")
        for name, before, now in zip(names, wanted, found, strict=True):
            _same(f"{name}, with {parts} batches between two moves of stream time", before, now)


def assert_survives_repeats(seen: Pipeline, events: Sequence[Event], fresh: Fresh) -> None:
    """Raise AssertionError unless crashes and repeats change nothing; see `TopologyTestDriver`."""
    again = fresh(crashing=True)
    try:
        for event in events:
            if isinstance(event, Tick):
                again.tick(event.stream_time_ms, event.now)
            else:
                again.run(event.records, event.now)
        _same("entries of stores, after crashes", _raw(seen.tasks), _raw(again.tasks))
        _same("dropped records, after crashes", dropped(seen.tasks), dropped(again.tasks))
        before, now = _outputs(seen.tasks, all_of_it), _outputs(again.tasks, all_of_it)
        _same("outputs, after crashes", before, now)
    finally:
        again.close()


def dropped(tasks: Tasks) -> dict[str, int]:
    """How many records were not used, by reason."""
    total: Counter[str] = Counter()
    for task in tasks:
        total.update(task.marker.dropped)
    return dict(total)


def place(
    key: bytes | None, partitions: int, ends: Mapping[tuple[str, int], int], topic: str
) -> int:
    """A record's partition: by its key, or round and round."""
    if key is not None:
        return partition_for(key, partitions)
    return sum(ends[topic, p] for p in range(partitions)) % partitions


def all_of_it(messages: list[Message]) -> Any:
    """Records as they came, but for times of dead letters, which are those of the wall."""
    return [(m.key(), m.value(), m.headers()) for m in messages]


def _newest(messages: list[Message]) -> Any:
    return {m.key(): m.value() for m in messages}


def _joined(events: Sequence[Event]) -> list[Event]:
    """Batches with no move of stream time between them as one."""
    out: list[Event] = []
    for event in events:
        before = out[-1] if out else None
        if isinstance(event, Piped) and isinstance(before, Piped) and before.now == event.now:
            out[-1] = Piped((*before.records, *event.records), event.now)
        else:
            out.append(event)
    return out


def _raw(tasks: Tasks) -> dict[Any, Any]:
    return {
        (spec.name, p, key): value
        for p, task in enumerate(tasks)
        for spec in tasks.topology.stores
        for key, value in task.scan(spec.name)[1]
    }


def _entries(tasks: Tasks) -> dict[Any, Any]:
    """Values decoded: sums of floats may differ in their last digits by the order of adding."""
    serdes = {s.name: (serde_from(s.value_serde), s.is_timestamped) for s in tasks.topology.stores}
    out = {}
    for (store, p, key), stored in _raw(tasks).items():
        serde, timestamped = serdes[store]
        value, time = split_timestamp(stored) if timestamped else (stored, 0)
        out[store, p, key] = (serde.deserialize(value), time)
    return out


def _last(tasks: Tasks) -> dict[Any, Any]:
    return {
        (topic, p, key): None if value is None else orjson.loads(value)
        for (topic, p), newest in _outputs(tasks, _newest, letters=False).items()
        for key, value in newest.items()
    }


def _outputs(
    tasks: Tasks, of: Callable[[list[Message]], Any], *, letters: bool = True
) -> dict[Any, Any]:
    topology = tasks.topology
    topics = sorted({o.topic for o in topology.outputs})
    topics += [dead_letter_queue(topology.app)] if letters else []
    return {
        (topic, p): of([m for some in tasks.log.read(topic, p, 0, 1 << 62) for m in some])
        for topic in topics
        for p in range(topology.partitions)
    }


def _same(what: str, wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> None:
    keys = [k for k in {**wanted, **found} if not _equal(wanted.get(k), found.get(k))]
    if not keys:
        return
    lines = [f"  {k}: {wanted.get(k)!r} became {found.get(k)!r}" for k in keys[:_SHOWN]]
    more = len(keys) - _SHOWN
    lines += [f"  and {more} more"] if more > 0 else []
    raise AssertionError("\n".join([f"{what}:", *lines]))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)
