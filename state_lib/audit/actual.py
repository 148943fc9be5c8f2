"""What is really there: stores, outputs, dead letters and counts at one `Standing`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from state_lib.audit.compare import StoreKey, hashed, shown
from state_lib.audit.standing import Standing
from state_lib.changelog.reader import read
from state_lib.changelog.topics import dead_letter_queue
from state_lib.kafka import Kafka, starts
from state_lib.keys import split_output_key, split_timestamp, split_window_key
from state_lib.serdes import Serde, serde_from
from state_lib.serdes.kinds import Kind, columns_of
from state_lib.serdes.shown import from_json, to_json
from state_lib.specs import OutputSpec, StoreSpec, Topology
from state_lib.stores.digest import digest

Letter = tuple[str, int, int, str]
"""Topic, partition, offset and reason."""
_HEADERS = ("topic", "partition", "offset", "message")


@dataclass
class Entries:
    """Entries by key, and lines about those that occur again where they must not.

    For a store: the digest of its bytes. For an output: the last record per key.
    """

    rows: dict[StoreKey, dict[str, Any]] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    digest: str | None = None


def store_entries(standing: Standing, spec: StoreSpec) -> Entries:
    """Every live entry of a store, decoded. A key that two tasks hold is doubled."""
    out, raw = Entries(), list[tuple[bytes, bytes]]()
    where: dict[StoreKey, int] = {}
    keys, values = serde_from(spec.key_serde), serde_from(spec.value_serde)
    oldest = standing.stream_time_ms - spec.retention_ms
    for (store, task), scan in standing.scans.items():
        if store != spec.name:
            continue
        for key, value in _pairs(scan):
            row = _row(spec, keys, values, key, value)
            if spec.is_window and row["start"] <= oldest:
                continue
            raw.append((key, value))
            at = (hashed(row.pop("key")), row.pop("start"))
            if at in out.rows:
                out.doubled.append(f"{shown(at)} is held by task {where[at]} and by task {task}")
            out.rows[at], where[at] = row, task
    out.digest = str(digest(raw))
    return out


def comparable(topology: Topology) -> tuple[list[OutputSpec], list[str]]:
    """Outputs that say what their stores hold, and a note on the others.

    Those of `reduce`, `aggregate` and processors have another shape: a row that has its key among
    its columns, nested values as JSON, times as text.
    """
    by_python = {s.name for s in topology.stores if s.state}
    found = [o for o in topology.outputs if o.store not in by_python]
    others = sorted(o.topic for o in topology.outputs if o.store in by_python)
    note = (
        f"outputs {others} were not compared: they are of reduce, aggregate or processors, whose "
        "stores say it in another way"
    )
    return found, [note] if others else []


def output_entries(
    kafka: Kafka,
    standing: Standing,
    topology: Topology,
    output: OutputSpec,
    rising: Sequence[str],
) -> Entries:
    """The last committed record per key, decoded.

    Args:
        kafka: connection.
        standing: up to where to read.
        topology: of the application.
        output: what to read.
        rising: fields whose sum grows with every record of a key; a record that does not is
            doubled.
    """
    spec = topology.store(output.store)
    if spec is None:
        return Entries()
    out = Entries()
    serde = serde_from(spec.key_serde)
    reached: dict[StoreKey, tuple[int, Any]] = {}
    for message in _messages(kafka, standing, output.topic, topology.partitions):
        raw, value = message.key() or b"", message.value()
        inner, start = split_output_key(raw) if spec.is_window else (raw, None)
        key = serde.deserialize(inner)
        at = (hashed(key), start)
        if value is None:
            out.rows.pop(at, None)
            continue
        row = _output_row(orjson.loads(value), to_json(spec.key_serde, key))
        row["timestamp"] = message.timestamp()[1]
        place = f"{output.topic}/{message.partition()} offset {message.offset()}"
        total = sum(row.get(name) or 0 for name in rising)
        before = reached.get(at)
        if before is not None and before[0] != message.partition():
            out.doubled.append(f"{shown(at)} at {place} is in partition {before[0]} as well")
        elif before is not None and rising and total <= before[1]:
            names = " + ".join(rising)
            out.doubled.append(f"{shown(at)} at {place}: {names} went from {before[1]} to {total}")
        reached[at] = (message.partition(), total)
        out.rows[at] = row
    return out


def dead_letter_counts(kafka: Kafka, standing: Standing, topology: Topology) -> dict[Letter, int]:
    """How often each bad record is in the dead letters: once is right."""
    out: dict[Letter, int] = {}
    topic = dead_letter_queue(topology.app)
    for message in _messages(kafka, standing, topic, topology.partitions):
        headers = {k: (v or b"").decode() for k, v in message.headers() or []}
        values = [headers.get(f"__streams.errors.{name}", "") for name in _HEADERS]
        letter = (values[0], int(values[1]), int(values[2]), values[3])
        out[letter] = out.get(letter, 0) + 1
    return out


def dropped_counts(standing: Standing) -> dict[str, int]:
    """Reason → records, over all tasks; reasons that never occurred are left out."""
    out: dict[str, int] = {}
    for marker in standing.markers:
        for reason, n in marker.dropped.items():
            out[reason] = out.get(reason, 0) + n
    return {reason: n for reason, n in out.items() if n}


def expected_output(
    rows: Mapping[StoreKey, Mapping[str, Any]], spec: StoreSpec
) -> dict[StoreKey, dict[str, Any]]:
    """What an output's last records must be, given the store's rows (expired ones included)."""
    out = {}
    kinds = dict(columns_of(spec.value_serde))
    for (key, start), row in rows.items():
        fields = {n: _sent(kinds.get(n, "int64"), v) for n, v in row.items() if n[:1] != "_"}
        if "value" in fields and not isinstance(spec.value_serde, Mapping):
            fields["count"] = fields.pop("value")
        if start is not None:
            fields |= {"window_start": start, "window_end": start + spec.window_size_ms}
        out[key, start] = fields
    return out


def _sent(kind: Kind, value: Any) -> Any:
    """A field as outputs have it, decimals with all their digits."""
    try:
        return to_json(kind, from_json(kind, to_json(kind, value)))
    except (ValueError, TypeError, AttributeError):
        return f"{value!r}, which is no {kind}"  # reported as a difference


def _output_row(body: dict[str, Any], key: Any) -> dict[str, Any]:
    """An output's JSON without its key, which comes first and must be the record's.

    A key of several columns is in one member, or each of them is one.
    """
    name = next(iter(body))
    if isinstance(key, dict) and not isinstance(body[name], dict):
        given = {column: body.pop(column) for column in key if column in body}
        name = ", ".join(key)
    else:
        given = body.pop(name)
    if given != key:
        body[name] = given  # reported as a difference
    return body


def _row(
    spec: StoreSpec, keys: Serde[Any], values: Serde[Any], key: bytes, value: bytes
) -> dict[str, Any]:
    row: dict[str, Any] = {"start": None}
    inner = key
    if spec.is_window:
        inner, row["start"], _ = split_window_key(key)
    row["key"] = keys.deserialize(inner)
    if spec.is_timestamped:
        value, row["timestamp"] = split_timestamp(value)
    decoded = values.deserialize(value)
    return row | (decoded if isinstance(decoded, dict) else {"value": decoded})


def _pairs(scan: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, bytes]]:
    for chunk in scan:
        yield from zip(chunk.column(0).to_pylist(), chunk.column(1).to_pylist(), strict=True)


def _messages(kafka: Kafka, standing: Standing, topic: str, partitions: int) -> Iterator[Any]:
    places = [(topic, p) for p in range(partitions)]
    first = starts(kafka.admin(), places)
    for place in places:
        for messages in read(kafka, topic, place[1], first[place], standing.ends[place]):
            yield from messages
