"""What Python functions are to a fingerprint: any edit, and the same in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, TopologyTestDriver
from tests.support.functions import SCHEMA, halved, keeping, pipe, shipped

MORE = 1


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    with shipped(__name__):
        yield


def more(x: int) -> int:
    return x + MORE


def marked() -> Column:
    return F.transform("items", lambda e: F.concat(e, F.lit("!")))


EDITED: dict[str, tuple[Callable[[], Column], Callable[[], Column]]] = {
    "code": (
        lambda: F.udf(lambda x: x + 1, "int")("x"),
        lambda: F.udf(lambda x: x + 2, "int")("x"),
    ),
    "argument": (lambda: halved("x"), lambda: halved(F.col("x") * 2)),
    "type": (lambda: F.udf(more, "int")("x"), lambda: F.udf(more, "bigint")("x")),
    "around": (lambda: halved("x") + 1, lambda: halved("x") + 2),
    "cast": (lambda: halved("x").cast("int"), lambda: halved("x").cast("string")),
    "field": (
        lambda: F.col("s").withField("a", halved("x")),
        lambda: F.col("s").withField("b", halved("x")),
    ),
    "name": (lambda: halved("x"), lambda: halved(x="x")),
    "lambda-within": (
        lambda: halved(F.size(F.transform("items", lambda e: F.concat(e, F.lit("a"))))),
        lambda: halved(F.size(F.transform("items", lambda e: F.concat(e, F.lit("b"))))),
    ),
    "lambdas-within": (
        lambda: F.udf(len, "int")(F.filter(marked(), lambda e: e > "A")),
        lambda: F.udf(len, "int")(F.filter(marked(), lambda e: e > "B")),
    ),
}


def declared(spark: SparkSession, made: Callable[[], Column]) -> Application:
    app = Application("app", spark)
    keeping(made)(app)
    return app


@pytest.mark.parametrize(("one", "other"), EDITED.values(), ids=EDITED.keys())
def test_any_edit_is_another_meaning(
    spark: SparkSession, one: Callable[[], Column], other: Callable[[], Column]
) -> None:
    before, after, again = (declared(spark, made) for made in (one, other, one))
    assert before.fingerprint != after.fingerprint
    assert before.fingerprint == again.fingerprint


def test_how_spark_would_call_it_is_no_part_of_it(spark: SparkSession) -> None:
    """Nor whether there was a session when it was made: all run by Arrow."""
    rows, arrow = (
        declared(spark, lambda by=by: F.udf(more, "int", useArrow=by)("x")).fingerprint  # type: ignore[misc]
        for by in (False, True)
    )
    assert rows == arrow


def test_a_number_that_it_names_is_part_of_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = declared(spark, lambda: F.udf(more, "int")("x")).fingerprint
    monkeypatch.setitem(globals(), "MORE", 2)
    assert declared(spark, lambda: F.udf(more, "int")("x")).fingerprint != before


JOB = """
from state_lib import Application
from tests.integration.spark.test_functions_meaning import declare_all
app = Application("app")
declare_all(app)
print("fingerprint", app.fingerprint)
"""


def declare_all(app: Application) -> None:
    for number, (one, _) in enumerate(EDITED.values()):
        rows = app.stream("t", SCHEMA).withColumn("made", one())
        rows.groupBy("k").count(f"s{number}")
        rows.where(F.to_json(F.struct(one())) != "").groupBy("k").count(f"where{number}")


def test_another_process_says_the_same(spark: SparkSession) -> None:
    app = Application("app", spark)
    declare_all(app)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        capture_output=True, text=True, timeout=180, check=False, cwd=root,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["fingerprint", app.fingerprint]


def test_two_that_look_alike_are_not_taken_for_one_another(spark: SparkSession) -> None:
    """What they hold is no plain value, and no part of the fingerprint."""

    class Held:
        def __init__(self, value: int) -> None:
            self.value = value

    def holding(held: Held) -> Column:
        return F.udf(lambda _: held.value, "int")("x")

    for value in (1, 2):
        with TopologyTestDriver(keeping(partial(holding, Held(value))), spark) as driver:
            pipe(driver, {"k": "a", "x": 1})
            last = driver.getKeyValueStore("s").get("a")["last"]
            assert json.loads(last) == {"made": value}
