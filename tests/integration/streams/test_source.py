"""``spark.read.format("holdfast")`` over real hosts, with Spark's own workers in between."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib.kafka import Kafka
from state_lib.keys import window_key
from state_lib.protocol.marker import now_ms
from state_lib.snapshots.listing import list_snapshots
from state_lib.snapshots.manifest import new_id
from state_lib.snapshots.savepoints import write_savepoint
from state_lib.stack.java import java_home
from state_lib.stores import columns as columns_module
from tests.support import jvm
from tests.support.apps import HOUR, NOON, SOURCE
from tests.support.read_by_spark import (
    DELAYS,
    HELD,
    PAIR,
    PARTITIONS,
    ROUTE,
    TOKEN,
    World,
    int64,
    partition_of,
)
from tests.support.waiting import SLOWNESS, until


@pytest.fixture
def world(spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path) -> Iterator[World]:
    made = World(spark, kafka, name, tmp_path)
    yield made
    for host in made.running:
        made.stop(host)


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.selectExpr(*columns).collect())


def test_stores_of_every_kind(world: World) -> None:
    words = {b"w%d" % i: int64(i) for i in range(20)}
    windows = {
        window_key(b"JFK", NOON): DELAYS.serialize({"_at": 1, "n": 5, "name": None}),
        window_key(b"LGA", NOON): DELAYS.serialize({"_at": 1, "n": 6, "name": "é"}),
        window_key(b"JFK", NOON - 9 * HOUR): DELAYS.serialize({"_at": 1, "n": 7, "name": "old"}),
    }
    pair = PAIR.serialize({"a": 1, "b": "x"})
    world.put("plain", {b"a": b"\x00\xff", b"b": b""})
    world.put("counts", words, NOON + 1)
    world.put("hours", windows, NOON + 2)
    world.put("small", {int64(-7): b'{"a":[1,null]}'})
    world.put("pairs", {pair: b"\x3f\xf8" + bytes(6)})

    assert rows(world.read("plain"), "key", "value") == [(b"a", b"\x00\xff"), (b"b", b"")]
    counts = world.read("counts")
    assert counts.columns == ["key", "value", "timestamp", "_metadata"]
    assert rows(counts, "key", "value", "unix_millis(timestamp)") == sorted(
        (key.decode(), int.from_bytes(value, "big"), NOON + 1) for key, value in words.items()
    )
    hours = world.read("hours")
    times = [f"unix_millis({c})" for c in ("window_start", "window_end", "timestamp")]
    assert rows(hours, "key", "n", "name", *times) == [
        ("JFK", 5, None, NOON, NOON + HOUR, NOON + 2),
        ("LGA", 6, "é", NOON, NOON + HOUR, NOON + 2),
    ], "what is expired is not there, nor are hidden fields"
    assert rows(world.read("small"), "key", "value") == [(-7, '{"a":[1,null]}')]
    assert rows(world.read("pairs"), "a", "b", "value") == [(1, "x", 1.5)]
    empty = world.read("plain", key="ff")
    assert (empty.count(), empty.columns) == (0, ["key", "value", "_metadata"])


def test_types_are_those_that_spark_derived(world: World) -> None:
    day, noon = dt.date(2013, 1, 31), dt.datetime(2013, 1, 31, 12)  # noqa: DTZ001 - one has none
    key = ROUTE.serialize({"origin": "JFK", "day": day})
    value = {
        "least": Decimal("1.50"), "at": noon.replace(tzinfo=dt.UTC), "local": noon,
        "tags": ["a", None], "by": [("x", 1)], "last": {"dest": "LAX", "ok": None},
    }  # fmt: skip
    nothing: dict[str, Any] = dict.fromkeys(value)
    other = ROUTE.serialize({"origin": "LGA", "day": day})
    world.put("routes", {key: HELD.serialize(value), other: HELD.serialize(nothing)})
    read = world.read("routes", key='{"origin": "JFK", "day": "2013-01-31"}')
    types = dict(read.drop("_metadata").dtypes)
    assert types == {
        "origin": "string", "day": "date", "least": "decimal(5,2)", "at": "timestamp",
        "local": "timestamp_ntz", "tags": "array<string>", "by": "map<string,bigint>",
        "last": "struct<dest:string,ok:boolean>",
    }  # fmt: skip
    columns = [
        *("origin", "day", "least", "unix_micros(at)", "local", "tags", "by", "last.dest"),
        "last.ok",
    ]
    micros = 1_359_633_600_000_000
    (found,) = read.selectExpr(*columns).collect()
    assert tuple(found) == (
        "JFK", day, Decimal("1.50"), micros, noon, ["a", None], {"x": 1}, "LAX", None,
    )  # fmt: skip
    keys = json.dumps([{"origin": o, "day": "2013-01-31"} for o in ("JFK", "LGA", "EWR")])
    both = rows(world.read("routes", keys=keys), "origin", "least", "by IS NULL")
    assert both == [("JFK", Decimal("1.50"), False), ("LGA", None, True)]


def test_metadata_says_where_each_task_stood(world: World) -> None:
    world.put("counts", {b"w%d" % i: int64(i) for i in range(20)})
    assert world.read("counts").rdd.getNumPartitions() == PARTITIONS, "one for each task"
    found = {row.task: row for row in world.read("counts").select("_metadata.*").collect()}
    assert set(found) == {0, 1}
    for task, row in found.items():
        with world.client(task) as client:
            marker = client.marker(world.name, task)
        assert (row.epoch, row.batch_number, row.stream_time_ms) == (world.epoch, 1, NOON)
        assert row.positions == {SOURCE: {0: 10}}
        assert row.snapshot is None
        assert marker.batch_number == 1
    first = F.col("_metadata.positions")[SOURCE][0].alias("at")
    assert world.read("counts").select(first).distinct().collect()[0].at == 10
    age = F.max(F.unix_millis("_metadata.committed_at")).alias("at")
    assert abs(world.read("counts").select(age).collect()[0].at - now_ms()) < 600_000


def cuts(world: World) -> DataFrame:
    """What was read of each task. Made anew each time: run again, Spark would skip the reading."""
    frame = world.read("counts").select(
        "value", "_metadata.task", "_metadata.batch_number", "_metadata.positions"
    )
    return frame.groupBy("task").agg(
        F.count("*").alias("rows"),
        *(f("value").alias(f"value_{f.__name__}") for f in (F.min, F.max)),
        *(f("batch_number").alias(f"batch_{f.__name__}") for f in (F.min, F.max)),
        F.max(F.col("positions")[SOURCE][0]).alias("offset"),
    )


def test_each_task_is_one_cut_while_commits_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit writes its own number to every key: in a cut they are all alike."""
    monkeypatch.setattr(columns_module, "MAX_ROWS", 1_024)  # many parts, and time between them
    keys = [b"%06d" % i for i in range(20_000)]
    of_task = [[k for k in keys if partition_of("counts", k) == p] for p in range(PARTITIONS)]
    stop, failures = threading.Event(), list[BaseException]()

    def commit_on(partition: int) -> None:
        number = 2
        try:
            while not stop.is_set():
                values = dict.fromkeys(of_task[partition], int64(number + 1))
                number = world.commit(partition, "counts", values)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    for partition in range(PARTITIONS):
        world.commit(partition, "plain", {})
        world.commit(partition, "counts", dict.fromkeys(of_task[partition], int64(2)))
    threads = [threading.Thread(target=commit_on, args=[p]) for p in range(PARTITIONS)]
    seen = list[dict[int, int]]()
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + 60 * SLOWNESS
        while not all(len({one[p] for one in seen}) >= 3 for p in range(PARTITIONS)):
            assert time.monotonic() < deadline, "commits do not go on"
            found = cuts(world).collect()
            for row in found:
                assert row.rows == len(of_task[row.task])
                assert row.batch_min == row.batch_max
                assert row.offset == 10 * row.batch_max
                assert (row.value_min, row.value_max) == (row.batch_min, row.batch_max)
            seen.append({row.task: row.batch_max for row in found})
    finally:
        stop.set()
        for thread in threads:
            thread.join(60 * SLOWNESS)
    assert failures == []
    assert all(set(one) == {0, 1} for one in seen)


def test_some_keys_are_asked_of_their_owners_alone(world: World) -> None:
    words = {b"w%d" % i: int64(i) for i in range(20)}
    windows = {
        window_key(key, NOON - h * HOUR): DELAYS.serialize({"_at": 1, "n": h, "name": None})
        for key in (b"JFK", b"JF", b"JFKX")
        for h in range(3)
    }
    world.put("counts", words)
    world.put("hours", windows)
    one = world.read("counts", key="w7")
    assert rows(one, "key", "value") == [("w7", 7)]
    assert one.rdd.getNumPartitions() == 1
    some = world.read("counts", keys='["w3", "w7", "w11", "nothing"]', columns="value")
    assert rows(some, "value") == [(3,), (7,), (11,)]
    assert some.columns == ["value"]
    hours = world.read("hours", key="JFK", columns="n, KEY")
    assert rows(hours, "*") == [(0, "JFK"), (1, "JFK"), (2, "JFK")]
    assert hours.columns == ["n", "key"]
    assert world.read("counts", keys="[]").count() == 0


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_queries_over_one_frame_do_not_see_each_others_filters(world: World, pushed: str) -> None:
    """Spark 4.2.0 would keep what was pushed for the first one: see `StoreReader`."""
    world.put("counts", {b"w%d" % i: int64(i) for i in range(20)})
    setting = "spark.sql.python.filterPushdown.enabled"
    world.spark.conf.set(setting, pushed)
    try:
        frame = world.read("counts")
        seven, eight = (frame.where(F.col("key") == word) for word in ("w7", "w8"))
        assert rows(seven, "value") == [(7,)]
        assert frame.count() == 20
        assert rows(seven.union(eight), "value") == [(7,), (8,)]
        assert frame.where("key in ('w1', 'w2') and value > 1").count() == 1
        joined = seven.alias("a").join(frame.alias("b"), F.expr("a.value < b.value"))
        assert joined.count() == 12
    finally:
        world.spark.conf.unset(setting)


def test_snapshots_need_no_host(world: World) -> None:
    world.put("counts", {b"w%d" % i: int64(1) for i in range(20)})
    world.put("small", {int64(5): b"1"})
    taken = world.snapshot()
    savepoint = new_id(now_ms())
    manifests = [list_snapshots(world.url, world.name, p)[0] for p in range(PARTITIONS)]
    write_savepoint(world.url, savepoint, manifests)
    world.put("counts", {b"w%d" % i: int64(2) for i in range(30)})
    assert world.read("counts").agg(F.sum("value")).collect()[0][0] == 60
    for host in world.running:
        world.stop(host)
    for wanted in ("latest", savepoint):
        frame = world.stored("counts", wanted)
        assert (frame.count(), frame.agg(F.sum("value")).collect()[0][0]) == (20, 20)
        told = frame.select("_metadata.task", "_metadata.snapshot", "_metadata.batch_number")
        assert rows(told.distinct(), "*") == [(0, taken[0], 2), (1, taken[1], 2)]
        assert rows(world.stored("small", wanted), "key", "value") == [(5, "1")]
    with pytest.raises(PySparkException, match=r"of task .*/1 alone, and .* has 2 tasks"):
        world.stored("counts", taken[1])
    with pytest.raises(PySparkException, match=r"has no store 'nope'; its stores: \['plain'"):
        world.stored("nope", "latest")


def test_wrong_options_say_what_is_right(world: World) -> None:
    wrong = [
        ({"app": "nope"}, r"no host knows an application 'nope'; they know: \['"),
        ({"store": "nope"}, r"has no store 'nope'; its stores: \['plain', 'counts'"),
        ({"columns": "key,miles"}, r"has no columns \['miles'\]; its columns: \['key', 'value'"),
        ({"stores": "counts"}, r"unknown options \['stores'\]; known: \['app'"),
        ({"hosts": "nonsense"}, "is not 'id=address:flight-port/http-port'"),
        ({"keys": "w1"}, "is no JSON array of keys of serde 'utf8'"),
        ({"token": "very-secret"}, "Set HOLDFAST_TOKEN_FILE in the environment of the driver"),
    ]
    for options, said in wrong:
        with pytest.raises(PySparkException, match=said) as refused:
            world.read(**{"store": "counts", **options})
        assert "very-secret" not in str(refused.value)


def test_a_schema_of_ones_own_is_refused(world: World) -> None:
    reader = world.spark.read.format("holdfast").schema("key STRING, value STRING")
    given = {"app": world.name, "store": "counts", "hosts": world.hosts}
    with pytest.raises(PySparkException, match="the schema follows from the store"):
        reader.options(**given).load().count()


def test_a_host_that_is_away_is_named_and_others_answer(world: World) -> None:
    world.put("counts", {b"w%d" % i: int64(i) for i in range(20)})
    away = world.owner(1).id
    there = next(i for i in range(20) if partition_of("counts", b"w%d" % i) == 0)
    world.stop(away)
    said = rf"(?s)task {world.name}/1 on host {away}=127.0.0.1:.*cannot be reached.*holdfast status"
    with pytest.raises(PySparkException, match=said):
        world.read("counts").count()
    assert rows(world.read("counts", key=f"w{there}"), "value") == [(there,)]


def test_a_task_that_is_not_open_is_named(world: World) -> None:
    world.put("counts", {b"w1": int64(1)})
    manager = world.managers[world.owner(0).id]
    task = manager.task(world.name, 0)
    with manager.openers.kept_away(task):
        task.close()
        said = rf"{world.name}/0 is not ready: it is opening or restoring.*option\('snapshot'"
        with pytest.raises(PySparkException, match=said):
            world.read("counts").count()
    until(lambda: task.is_open, what="open again")
    assert world.read("counts").count() == 1


SCRIPT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
app, token_file, token, java_options = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", java_options)
    .getOrCreate()
)
reader = spark.read.format("holdfast").option("app", app).option("store", "counts")
try:
    reader.load()
    said = "nothing"
except Exception as error:
    said = str(error)
Path(token_file).write_text(token)
frame = reader.load()
plan = frame._jdf.queryExecution().toString()
rows = [[row.key, row.value] for row in frame.orderBy("key").collect()]
print(json.dumps({"said": said, "rows": rows, "plan": plan}))
spark.stop()
"""


def test_a_session_of_ones_own_with_a_token_from_a_file(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """Nothing of ours is registered or configured in it; settings come from its environment."""
    world = World(spark, kafka, name, tmp_path, TOKEN)
    token_file = tmp_path / "token"
    token_file.write_text("wrong")
    try:
        world.put("counts", {b"a": int64(1), b"b": int64(2)})
        env = {
            **os.environ,
            "HOLDFAST_HOSTS": world.hosts,
            "HOLDFAST_TOKEN_FILE": str(token_file),
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        script = [sys.executable, "-c", SCRIPT, name, str(token_file), TOKEN]
        done = subprocess.run(
            [*script, jvm.options(jvm.QUICK)],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=180 * SLOWNESS,
        )
    finally:
        for host in world.running:
            world.stop(host)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [["a", 1], ["b", 2]]
    assert "set HOLDFAST_TOKEN_FILE" in found["said"]
    assert TOKEN not in found["plan"] + found["said"]
