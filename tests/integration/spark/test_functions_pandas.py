"""Functions of several rows within expressions: those on which one fails are dead letters alone."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas import functions as P  # noqa: N812
from pyspark.sql.pandas.functions import PandasUDFType

from state_lib import Application, KStream, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError
from tests.support.functions import (
    SCHEMA,
    Declare,
    exceptions,
    halved,
    keeping,
    of,
    pipe,
    shipped,
)

of_pandas: Any = P.pandas_udf
of_arrow: Any = P.arrow_udf


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    with shipped(__name__):
        yield


def _judge(odd: int | None) -> None:
    if odd is not None:
        raise ValueError(f"{odd} is odd")


def half_series(x: pd.Series) -> pd.Series:
    _judge(next(iter(x[x % 2 == 1]), None))
    return x // 2


def half_array(x: pa.Array) -> pa.Array:
    _judge(next((one for one in x.to_pylist() if one is not None and one % 2), None))
    return pc.divide(x, 2)


def half_each_series(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for x in batches:
        yield half_series(x)


def half_each_array(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    for x in batches:
        yield half_array(x)


KINDS: dict[str, Any] = {
    "pandas": of_pandas(half_series, T.LongType()),
    "arrow": of_arrow(half_array, T.LongType()),
    "pandas-iter": of_pandas(half_each_series, T.LongType()),
    "arrow-iter": of_arrow(half_each_array, T.LongType()),
}
every_kind = pytest.mark.parametrize("halves", KINDS.values(), ids=KINDS.keys())


@every_kind
def test_a_row_on_which_one_fails_is_a_dead_letter(spark: SparkSession, halves: Any) -> None:
    def declare(rows: KStream) -> Any:
        return rows.withColumn("y", halves("x")).groupBy("k").agg("s", n=agg.sum("y"))

    with TopologyTestDriver(of(declare), spark, partitions=2) as driver:
        pipe(driver, {"k": "a", "x": 2}, {"k": "a", "x": 3}, {"k": "b", "x": 8}, b"no JSON")
        pipe(driver, *({"k": "c", "x": x} for x in range(20)))
        kept = {k: v["n"] for k, v in driver.getKeyValueStore("s").all().items()}
        assert kept == {"a": 1, "b": 4, "c": sum(range(10))}
        assert driver.droppedRecords() == {"failed:y": 11, "undecodable": 1}
        said = [exception for _, why, exception in exceptions(driver) if why == "failed:y"]
        assert sorted(map(str, said)) == sorted(
            f"ValueError: {x} is odd" for x in (3, *range(1, 20, 2))
        )
        driver.assertSurvivesRepeats()
        driver.assertSameHoweverCut()


PLACES: dict[str, tuple[Declare, str]] = {
    "where": (
        lambda rows: rows.where(KINDS["pandas"]("x") > 0).groupBy("k").agg("s", n=agg.sum("x / 2")),
        "failed:where ",
    ),
    "agg": (
        lambda rows: rows.groupBy("k").agg("s", n=agg.sum(KINDS["arrow"]("x"))),
        "failed:s.n",
    ),
    "named": (
        lambda rows: (
            rows.withColumn("y", KINDS["pandas"](x=F.col("x")))
            .groupBy("k")
            .agg("s", n=agg.sum("y"))
        ),
        "failed:y",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("declare", "reason"), PLACES.values(), ids=PLACES.keys())
def test_wherever_it_stands(spark: SparkSession, declare: Declare, reason: str) -> None:
    with TopologyTestDriver(of(declare), spark) as driver:
        pipe(driver, {"k": "a", "x": 2}, {"k": "a", "x": 3}, {"k": "b", "x": 8})
        kept = {k: int(v["n"]) for k, v in driver.getKeyValueStore("s").all().items()}
        assert kept == {"a": 1, "b": 4}
        ((_, why, said),) = exceptions(driver)
        assert why.startswith(reason)
        assert said == "ValueError: 3 is odd"


NESTED: dict[str, Callable[[], Column]] = {
    "row-of-pandas": lambda: halved(KINDS["pandas"]("x")),
    "pandas-of-row": lambda: KINDS["pandas"](halved("x")),
    "arrow-of-pandas-of-row": lambda: KINDS["arrow"](KINDS["pandas"](halved("x") * 2)),
    "iterator-of-arrow": lambda: KINDS["pandas-iter"](KINDS["arrow"]("x")),
    "row-beside": lambda: halved("x") - KINDS["arrow"]("x") + KINDS["pandas"](KINDS["pandas"]("x")),
}


@pytest.mark.parametrize("made", NESTED.values(), ids=NESTED.keys())
def test_calls_within_others(spark: SparkSession, made: Callable[[], Column]) -> None:
    with TopologyTestDriver(keeping(made), spark) as driver:
        pipe(driver, *({"k": f"{x}", "x": x} for x in (3, 4, 6, 8)))
        kept = driver.getKeyValueStore("s").all()
        said = {k: json.loads(one["last"]) for k, one in kept.items()}
        assert said == {"4": {"made": 1}, "8": {"made": 2}}
        assert exceptions(driver) == [
            (0, "failed:made", "ValueError: 3 is odd"),
            (2, "failed:made", "ValueError: 3 is odd"),
        ]
        driver.assertSurvivesRepeats()


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
RECORD = {"k": "a", "x": 2**60 + 1, "s": {"a": 1, "at": NOON.isoformat()}, "items": ["b", None]}
PAIR = "a INT, at TIMESTAMP"
GIVEN: dict[str, tuple[Callable[[], Column], Any]] = {
    "large": (lambda: of_pandas(lambda x: x + 1, "bigint")("x"), 2**60 + 2),
    "text": (lambda: of_pandas(lambda k: k.str.upper(), "string")("k"), "A"),
    "struct-is-a-frame": (
        lambda: of_pandas(lambda s: s.assign(a=s["a"] + 1), PAIR)("s"),
        {"a": 2, "at": "2026-01-31T12:00:00.000Z"},
    ),
    "struct-in-arrow": (
        lambda: of_arrow(lambda s: s, PAIR)("s"), {"a": 1, "at": "2026-01-31T12:00:00.000Z"},
    ),
    "times-in-utc": (
        lambda: of_pandas(lambda at: at.dt.hour.astype(str) + f" {at.dt.tz}", "string")("s.at"),
        "12 None",
    ),
    "times-in-arrow": (
        lambda: of_arrow(lambda at: pa.array([str(at.type)] * len(at)), "string")("s.at"),
        "timestamp[us, tz=UTC]",
    ),
    "time": (
        lambda: of_pandas(lambda at: at + pd.Timedelta("1h"), "timestamp")("s.at"),
        "2026-01-31T13:00:00.000Z",
    ),
    "items": (lambda: of_pandas(lambda items: items.map(len), "int")("items"), 2),
    "array": (
        lambda: of_arrow(lambda items: items, "array<string>")("items"), ["b", None],
    ),
    "map": (
        lambda: of_pandas(lambda k: k.map(lambda one: {one: 1}), "map<string,int>")("k"), {"a": 1},
    ),
    "null": (lambda: of_pandas(lambda k: k.map(lambda _: None), "int")("k"), None),
    "several": (lambda: of_pandas(lambda x, k: k + x.astype(str), "string")(F.lit(7), "k"), "a7"),
    "of-other-type": (lambda: of_pandas(lambda k: k, "bigint")("k"), KeyError),
    "of-other-length": (lambda: of_arrow(lambda _: pa.nulls(3), "bigint")("k"), KeyError),
}  # fmt: skip


@pytest.mark.parametrize(("made", "wanted"), GIVEN.values(), ids=GIVEN.keys())
def test_what_it_is_given_and_gives(
    spark: SparkSession, made: Callable[[], Column], wanted: Any
) -> None:
    with TopologyTestDriver(keeping(made), spark) as driver:
        pipe(driver, RECORD)
        kept = {k: json.loads(v["last"]) for k, v in driver.getKeyValueStore("s").all().items()}
        if wanted is KeyError:
            assert kept == {}
            assert driver.droppedRecords() == {"failed:made": 1}
        else:
            assert kept == {"a": {} if wanted is None else {"made": wanted}}


def test_one_that_looks_at_other_rows_is_seen_by_another_cut(spark: SparkSession) -> None:
    """It must not; nobody but its author can know."""
    most = of_pandas(lambda x: x * 0 + int(x.max()), "bigint")
    with TopologyTestDriver(keeping(lambda: most("x")), spark) as driver:
        pipe(driver, *({"k": f"{x}", "x": x} for x in range(20)))
        with pytest.raises(AssertionError):
            driver.assertSameHoweverCut()


REFUSED: dict[str, tuple[Declare, str]] = {
    "aggregate": (
        lambda rows: rows.withColumn("y", of_pandas(mean_of, "double")("x")),
        "looks at several rows",
    ),
    "aggregate-of-arrow": (
        lambda rows: rows.withColumn("y", of_arrow(sum_of, "bigint")("x")),
        "looks at several rows",
    ),
    "grouped": (
        lambda rows: rows.withColumn(
            "y", of_pandas(lambda rows: rows, "x BIGINT", PandasUDFType.GROUPED_MAP)("x")
        ),
        "a function of groups of rows|cannot be",
    ),
    "of-nothing": (
        lambda rows: rows.withColumn("y", of_pandas(lambda *xs: xs[0], "bigint")()),
        "is called on no column",
    ),
    "interval": (
        lambda rows: rows.withColumn("y", of_arrow(lambda x: x, "interval day")("x")),
        "gives interval day",
    ),
    "random": (
        lambda rows: rows.withColumn(
            "y", of_pandas(half_series, "bigint").asNondeterministic()("x")
        ),
        "another value each time",
    ),
}


def mean_of(x: pd.Series) -> float:
    return float(x.mean())


def sum_of(x: pa.Array) -> int:
    return int(pc.sum(x).as_py())


@pytest.mark.parametrize(("declare", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_at_its_line(
    spark: SparkSession, declare: Declare, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        declare(Application("app", spark).stream("t", SCHEMA))


def test_another_kind_is_another_job(spark: SparkSession) -> None:
    """The same code, given otherwise."""

    def fingerprint(made: Any) -> str:
        app = Application("app", spark)
        keeping(lambda: made("x"))(app)
        return app.fingerprint

    same: Any = lambda x: x  # noqa: E731 - PySpark would read the types of another
    kinds = [F.udf(same, "bigint"), of_pandas(same, "bigint"), of_arrow(same, "bigint")]
    assert len({*map(fingerprint, kinds)}) == len(kinds)
