"""Applications that call Python functions, for tests of these."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType

from state_lib import Application, KStream, TopologyTestDriver, agg

T0 = 1_700_000_000_000
SCHEMA = "k STRING, x BIGINT, s STRUCT<a: INT, at: TIMESTAMP>, items ARRAY<STRING>"
Declare = Callable[[KStream], Any]


def half(x: int) -> int:
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x // 2


halved: Any = F.udf(half, LongType())


@contextmanager
def shipped(*names: str) -> Iterator[None]:
    """Workers need not find these modules: they are pickled whole, as a job's own file is."""
    modules = [sys.modules[name] for name in (__name__, *names)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


def of(declare: Declare) -> Callable[[Application], object]:
    return lambda app: declare(app.stream("t", SCHEMA))


def keeping(made: Callable[[], Column]) -> Callable[[Application], object]:
    """Keeps the last of a column that is made, by ``k``, as JSON."""

    def declare(rows: KStream) -> Any:
        rows = rows.withColumn("made", made())
        last = agg.last(F.to_json(F.struct("made")))
        return rows.groupBy("k").agg("s", n=agg.count(), last=last)

    return of(declare)


def pipe(driver: TopologyTestDriver, *records: dict[str, Any] | bytes) -> None:
    topic = driver.createInputTopic("t")
    for record in records:
        topic.pipeInput(record, timestamp=T0)


def exceptions(driver: TopologyTestDriver) -> list[tuple[int, str, str | None]]:
    """Of dead letters: offset, reason, exception."""
    return sorted((one.offset, one.reason, one.exception) for one in driver.deadLetters())
