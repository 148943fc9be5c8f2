"""Examples of the pages that declare topologies: each is run as it stands."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from state_lib import Application, TopologyTestDriver, agg
from state_lib.stack.broker import LocalBroker
from tests.support.documents import written
from tests.support.registry import StandIn, record
from tests.support.small_http import serving

HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR
MOMENT = dt.datetime.fromtimestamp(T0 / 1000, dt.UTC)
AGGREGATES = "docs/how-to/aggregates-and-dead-letters.md"
Given = Callable[[Application], dict[str, Any]]
"""Names that a page leaves out, or that it makes."""


def page(path: str, number: int, given: Given, *, app: str = "") -> Given:
    """Declares what a block does.

    Args:
        path: of the page.
        number: of the block, among those in Python.
        given: what the page leaves out.
        app: how the block makes its application; the test's is ``given`` instead.
    """
    blocks = [block for block in written()[path].blocks if block.language == "python"]
    text = blocks[number].text
    assert app in text, path

    def build(application: Application) -> dict[str, Any]:
        there: dict[str, Any] = {"__name__": "page", "given": application, **given(application)}
        code = text.replace(app, "given") if app else text
        exec(compile(code, path, "exec", dont_inherit=True), there)  # noqa: S102 - it is ours
        return there

    return build


def test_the_first_one_of_all(spark: SparkSession) -> None:
    build = page("README.md", 0, lambda _: {}, app='Application("word_count", partitions=4)')
    with TopologyTestDriver(build, spark, partitions=4) as driver:
        driver.createInputTopic("lines").pipeValueList(["To be, or not", "to be"])
        out = driver.createOutputTopic("word-counts").readValuesToList()
        assert {one["word"]: one["count"] for one in out} == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_functions_that_reduce_and_aggregate(spark: SparkSession) -> None:
    def given(app: Application) -> dict[str, Any]:
        sales = app.stream("sales", "shop STRING NOT NULL, amount DOUBLE")
        return {"sales": sales.select("shop", "amount")}

    with TopologyTestDriver(page(AGGREGATES, 0, given), spark, partitions=2) as driver:
        sales = driver.createInputTopic("sales")
        for shop, amount in (("a", 5.0), ("b", 1.0), ("a", 9.0)):
            sales.pipeInput({"shop": shop, "amount": amount}, timestamp=T0)
        out = driver.createOutputTopic("dearest-sales").readKeyValuesToMap()
        assert {key: value["amount"] for key, value in out.items()} == {"a": 9.0, "b": 1.0}
        assert driver.getWindowStore("hourly").all() == {
            ("a", T0): {"n": 2, "total": 14.0},
            ("b", T0): {"n": 1, "total": 1.0},
        }


def test_a_function_of_ones_own(spark: SparkSession) -> None:
    def given(app: Application) -> dict[str, Any]:
        return {"visits": app.stream("visits", "address STRING")}

    with TopologyTestDriver(page(AGGREGATES, 1, given), spark) as driver:
        visits = driver.createInputTopic("visits")
        for address in ("Rue X, Paris, France", "", "Lyon, France", "Lima, Peru"):
            visits.pipeInput({"address": address}, timestamp=T0)
        assert driver.getKeyValueStore("visits").all() == {"France": 2, "Peru": 1}
        assert driver.deadLetters() == []


def test_a_function_of_several_rows(spark: SparkSession) -> None:
    def given(app: Application) -> dict[str, Any]:
        return {"agg": agg, "purchases": app.stream("purchases", "customer STRING, cents BIGINT")}

    with TopologyTestDriver(page(AGGREGATES, 2, given), spark) as driver:
        purchases = driver.createInputTopic("purchases")
        for customer, cents in (("a", 1250), ("a", -5), ("b", 50), ("a", 250)):
            purchases.pipeInput({"customer": customer, "cents": cents}, timestamp=T0)
        assert driver.getKeyValueStore("totals").all() == {
            "a": {"euros": 15.0},
            "b": {"euros": 0.5},
        }
        (letter,) = driver.deadLetters()
        assert letter.reason == "failed:euros"
        assert letter.exception == "ValueError: a price below nothing"


def test_sources_of_every_format(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = {"type": "long", "logicalType": "timestamp-millis"}
    file = tmp_path / "schemas" / "flight.avsc"
    file.parent.mkdir()
    file.write_text(json.dumps(record("Flight", origin="string", scheduled=moments)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", broker.bootstrap)
    makes = page("docs/how-to/sources.md", 0, lambda _: {}, app='Application("flights", spark)')

    def build(app: Application) -> None:
        assert makes(app)["declared"](spark) is app

    with serving(StandIn()) as registry:
        registry.register("planes-value", record("Plane", maker="string"))
        monkeypatch.setenv("HOLDFAST_SCHEMA_REGISTRY_URL", registry.url)
        driver = TopologyTestDriver(build, spark, now=T0 + HOUR)
    given: dict[str, Any] = {
        "clicks": {"page": "/", "at": MOMENT},
        "flights": {"origin": "JFK", "scheduled": MOMENT},
        "planes": {"maker": "BOEING"},
        "lines": "to be",
    }
    with driver:
        for topic, value in given.items():
            driver.createInputTopic(topic).pipeInput(value)
        driver.createInputTopic("bytes").pipeInput(b"\xff", key="k")
        counted = {
            store: driver.getKeyValueStore(store).all()
            for store in ("clicks", "departures", "makers", "lines", "keys")
        }
    assert counted == {
        "clicks": {"/": 1},
        "departures": {"JFK": 1},
        "makers": {"BOEING": 1},
        "lines": {"to be": 1},
        "keys": {b"k": 1},
    }
