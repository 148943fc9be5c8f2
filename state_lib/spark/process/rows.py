"""Rows that a processor takes, on their way to it: judged as those of other verbs, not combined.

Column ``r<verb>`` of an entry is a struct: ``offset``, ``p<number>`` (its place in each array that
was exploded), ``row`` (the stream's columns), and for dead letters ``key`` and ``value`` as they
came, and ``stamp``, the record's own timestamp in ms, if event time is another. It is null in
entries of other verbs, and of rows that were dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from state_lib.executor.process.schemas import struct_of
from state_lib.processing import Process
from state_lib.spark.analysis import plain_column
from state_lib.spark.entries import first_reason, tried_key, window_of
from state_lib.spark.functions.evaluated import is_givable
from state_lib.spark.keys import key_bytes
from state_lib.spark.rows import POSITION


def judge(rows: DataFrame, index: int, verb: Process) -> DataFrame:
    """Add the key of each row, and why it is not used; columns as `state_lib.spark.entries.judge`.

    A row is late by event time if its time and the grace are before stream time; where there are
    windows, as those of `agg`.
    """
    own = f"{index}"
    usable = F.col("__hf_bad").isNull() & ~F.col("__hf_skip")
    rows, key, why, said = tried_key(rows, index, verb.key, verb.processor.key_serde, verb.name)
    start, late = window_of(verb.stores[0], usable)
    if verb.processor.time_mode == "eventtime":
        grace = F.lit(verb.processor.grace_ms)
        late = F.coalesce(F.col("__hf_ts") + grace < F.col("__hf_clock"), late)
    others = _ungivable(verb, usable & key.isNotNull() & ~late)
    why, said = first_reason([(why, said), *((other, None) for other in others)])
    rows = rows.withColumns({f"__hf_why{own}": why, f"__hf_said{own}": said, f"__hf_key{own}": key})
    key, why = F.col(f"__hf_key{own}"), F.col(f"__hf_why{own}")
    return rows.withColumns(
        {
            f"__hf_start{own}": start,
            f"__hf_late{own}": late,
            f"__hf_key{own}": F.when(why.isNull(), key_bytes(verb.processor.key_serde, key)),
            f"__hf_size{own}": F.lit(None).cast("bigint"),
        }
    )


def _ungivable(verb: Process, usable: Column) -> list[Column]:
    """Why a row is not used of which Python cannot be given a column."""
    found = []
    for field in struct_of(verb.processor.rows).fields:
        fine = is_givable(plain_column(field.name), field.dataType)
        if fine is not None:
            name = f"not-python:{verb.name}.{field.name}"
            found.append(F.when(usable & ~F.coalesce(fine, F.lit(True)), name))  # noqa: FBT003
    return found


def taken(processes: Sequence[Process], first: int, index: int) -> list[Column]:
    """Columns ``r<verb>`` of the entry of verb ``index``; processes are numbered from ``first``."""
    return [
        (_struct(verb, number) if number == index else _none(verb)).alias(f"r{number}")
        for number, verb in enumerate(processes, first)
    ]


def apart(processes: Sequence[Process], first: int) -> tuple[list[Column], list[Column]]:
    """What keeps rows of processors apart where others are grouped, and what becomes of them."""
    keys = [
        F.col(f"r{number}.{name}").alias(f"g{number}_{name}")
        for number, verb in enumerate(processes, first)
        for name in ("offset", *(f"p{at}" for at in range(verb.processor.explodes)))
    ]
    numbers = range(first, first + len(processes))
    return keys, [F.first(f"r{number}").alias(f"r{number}") for number in numbers]


def _struct(verb: Process, index: int) -> Column:
    usable = F.col("__hf_bad").isNull() & ~F.col("__hf_skip") & F.col(f"__hf_why{index}").isNull()
    mine = usable & F.col(f"__hf_key{index}").isNotNull() & ~F.col(f"__hf_late{index}")
    names = struct_of(verb.processor.rows).names
    parts = [F.col("__hf_offset").alias("offset")]
    parts += [F.col(f"{POSITION}{at}").alias(f"p{at}") for at in range(verb.processor.explodes)]
    parts.append(F.struct(*(plain_column(name).alias(name) for name in names)).alias("row"))
    if verb.processor.on_error == "dead-letter":
        parts += [F.col("__hf_key").alias("key"), F.col("__hf_value").alias("value")]
        if verb.source.timestamp:
            parts.append(F.col("__hf_millis").alias("stamp"))
    return F.when(mine, F.struct(*parts).cast(_type(verb)))


def _none(verb: Process) -> Column:
    return F.lit(None).cast(_type(verb))


def _type(verb: Process) -> T.StructType:
    """All of it may be null, wherever it comes from: so that entries of all verbs have one type."""
    fields: list[tuple[str, T.DataType]] = [("offset", T.LongType())]
    fields += [(f"p{at}", T.IntegerType()) for at in range(verb.processor.explodes)]
    fields.append(("row", struct_of(verb.processor.rows)))
    if verb.processor.on_error == "dead-letter":
        fields += [("key", T.BinaryType()), ("value", T.BinaryType())]
        if verb.source.timestamp:
            fields.append(("stamp", T.LongType()))
    whole: Any = T.StructType([T.StructField(name, kind) for name, kind in fields])
    nullable: T.StructType = whole._as_nullable()  # noqa: SLF001 - Spark has no other
    return nullable
