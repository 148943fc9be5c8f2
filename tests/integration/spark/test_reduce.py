"""`reduce` and `aggregate` with Python functions, in one process: no broker, no host, no port."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, KGroupedStream, Materialized, TimeWindows, TopologyTestDriver
from state_lib.errors import ConfigurationError, ProcessorFailed
from state_lib.evolution import contradictions

HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR
PLACE = "STRUCT<lat: DOUBLE, lon: DOUBLE>"
SALE = f"shop STRING NOT NULL, amount BIGINT, tags ARRAY<STRING>, at {PLACE}"
Declare = Callable[[Any], Any]


def grouped(app: Application) -> KGroupedStream:
    rows = app.stream("sales", SALE).select("shop", "amount", "tags", "at")
    return rows.groupBy("shop")


def of(declare: Declare) -> Callable[[Application], object]:
    def build(app: Application) -> None:
        declare(grouped(app)).toStream().to("out")

    return build


def sale(shop: str, amount: int | None, *tags: str, at: Any = None) -> dict[str, Any]:
    return {"shop": shop, "amount": amount, "tags": [*tags], "at": at}


def dearest(old: Any, new: Any) -> Any:
    if new.amount is None:
        raise ValueError("a sale of nothing")
    return new if new.amount > old.amount else old


def test_the_dearest_sale_is_kept(spark: SparkSession) -> None:
    build = of(lambda g: g.reduce(dearest, Materialized("dearest")))
    with TopologyTestDriver(build, spark, partitions=2) as driver:
        sales, out = driver.createInputTopic("sales"), driver.createOutputTopic("out")
        place = {"lat": 1.5, "lon": -2.0}
        for one in (sale("a", 5, "x"), sale("b", 1), sale("a", 9, "y", "z", at=place)):
            sales.pipeInput(one, timestamp=T0)
        kept = driver.getKeyValueStore("dearest")
        assert {k: v["amount"] for k, v in kept.all().items()} == {"a": 9, "b": 1}
        dear = sale("a", 9, "y", "z", at=place)
        assert out.readKeyValuesToMap() == {"a": dear, "b": sale("b", 1)}
        sales.pipeInput(sale("a", None), timestamp=T0 + 1)
        sales.pipeInput(sale("a", 11), timestamp=T0 + 2)
        assert kept.get("a")["amount"] == 11
        (letter,) = driver.deadLetters()
        assert (letter.reason, letter.exception) == (
            "raised:dearest", "ValueError: a sale of nothing",
        )  # fmt: skip
        assert driver.droppedRecords() == {"raised:dearest": 1}
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


def test_a_value_of_columns_is_folded_over_rows(spark: SparkSession) -> None:
    def add(key: str, row: Any, old: Any) -> Any:
        assert key == row.shop
        seen = dict(old.by_tag)
        for tag in row.tags:
            seen[tag] = seen.get(tag, 0) + row.amount
        return Row(n=old.n + 1, by_tag=seen)

    schema = "n INT, by_tag MAP<STRING, BIGINT>"
    build = of(lambda g: g.aggregate(lambda: {"n": 0, "by_tag": {}}, add, "tags", schema))
    with TopologyTestDriver(build, spark) as driver:
        sales = driver.createInputTopic("sales")
        for one in (sale("a", 5, "x"), sale("a", 2, "x", "y"), sale("b", 1)):
            sales.pipeInput(one, timestamp=T0)
        assert driver.createOutputTopic("out").readKeyValuesToMap() == {
            "a": {"shop": "a", "n": 2, "by_tag": {"x": 7, "y": 2}},
            "b": {"shop": "b", "n": 1, "by_tag": {}},
        }
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


def test_windows_are_folded_apart_and_late_rows_are_counted(spark: SparkSession) -> None:
    build = of(
        lambda g: g.windowedBy(TimeWindows("1 hour", grace="10 minutes")).aggregate(
            int, lambda _, row, old: old + row.amount, "hourly", "BIGINT"
        )
    )
    with TopologyTestDriver(build, spark, partitions=2) as driver:
        sales, out = driver.createInputTopic("sales"), driver.createOutputTopic("out")
        for amount, at in ((5, 0), (2, HOUR - 1), (1, HOUR)):
            sales.pipeInput(sale("a", amount), timestamp=T0 + at)
        hourly = driver.getWindowStore("hourly")
        assert hourly.all() == {("a", T0): {"value": 7}, ("a", T0 + HOUR): {"value": 1}}
        assert out.readKeyValuesToMap()["a", T0] == {
            "shop": "a", "window_start": T0, "window_end": T0 + HOUR, "value": 7,
        }  # fmt: skip
        driver.advanceStreamTime(T0 + HOUR + HOUR // 2)
        sales.pipeInput(sale("a", 100), timestamp=T0)
        assert hourly.get("a", T0) == {"value": 7}
        assert driver.droppedRecords() == {"late:hourly": 1}
        driver.assertSurvivesRepeats()


def test_a_removed_key_is_told_as_null(spark: SparkSession) -> None:
    build = of(lambda g: g.reduce(lambda _, new: new if new.amount else None, "s"))
    with TopologyTestDriver(build, spark) as driver:
        sales, out = driver.createInputTopic("sales"), driver.createOutputTopic("out")
        for amount in (1, 0):
            sales.pipeInput(sale("a", amount), timestamp=T0)
        assert driver.getKeyValueStore("s").all() == {}
        assert out.readKeyValuesToList() == [("a", None)]
        driver.assertSurvivesRepeats()


def test_what_python_cannot_be_given_is_a_dead_letter(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        rows = app.stream("sales", SALE).withColumn("day", F.expr("make_date(amount, 1, 1)"))
        rows = rows.withColumn("text", F.expr("if(shop = 'b', cast(x'ff' AS STRING), shop)"))
        rows.select("shop", "day", "text").groupBy("shop").reduce(lambda _, new: new, "s")

    with TopologyTestDriver(build, spark) as driver:
        sales = driver.createInputTopic("sales")
        for one in (sale("a", 2026), sale("a", 12345), sale("b", 2026)):
            sales.pipeInput(one, timestamp=T0)
        assert driver.droppedRecords() == {"not-python:s.day": 1, "not-python:s.text": 1}
        assert [*driver.getKeyValueStore("s").all()] == ["a"]


def test_it_stops_where_that_is_asked_for(spark: SparkSession) -> None:
    build = of(lambda g: g.reduce(dearest, "s", onError="stop"))
    with TopologyTestDriver(build, spark) as driver:
        sales = driver.createInputTopic("sales")
        for amount in (1, None):
            sales.pipeInput(sale("a", amount), timestamp=T0)
        with pytest.raises(ProcessorFailed, match=r"store 's' raised.*key 'a'[\s\S]*of nothing"):
            driver.getKeyValueStore("s").all()


def test_it_stands_beside_other_verbs(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        shops = grouped(app)
        shops.count("n")
        shops.reduce(dearest, "s")
        shops.aggregate(list, lambda _, row, old: [*old, row.amount], "all", "ARRAY<BIGINT>")

    with TopologyTestDriver(build, spark, partitions=2) as driver:
        sales = driver.createInputTopic("sales")
        for at, amount in enumerate((3, 1, 2)):
            sales.pipeInput(sale("a", amount), timestamp=T0 + at)
        assert driver.getKeyValueStore("n").all() == {"a": 3}
        assert driver.getKeyValueStore("s").get("a")["amount"] == 3
        view = driver.getKeyValueStore("all").get("a")
        assert view == {"value": "[3,1,2]"}
        driver.assertSurvivesRepeats()


def locked(lock: Any, old: Any, new: Any) -> Any:
    with lock:
        return old or new


REFUSED: dict[str, tuple[Declare, str]] = {
    "arguments": (lambda g: g.reduce(lambda old: old, "s"), r"reduce into 's' calls <lambda>"),
    "no-function": (lambda g: g.reduce("sum(amount)", "s"), "takes a function"),
    "lock": (lambda g: g.reduce(partial(locked, threading.Lock()), "s"), "cannot be pickled"),
    "ddl": (lambda g: g.aggregate(int, lambda *_: 0, "s", "BIGINT NOT"), "no DDL"),
    "schema": (lambda g: g.aggregate(int, lambda *_: 0, "s", 5), "schema is 5"),
    "type": (lambda g: g.aggregate(int, lambda *_: 0, "s", "INTERVAL DAY"), "cannot be kept"),
    "first": (
        lambda g: g.aggregate(str, lambda *_: 0, "s", "BIGINT"),
        "gives no value",
    ),
    "key": (
        lambda g: g.aggregate(int, lambda *_: 0, "s", "shop BIGINT"),
        "has fields \\['shop'\\]",
    ),
    "hidden": (lambda g: g.aggregate(int, lambda *_: 0, "s", "_n BIGINT"), "begin with '_'"),
    "onError": (lambda g: g.reduce(dearest, "s", onError="ignore"), "'ignore'"),
    "retention": (lambda g: g.reduce(dearest, Materialized("s", "1 day")), "retention is for"),
}


@pytest.mark.parametrize(("declare", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_at_its_line(
    spark: SparkSession, declare: Declare, words: str
) -> None:
    app = Application("app", spark)
    with pytest.raises(ConfigurationError, match=words):
        declare(grouped(app))
    assert not app.processes


def test_a_row_has_its_key_once(spark: SparkSession) -> None:
    """Unless it is grouped by something else of that name."""
    app = Application("app", spark)
    rows = app.stream("sales", SALE).select("shop", "amount")
    rows.groupBy("shop").reduce(dearest, "one")
    rows.groupBy(F.upper("shop").alias("key")).reduce(dearest, "two")
    folds = [verb.processor.fold for verb in app.processes]
    assert [fold.key_name for fold in folds if fold] == ["", "key"]
    with pytest.raises(ConfigurationError, match="has fields \\['shop'\\]"):
        rows.groupBy(F.upper("shop").alias("shop")).reduce(dearest, "three")


def test_time_alone_changes_nothing(spark: SparkSession) -> None:
    app = Application("app", spark)
    grouped(app).reduce(dearest, "s")
    assert not app.has_timers
    assert app.depends_on_cut, "recorded batches are not repeated together"


def test_a_key_of_several_columns_is_a_row(spark: SparkSession) -> None:
    """Outputs begin with those of its columns that the value has not."""

    def add(key: Any, row: Any, old: int) -> Any:
        assert key == (row.shop, row.amount % 2 == 1)
        return old + row.amount + (10 if key.odd else 0)

    def build(app: Application) -> None:
        odd = (F.col("amount") % 2 == 1).alias("odd")
        pairs = app.stream("sales", SALE).select("shop", "amount").groupBy("shop", odd)
        pairs.reduce(dearest, "dearest").toStream().to("out")
        pairs.aggregate(int, add, "sums", "BIGINT").toStream().to("sums-out")

    with TopologyTestDriver(build, spark, partitions=2) as driver:
        for amount in (3, 4, 5, None):
            driver.createInputTopic("sales").pipeInput(sale("a", amount), timestamp=T0)
        kept = {("a", True): 5, ("a", False): 4}
        dear = driver.getKeyValueStore("dearest").all()
        assert {key: one["amount"] for key, one in dear.items()} == kept
        assert driver.createOutputTopic("out").readKeyValuesToMap() == {
            (shop, odd): {"odd": odd, "shop": shop, "amount": amount}
            for (shop, odd), amount in kept.items()
        }
        assert driver.createOutputTopic("sums-out").readKeyValuesToMap() == {
            ("a", True): {"shop": "a", "odd": True, "value": 28},
            ("a", False): {"shop": "a", "odd": False, "value": 4},
        }
        reasons = [one.reason for one in driver.deadLetters()]
        assert sorted(reasons) == ["null-key:dearest.odd", "null-key:sums.odd"]
        driver.assertSurvivesRepeats()


def test_windows_of_several_columns_are_folded_apart(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        odd = (F.col("amount") % 2 == 1).alias("odd")
        rows = app.stream("sales", SALE).select("shop", "amount")
        pairs = rows.groupBy("shop", odd).windowedBy(TimeWindows("1 hour"))
        pairs.reduce(dearest, "hourly").toStream().to("out")
        rows.groupBy(F.struct("shop", odd).alias("by")).reduce(dearest, "s").toStream().to("by-out")

    with TopologyTestDriver(build, spark, partitions=2) as driver:
        sales = driver.createInputTopic("sales")
        for amount, at in ((3, 0), (5, 1), (4, 2), (7, HOUR)):
            sales.pipeInput(sale("a", amount), timestamp=T0 + at)
        kept = {("a", True, T0): 5, ("a", False, T0): 4, ("a", True, T0 + HOUR): 7}
        hourly = driver.getWindowStore("hourly").all()
        assert {(*key, at): one["amount"] for (key, at), one in hourly.items()} == kept
        assert driver.createOutputTopic("out").readKeyValuesToMap() == {
            ((shop, odd), at): {
                "odd": odd, "window_start": at, "window_end": at + HOUR,
                "shop": shop, "amount": amount,
            }
            for (shop, odd, at), amount in kept.items()
        }  # fmt: skip
        assert driver.createOutputTopic("by-out").readKeyValuesToMap() == {
            ("a", True): {"by": {"shop": "a", "odd": True}, "shop": "a", "amount": 7},
            ("a", False): {"by": {"shop": "a", "odd": False}, "shop": "a", "amount": 4},
        }
        driver.assertSurvivesRepeats()


KEYS: dict[str, tuple[str, str]] = {
    "date": ("make_date(amount, 1, 31)", "date 2026-01-31"),
    "timestamp": ("make_timestamp(amount, 1, 31, 12, 0, 0)", "datetime 2026-01-31 12:00:00+00:00"),
    "decimal": ("cast(amount / 100 AS DECIMAL(6, 2))", "Decimal 20.26"),
}


@pytest.mark.parametrize(("key", "wanted"), KEYS.values(), ids=KEYS.keys())
def test_a_key_is_given_as_what_it_is(spark: SparkSession, key: str, wanted: str) -> None:
    def build(app: Application) -> None:
        rows = app.stream("sales", SALE).select("shop", "amount")
        rows.groupBy(F.expr(key).alias("by")).aggregate(
            str, lambda by, *_: f"{type(by).__name__} {by}", "s", "STRING"
        )

    with TopologyTestDriver(build, spark) as driver:
        driver.createInputTopic("sales").pipeInput(sale("a", 2026), timestamp=T0)
        assert [*driver.getKeyValueStore("s").all().values()] == [{"value": wanted}]
        driver.assertSurvivesRepeats()


def test_a_late_row_is_late_whatever_is_in_it(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        text = F.expr("if(shop = 'b', cast(x'ff' AS STRING), shop)")
        rows = app.stream("sales", SALE).withColumn("text", text).select("shop", "text")
        rows.groupBy("shop").windowedBy(TimeWindows("1 hour")).reduce(lambda _, new: new, "s")

    with TopologyTestDriver(build, spark) as driver:
        sales = driver.createInputTopic("sales")
        sales.pipeInput(sale("a", 1), timestamp=T0)
        driver.advanceStreamTime(T0 + 2 * HOUR)
        sales.pipeInput(sale("b", 1), timestamp=T0)
        assert driver.droppedRecords() == {"late:s": 1}


def test_who_has_a_row_is_told_by_all_but_the_fold(spark: SparkSession) -> None:
    """A batch that one fold began another may finish; a function in its key or steps may not."""

    def declared(by: Callable[[str], str], reducer: Any) -> Application:
        app = Application("app", spark)
        rows = app.stream("sales", SALE).select("shop", "amount")
        rows.where(F.length(F.udf(by)("shop")) > 0).groupBy(F.udf(by)("shop").alias("by")).reduce(
            reducer, "s"
        )
        return app

    one = declared(lambda shop: shop.upper(), dearest)
    other = declared(lambda shop: shop.upper(), lambda old, _: old)
    assert other.routing == one.routing
    assert other.fingerprint != one.fingerprint
    assert declared(lambda shop: shop.lower(), dearest).routing != one.routing


RATE = 2


def helped(amount: int) -> int:
    return amount * RATE


def test_other_code_is_told_from_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fingerprint(declare: Declare) -> str:
        app = Application("app", spark)
        declare(grouped(app))
        return app.fingerprint

    def adding(more: int) -> Declare:
        return lambda g: g.aggregate(int, lambda _, r, old: old + r.amount + more, "s", "BIGINT")

    def helping(g: KGroupedStream) -> Any:
        return g.aggregate(
            int, lambda _, r, old: old + sum(helped(x) for x in [r.amount]), "s", "BIGINT"
        )

    one = fingerprint(adding(1))
    assert fingerprint(adding(1)) == one
    assert fingerprint(adding(2)) != one
    assert fingerprint(lambda g: g.aggregate(int, max, "s", "BIGINT")) != fingerprint(
        lambda g: g.aggregate(int, min, "s", "BIGINT")
    )
    assert fingerprint(lambda g: g.reduce(dearest, "s")) != fingerprint(
        lambda g: g.reduce(dearest, "s", onError="stop")
    )
    before = fingerprint(helping)
    monkeypatch.setitem(globals(), "RATE", 3)
    assert fingerprint(helping) != before, "a number that is named within a generator"


def test_a_value_that_changed_its_type_is_refused(spark: SparkSession) -> None:
    def topology(schema: str) -> Any:
        app = Application("app", spark)
        grouped(app).aggregate(lambda: None, lambda *_: None, "s", schema)
        return app.topology

    assert contradictions(topology("n DECIMAL(10,2)"), topology("n DECIMAL(10,2)")) == []
    assert contradictions(topology("n DECIMAL(10,2)"), topology("n DECIMAL(12,2)"))


def test_the_topology_says_what_it_keeps(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Application("app", spark)
    of(lambda g: g.reduce(dearest, "s"))(app)
    app.describe()
    said = capsys.readouterr().out
    assert "KSTREAM-AGGREGATE" in said
    assert "KTABLE-TOSTREAM" in said
    assert "stores: [s]" in said
