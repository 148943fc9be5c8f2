"""What stores look like as tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from state_lib.errors import HoldfastError, NotFound
from state_lib.keys import window_key
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions
from state_lib.serdes import Struct
from state_lib.spark.source import table as module
from state_lib.spark.source.metadata import metadata
from state_lib.spark.source.table import Table, places_of
from state_lib.specs import StoreSpec
from state_lib.stores.columns import Columns
from tests.support.stored import with_timestamp

HOUR = 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
POSITIONS = Positions({("in", 0): 5, ("in", 1): 7})
MARKER = Marker(
    epoch=4, batch_number=9, positions=POSITIONS, stream_time_ms=3 * HOUR, written_at=10 * HOUR
)
FIELDS = Struct(_at="int64", n="int64", name="utf8", ok="bool")


def at(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def part(*entries: tuple[bytes, bytes]) -> Columns:
    keys, values = ([entry[i] for entry in entries] for i in range(2))
    return Columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def rows(table: Table, entries: Columns, marker: Marker = MARKER) -> list[dict[str, Any]]:
    batches = list(table.batches(entries, metadata(3, marker, None)))
    for batch in batches:
        assert batch.schema == to_arrow_schema(table.schema, timezone="UTC"), "as Spark wants it"
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def columns_of(**spec: Any) -> list[str]:
    return list(places_of(StoreSpec("s", **spec)))


def test_columns_of_each_kind() -> None:
    windows = {"kind": "window", "window_size_ms": HOUR, "retention_ms": HOUR}
    stamped = {"kind": "timestamped-key-value"}
    struct = FIELDS.describe()
    assert columns_of() == ["key", "value", "_metadata"]
    assert columns_of(**stamped) == ["key", "value", "timestamp", "_metadata"]
    assert columns_of(**windows, key_serde="utf8", value_serde=struct) == [
        *("key", "window_start", "window_end", "n", "name", "ok", "timestamp", "_metadata")
    ]
    assert columns_of(key_serde=Struct(a="int64", b="utf8").describe()) == [
        *("a", "b", "value", "_metadata")
    ]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("utf8", {"key": "int64", "n": "int64"}, ["key", "value"]),
        ("utf8", {"Timestamp": "int64"}, ["key", "value"]),
        ("utf8", {"n": "int64", "N": "int64"}, ["key", "value"]),
        ("utf8", {"value": "int64"}, ["key", "value"]),
        ({"a": "utf8"}, {"a": "int64"}, ["a", "value"]),
        ({"a": "utf8", "value": "utf8"}, {"n": "int64"}, ["key", "n"]),
        ({"_metadata": "utf8"}, {"n": "int64"}, ["key", "n"]),
    ],
)
def test_no_two_columns_have_one_name(key: Any, value: Any, expected: list[str]) -> None:
    found = columns_of(
        kind="timestamped-key-value",
        key_serde=Struct(**key).describe() if isinstance(key, dict) else key,
        value_serde=Struct(**value).describe(),
    )
    assert found == [*expected, "timestamp", "_metadata"]
    assert len({name.lower() for name in found}) == len(found)


def test_a_window_store_as_rows() -> None:
    spec = StoreSpec(
        "w",
        kind="window",
        key_serde="utf8",
        value_serde=FIELDS.describe(),
        window_size_ms=HOUR,
        retention_ms=4 * HOUR,
    )
    value = FIELDS.serialize({"_at": 1, "n": 2, "name": None, "ok": True})
    entries = part(
        (window_key(b"JFK", HOUR), with_timestamp(value, HOUR + 5)),
        (window_key(b"", -HOUR), with_timestamp(value, 7)),
    )
    beside = {
        "task": 3,
        "epoch": 4,
        "batch_number": 9,
        "positions": [("in", [(0, 5), (1, 7)])],
        "stream_time_ms": 3 * HOUR,
        "committed_at": at(10 * HOUR),
        "snapshot": None,
    }
    same = {"n": 2, "name": None, "ok": True, "_metadata": beside}
    assert rows(Table("app", spec), entries) == [
        {"key": "JFK", "window_start": at(HOUR), "window_end": at(2 * HOUR)}
        | {"timestamp": at(HOUR + 5)}
        | same,
        {"key": "", "window_start": at(-HOUR), "window_end": at(0), "timestamp": at(7)} | same,
    ]


@pytest.mark.parametrize(
    ("serde", "raw", "value"),
    [
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("utf8", "é".encode(), "é"),
        ("int64", (5).to_bytes(8, "big"), 5),
        ("float64", b"\x3f\xf8" + bytes(6), 1.5),
        ("json", b'{"a":[1]}', '{"a":[1]}'),
        ("date", b"\x80\0\0\1", date(1970, 1, 2)),
        ("timestamp", b"\x80" + bytes(6) + b"\1", EPOCH + timedelta(microseconds=1)),
        ("timestamp_ntz", b"\x80" + bytes(7), EPOCH.replace(tzinfo=None)),
        ("decimal(5,2)", b"\x80" + bytes(14) + b"\5", Decimal("0.05")),
        ("bool", b"\1", True),
    ],
)
def test_scalars(serde: str, raw: bytes, value: Any) -> None:
    table = Table("app", StoreSpec("s", key_serde=serde, value_serde=serde), ["value", "KEY"])
    assert table.schema.names == ["value", "key"], "in the order asked for, by their own names"
    assert rows(table, part((raw, raw))) == [{"value": value, "key": value}]


def test_what_is_hidden_stays_hidden_in_a_struct_that_stays_one() -> None:
    serde = Struct(_at="int64", key="int64")
    table = Table("app", StoreSpec("s", value_serde=serde.describe()), ["value"])
    assert table.schema.simpleString() == "struct<value:struct<key:bigint>>"
    entries = part((b"k", serde.serialize({"_at": 1, "key": 2})))
    assert rows(table, entries) == [{"value": {"key": 2}}]


def test_before_anything_was_seen_there_is_no_stream_time() -> None:
    table = Table("app", StoreSpec("s"), ["_metadata"])
    (row,) = rows(table, part((b"k", b"v")), Marker(epoch=1))
    assert row["_metadata"]["stream_time_ms"] is None
    assert row["_metadata"]["positions"] == []


def test_parts_with_much_beside_each_row_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 3 * metadata(3, MARKER, None).nbytes)
    table = Table("app", StoreSpec("s", key_serde="utf8"))
    entries = part(*((b"%d" % i, b"v") for i in range(10)))
    batches = list(table.batches(entries, metadata(3, MARKER, None)))
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 1]
    assert [r["key"] for r in rows(table, entries)] == [str(i) for i in range(10)]


def test_an_unknown_column_is_named_with_those_that_there_are() -> None:
    with pytest.raises(NotFound, match=r"no columns \['miles'\]; its columns: \['key', 'value'"):
        Table("app", StoreSpec("s"), ["key", "miles"])


def test_an_entry_that_is_not_what_the_serdes_say() -> None:
    spec = StoreSpec("s", value_serde="int64")
    entries = part((b"k", b"short"))
    with pytest.raises(HoldfastError, match="leave its columns out") as failed:
        rows(Table("app", spec), entries)
    assert failed.value.details == {"app": "app", "store": "s"}
    assert rows(Table("app", spec, ["key"]), entries) == [{"key": b"k"}], "is not even looked at"
