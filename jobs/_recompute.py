"""What audits share. Plain PySpark and nothing of state_lib, so that no error is shared.

Batches are the records of ``<app>-progress``, in log order, as plain dicts: ``epoch``, ``n``,
``from`` and ``to`` (``{topic: {"partition": offset}}``), ``clock``, ``now``, ``max_future_ms``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from xxhash import xxh3_128_intdigest

Batch = Mapping[str, Any]
Entry = tuple[bytes, bytes]


class Judgement(NamedTuple):
    """Offsets ``start`` to ``end`` (exclusive), and what they were judged by (ms)."""

    start: int
    end: int
    clock: int
    latest: int


def judgements(batches: Iterable[Batch]) -> dict[tuple[str, int], list[Judgement]]:
    """Per source partition, ranges of offsets that do not overlap, in order.

    A driver writes a batch down before any task sees it. So an offset may be written down several
    times: by a driver that crashed before anything was committed, by one that was superseded and
    did not know it yet, or again, with the same clock, for tasks that had missed the batch. The
    record of the latest driver (the greatest epoch) counts, and its last one if there are several.
    """
    found: dict[tuple[str, int], list[Judgement]] = {}
    for batch in sorted(batches, key=lambda b: int(b["epoch"])):  # stable: keeps the log's order
        latest = batch["now"] + batch["max_future_ms"]
        for topic, ends in batch["to"].items():
            for partition, end in ends.items():
                ranges = found.setdefault((topic, int(partition)), [])
                start = batch["from"].get(topic, {}).get(partition, end)
                if start < end:
                    _override(ranges, Judgement(start, end, batch["clock"], latest))
    return found


def _override(ranges: list[Judgement], new: Judgement) -> None:
    """Put a range over those that are there, which keep what it does not cover."""
    beyond: list[Judgement] = []
    while ranges and ranges[-1].end > new.start:
        old = ranges.pop()
        if old.end > new.end:
            beyond.append(old._replace(start=max(old.start, new.end)))
        if old.start < new.start:
            ranges.append(old._replace(end=new.start))
            break
    ranges += [new, *reversed(beyond)]


def judged(spark: SparkSession, rows: DataFrame, batches: Iterable[Batch]) -> DataFrame:
    """Source records with ``ts`` (ms), ``src``, ``clock`` and ``bad``: why a time cannot be used.

    Event time is the record's own timestamp. See `recorded`, and `timed` where it is a column's.
    """
    return timed(recorded(spark, rows, batches), F.unix_millis("timestamp"))


def timed(rows: DataFrame, time: Column) -> DataFrame:
    """Adds ``ts``, an event time in ms, and to ``bad`` why it cannot be used.

    A record that is bad already stays so for its own reason: one that cannot be decoded has no time
    in a column.
    """
    bad = (
        F.when(time.isNull(), "null-timestamp")
        .when(time < 0, "invalid-timestamp")
        .when(time > F.col("_latest"), "future")
    )
    return rows.withColumns({"ts": time, "bad": F.coalesce("bad", bad)}).drop("_latest")


def recorded(spark: SparkSession, rows: DataFrame, batches: Iterable[Batch]) -> DataFrame:
    """Source records with ``src``, ``clock``, ``bad``, and ``_latest``, which `timed` takes.

    ``src`` numbers the source partitions by topic and partition. An offset that no batch covers is
    bad (``not-recorded``), which no task ever counts: it shows as a difference.
    """
    ranges = judgements(batches)
    numbers = {place: i for i, place in enumerate(sorted(ranges))}
    topics = {t: min(i - p for (u, p), i in numbers.items() if u == t) for t, _ in ranges}
    table = [(topic, partition, *r) for (topic, partition), rs in ranges.items() for r in rs] or [
        ("", -1, 0, 0, 0, 0)
    ]
    ddl = "_t string, _p int, _start bigint, _end bigint, clock bigint, _latest bigint"
    known = F.broadcast(spark.createDataFrame(table, ddl))
    here = (F.col("topic") == F.col("_t")) & (F.col("partition") == F.col("_p"))
    within = (F.col("offset") >= F.col("_start")) & (F.col("offset") < F.col("_end"))
    base: Column = F.lit(0)
    for topic, first in topics.items():
        base = F.when(F.col("topic") == topic, first).otherwise(base)
    bad = F.when(F.col("clock").isNull(), "not-recorded")
    joined = rows.join(known, here & within, "left")
    return joined.withColumns({"src": base + F.col("partition"), "bad": bad}).drop(
        "_t", "_p", "_start", "_end"
    )


def json_fields(rows: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Adds the fields of JSON values, and to ``bad`` why a value cannot be used.

    ``types``: field → ``BIGINT``, ``STRING`` or ``BOOLEAN``, with a ``!`` behind if required.
    """
    text = F.col("value").cast("string")
    rows = rows.withColumn("_json", F.try_parse_json(text))
    kinds = {f"_is_{f}": F.schema_of_variant(_field(f, "variant")) for f in types}
    fields = {f: _field(f, kind.rstrip("!").lower()) for f, kind in types.items()}
    rows = rows.withColumns(kinds | fields)
    wrong: Column = ~F.schema_of_variant("_json").startswith("OBJECT")
    for name, kind in types.items():
        seen = F.coalesce(F.col(f"_is_{name}"), F.lit("VOID"))
        allowed = [kind.rstrip("!")] if kind.endswith("!") else [kind, "VOID"]
        wrong |= ~seen.isin(*allowed)
    broken = F.when(F.col("_json").isNull(), "undecodable").when(wrong, "wrong-schema")
    rows = rows.withColumn("bad", F.coalesce("bad", broken))
    return rows.drop("_json", *kinds)


def _field(name: str, kind: str) -> Column:
    return F.try_variant_get("_json", f"$.{name}", kind)


def letters(rows: DataFrame) -> list[tuple[str, int, int, str]]:
    """Topic, partition, offset and reason of every bad record."""
    bad = rows.where("bad IS NOT NULL").select("topic", "partition", "offset", "bad").collect()
    return [(r[0], r[1], r[2], r[3]) for r in bad]


def counted(reasons: Iterable[str]) -> dict[str, int]:
    """How often each occurs."""
    out: dict[str, int] = {}
    for reason in reasons:
        out[reason] = out.get(reason, 0) + 1
    return out


def packed(values: Sequence[int | str | None]) -> bytes:
    """A packed struct: null bitmap, big-endian int64s in order, then texts with their lengths.

    Give None for a null int64; a null text is not needed here.
    """
    nulls = sum(1 << i for i, v in enumerate(values) if v is None)
    numbers = [0 if v is None else v for v in values if not isinstance(v, str)]
    texts = [v.encode() for v in values if isinstance(v, str)]
    head = nulls.to_bytes((len(values) + 7) // 8, "little") + struct.pack(
        f">{len(numbers)}q", *numbers
    )
    return head + b"".join(struct.pack(">I", len(t)) + t for t in texts)


def digest(entries: Iterable[Entry]) -> str:
    """Sum of the hashes of length-prefixed keys and values, modulo 2^128, and how many."""
    total = count = 0
    for key, value in entries:
        total += xxh3_128_intdigest(
            struct.pack(">I", len(key)) + key + struct.pack(">I", len(value)) + value
        )
        count += 1
    return f"{total % 2**128:032x}/{count}"
