"""What a row of a run of batches is judged by: the numbers of the batch that its offset lay in."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.marker import flat
from state_lib.spark.plan import BatchPlan


def in_run(plan: BatchPlan) -> tuple[Column, Column]:
    """Latest event time and clock, each as an array by source, as `state_lib.spark.rows` takes it.

    Offset by offset, one source after another, a list says which batch of the run it was in: no
    row needs a search, and the code that Spark generates is the same whatever a run holds.

    `get`, for an index may be out of range in a row that is left out: Spark puts the topic of a
    branch into this expression, and may compute it before it looks at a row's topic.
    """
    sources = plan.sources()
    ends = [flat(plan.run[0].from_), *(flat(one.to) for one in plan.run)]
    batches: list[int] = []
    begins: list[int] = []
    for source in sources:
        begins.append(len(batches) - ends[0][source])
        for number in range(len(plan.run)):
            batches += [number] * (ends[number + 1][source] - ends[number][source])
    at = F.get(_listed(begins), _number(sources)) + F.col("offset")
    batch = F.get(_listed(batches), at)

    def each(values: Iterable[int]) -> Column:
        value = F.get(_listed(values), batch)
        return F.array_repeat(value, len(sources)).cast("array<bigint>")

    return each(p.now + p.max_future_ms for p in plan.run), each(p.clock for p in plan.run)


def _number(sources: list[tuple[str, int]]) -> Column:
    """A row's source."""
    firsts = {topic: sources.index((topic, 0)) for topic, _ in sources}
    number: Column = F.lit(0)
    if len(firsts) > 1:
        for topic, first in firsts.items():
            number = F.when(F.col("topic") == topic, first).otherwise(number)
    return F.col("partition") + number


def _listed(values: Iterable[int]) -> Column:
    """Numbers as one constant. As text, for a list is a call to the JVM for each element."""
    return F.split(F.lit(",".join(map(str, values))), ",").cast("array<bigint>")
