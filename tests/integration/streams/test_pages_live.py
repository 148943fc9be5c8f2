"""Examples of the pages that read stores which are there: each is run as it stands."""

from __future__ import annotations

import ast
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from state_lib.client.query import QueryClient
from state_lib.host.http import HttpServer
from state_lib.kafka import Kafka
from state_lib.keys import partition_for, window_key
from state_lib.serdes import Struct, serde_from
from state_lib.snapshots.listing import list_snapshots
from state_lib.snapshots.savepoints import write_savepoint
from state_lib.specs import StoreSpec
from tests.support.apps import HOUR, NOON
from tests.support.documents import written
from tests.support.read_by_spark import PARTITIONS, World, int64

AIRCRAFT = Struct(flights="int64", miles="int64")
ROUTE = Struct(origin="utf8", dest="utf8")
STORES = (
    StoreSpec(
        "aircraft",
        kind="timestamped-key-value",
        key_serde="utf8",
        value_serde=AIRCRAFT.describe(),
    ),
    StoreSpec(
        "departures_by_hour",
        kind="window",
        key_serde="utf8",
        value_serde="int64",
        window_size_ms=HOUR,
        retention_ms=4 * HOUR,
    ),
    StoreSpec("routes", key_serde=ROUTE.describe(), value_serde="int64"),
    StoreSpec("by_day", key_serde="date", value_serde="int64"),
)
SAVEPOINT = "20260131T120000000Z-1a2b3c4d"
"""Of the page about Spark."""


@pytest.fixture
def world(
    spark: SparkSession,
    kafka: Kafka,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """What the pages ask for is in the stores; this process knows where the hosts are."""
    made = World(spark, kafka, name, tmp_path, stores=STORES)
    servers = [HttpServer(made.managers[at.id], at, None) for at in made.addresses]
    for server in servers:
        server.start()
    monkeypatch.setenv("HOLDFAST_HOSTS", made.hosts)
    aircraft = {"N725MQ": (7, 2_000_000), "N14228": (1, 5)}
    made.put(
        "aircraft",
        {
            tail.encode(): AIRCRAFT.serialize({"flights": flights, "miles": miles})
            for tail, (flights, miles) in aircraft.items()
        },
    )
    routes = [{"origin": "JFK", "dest": "LAX"}, {"origin": "JFK", "dest": "SFO"}]
    routes += [{"origin": "LGA", "dest": "LAX"}]
    made.put("routes", {ROUTE.serialize(one): int64(n) for n, one in enumerate(routes)})
    made.put("by_day", {serde_from("date").serialize(dt.date(2026, 1, 1)): int64(5)})
    hour = {window_key(b"JFK", NOON): int64(3)}
    for p in range(PARTITIONS):  # a savepoint is of one commit of all tasks
        mine = hour if p == partition_for(b"JFK", PARTITIONS) else {}
        made.commit(p, "departures_by_hour", mine)
    yield made
    for server in servers:
        server.stop()
    for host in made.running:
        made.stop(host)


def ran(path: str, number: int, world: World, **given: Any) -> tuple[list[Any], dict[str, Any]]:
    """A block of a page, with the application of this test and where it is.

    Args:
        path: of the page.
        number: of the block, among those in Python.
        world: whose application is asked.
        given: names that the page leaves out.

    Returns:
        What its expressions at the left margin are, and the names that it leaves.
    """
    blocks = [block for block in written()[path].blocks if block.language == "python"]
    text = blocks[number].text.replace('"flights"', f'"{world.name}"')
    places = {"hosts": world.hosts, "snapshots_url": world.url}  # the JVM has other variables
    options = "".join(f'.option("{key}", "{at}")' for key, at in places.items())
    text = text.replace('format("holdfast")', f'format("holdfast"){options}')
    found: list[Any] = []
    there: dict[str, Any] = {"__name__": "page", **given}
    for node in ast.parse(text, path).body:
        if isinstance(node, ast.Expr):
            code = compile(ast.Expression(node.value), path, "eval", dont_inherit=True)
            found.append(eval(code, there))  # noqa: S307 - it is ours
        else:
            code = compile(ast.Module([node], []), path, "exec", dont_inherit=True)
            exec(code, there)  # noqa: S102 - as above
    return found, there


def test_a_query_from_python(world: World) -> None:
    _, there = ran("docs/how-to/queries.md", 0, world, token=None)
    assert there["window"]["value"] == 3


def test_keys_of_several_columns_and_of_dates(world: World) -> None:
    with QueryClient(world.addresses) as client:
        page = "docs/how-to/keys-and-values.md"
        found, _ = ran(page, 1, world, client=client, spark=world.spark)
        one, some, day, reader = found
        assert one["value"] == 0
        assert sorted(row["value"] for row in some) == [0, 1]
        assert day["value"] == 5
    frame = reader.option("app", world.name).option("store", "routes").load()
    assert [(row.dest, row.value) for row in frame.collect()] == [("LAX", 0)]


def test_a_store_is_joined(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    planes = [("N725MQ", "BOEING"), ("N14228", "AIRBUS")]
    frame = world.spark.createDataFrame(planes, "tailnum STRING, maker STRING")
    ran("docs/how-to/read-with-spark.md", 0, world, spark=world.spark, planes=frame)
    shown = capsys.readouterr().out
    assert ("BOEING" in shown, "AIRBUS" in shown) == (True, False), shown


def test_snapshots_are_read(world: World) -> None:
    world.snapshot()
    manifests = [list_snapshots(world.url, world.name, p)[0] for p in range(PARTITIONS)]
    write_savepoint(world.url, SAVEPOINT, manifests)
    found, _ = ran("docs/how-to/read-with-spark.md", 1, world, spark=world.spark)
    assert [frame.count() for frame in found] == [2, 2]
