"""What executors do with what a host says, in real Spark tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from state_lib.errors import HoldfastError, from_wire
from state_lib.executor.exchange import RESULT_DDL, exchange_partition
from state_lib.executor.plan import SEEN, BatchPlan, ExchangePlan
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.positions import Positions
from tests.integration.conftest import MakeApp
from tests.support.declared import counting
from tests.support.hosts import address, served

TOKEN = "only-for-tests"


@pytest.fixture
def host(make_app: MakeApp) -> Iterator[HostAddress]:
    at = address()
    with served(make_app(), at, TOKEN):
        yield at


@pytest.mark.parametrize(("token", "code"), [("another", "unauthorized"), (TOKEN, "not-found")])
def test_what_trying_again_does_not_mend_comes_to_the_driver_as_what_it_is(
    spark: SparkSession, host: HostAddress, name: str, token: str, code: str
) -> None:
    """A Spark task that fails is tried again, and its error is text."""
    app = counting(f"{name}-of-nobody", {"t": "counts"}, 1)
    batch = BatchPlan(0, 1, Positions(), Positions({("t", 0): 1}), 0, 0, 0, {})
    plan = ExchangePlan(
        app.id, 1, tuple(verb.kept for verb in app.aggregations), batch, (host,), token, 20.0
    )

    def carry(batches: Any) -> Any:
        return exchange_partition(plan, batches)

    frame = spark.range(0, 1, 1, 1).selectExpr("0 AS task", f"{SEEN} AS kind")
    rows = frame.mapInArrow(carry, RESULT_DDL).collect()
    (error,) = [from_wire(orjson.loads(r.error)) for r in rows]
    assert (error.code, type(error) is HoldfastError) == (code, False)
