"""What a job declares, as plain data: its fingerprint, its topology, what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pkgutil import iter_modules
from typing import Any

import pytest

import state_lib.driver
from state_lib.application import Application
from state_lib.declaration import (
    Aggregation,
    Declaration,
    Expression,
    Field,
    Item,
    Kept,
    Select,
    Source,
    Where,
)
from state_lib.errors import ConfigurationError, InvalidName, NoSuchVerb
from state_lib.specs import BackendName, StoreSpec
from state_lib.topology_text import described

HOUR = 3_600_000


def verb(  # noqa: PLR0913 - each is one thing that may be edited
    *,
    source: Source = Source("lines", "text"),  # noqa: B008 - frozen
    item: str = "upper(k)",
    where: str = "x > 0",
    key: str = "k",
    key_name: str = "k",
    expr: str = "x",
    tree: str = "",
    size: int = HOUR,
    grace: int = 0,
    store: str = "sums",
    backend: BackendName = "rocksdb",
    to: str = "out",
) -> Aggregation:
    spec = StoreSpec(
        store,
        "window",
        backend,
        "utf8",
        {"struct": [["total", "int64"]]},
        window_size_ms=size,
        grace_ms=grace,
        retention_ms=400 * 24 * HOUR,
    )
    steps = (Select((Item("k", Expression(item, tree)),)), Where(Expression(where)))
    fields = {"total": Field("sum", "int64")}
    kept = Kept(spec, "utf8", fields, key_name, (to,))
    return Aggregation(source, steps, Expression(key), {"total": Expression(expr)}, kept)


def job(*, partitions: int = 4, **edited: Any) -> str:
    return Declaration("app", partitions, (verb(**edited),)).fingerprint


def test_it_is_the_same_for_the_same() -> None:
    assert job() == job()
    assert job(backend="memory") == job(), "where entries lie decides nothing"


@pytest.mark.parametrize(
    "edited",
    [
        lambda: job(partitions=5),
        lambda: job(source=Source("others", "text")),
        lambda: job(source=Source("lines", "json", "x BIGINT")),
        lambda: job(source=Source("lines", "text", timestamp="x")),
        lambda: job(source=Source("lines", "text", reader="{}")),
        lambda: job(item="lower(k)"),
        lambda: job(tree="other options"),
        lambda: job(where="x >= 0"),
        lambda: job(key="upper(k)"),
        lambda: job(key_name="K"),
        lambda: job(expr="x + 1"),
        lambda: job(size=2 * HOUR),
        lambda: job(grace=HOUR),
        lambda: job(store="totals"),
        lambda: job(to="elsewhere"),
    ],
)
def test_it_changes_with_what_matters(edited: Callable[[], str]) -> None:
    assert edited() != job()


def test_an_application_without_a_store_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"groupBy\(\.\.\.\) and count"):
        Declaration("app").fingerprint  # noqa: B018
    with pytest.raises(InvalidName):
        Declaration("a/b")


@pytest.mark.parametrize("name", ["readStream", "table", "globalTable", "kstream", "table_stream"])
def test_what_builders_and_sessions_have_is_refused_with_what_there_is(name: str) -> None:
    app = Application.__new__(Application)  # no session is needed
    said = rf"no verb '{name}'; it has \['describe', 'run', 'start', 'stream'\].*stream\('topic'"
    with pytest.raises(NoSuchVerb, match=said):
        getattr(app, name)
    assert not hasattr(app, name)
    assert not hasattr(app, "_nothing")


def test_an_expression_travels_without_the_jvms_column() -> None:
    one = Expression("x", column=object())
    again: Expression = pickle.loads(pickle.dumps(one))  # noqa: S301 - ours
    assert (again, again.column) == (one, None)


def test_it_is_described_as_kafka_streams_describes_topologies() -> None:
    of_another = verb(source=Source("words", "text"), store="counts", to="last")
    app = Declaration("app", 4, (verb(), of_another, verb(store="more", to="others")))
    assert (
        described(app)
        == """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-SELECT-0000000001
    Processor: KSTREAM-SELECT-0000000001 (stores: [])
      --> KSTREAM-FILTER-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-FILTER-0000000002 (stores: [])
      --> KSTREAM-AGGREGATE-0000000003, KSTREAM-AGGREGATE-0000000006
      <-- KSTREAM-SELECT-0000000001
    Processor: KSTREAM-AGGREGATE-0000000003 (stores: [sums])
      --> KTABLE-TOSTREAM-0000000004
      <-- KSTREAM-FILTER-0000000002
    Processor: KTABLE-TOSTREAM-0000000004 (stores: [])
      --> KSTREAM-SINK-0000000005
      <-- KSTREAM-AGGREGATE-0000000003
    Sink: KSTREAM-SINK-0000000005 (topic: out)
      <-- KTABLE-TOSTREAM-0000000004
    Processor: KSTREAM-AGGREGATE-0000000006 (stores: [more])
      --> KTABLE-TOSTREAM-0000000007
      <-- KSTREAM-FILTER-0000000002
    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])
      --> KSTREAM-SINK-0000000008
      <-- KSTREAM-AGGREGATE-0000000006
    Sink: KSTREAM-SINK-0000000008 (topic: others)
      <-- KTABLE-TOSTREAM-0000000007

   Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000009 (topics: [words])
      --> KSTREAM-SELECT-0000000010
    Processor: KSTREAM-SELECT-0000000010 (stores: [])
      --> KSTREAM-FILTER-0000000011
      <-- KSTREAM-SOURCE-0000000009
    Processor: KSTREAM-FILTER-0000000011 (stores: [])
      --> KSTREAM-AGGREGATE-0000000012
      <-- KSTREAM-SELECT-0000000010
    Processor: KSTREAM-AGGREGATE-0000000012 (stores: [counts])
      --> KTABLE-TOSTREAM-0000000013
      <-- KSTREAM-FILTER-0000000011
    Processor: KTABLE-TOSTREAM-0000000013 (stores: [])
      --> KSTREAM-SINK-0000000014
      <-- KSTREAM-AGGREGATE-0000000012
    Sink: KSTREAM-SINK-0000000014 (topic: last)
      <-- KTABLE-TOSTREAM-0000000013

"""
    )


def test_these_are_the_names_that_users_import() -> None:
    assert state_lib.__all__ == [
        "Application",
        "ConfigurationError",
        "HoldfastError",
        "KGroupedStream",
        "KStream",
        "KTable",
        "Materialized",
        "TimeWindows",
        "TopologyTestDriver",
        "agg",
    ]


@pytest.mark.parametrize(
    "modules",
    [
        ["state_lib.companions"],
        ["state_lib.spark.training"],
        ["state_lib.spark.opened"],
        [f"state_lib.driver.{one.name}" for one in iter_modules(state_lib.driver.__path__)],
    ],
    ids=["hosts-and-dags", "loads-topics", "starts-the-jvm-first", "driver"],
)
def test_these_import_no_pyspark(modules: list[str]) -> None:
    code = f"import sys, state_lib, {', '.join(modules)}; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
