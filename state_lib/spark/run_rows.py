"""What a row of a run of batches is judged by: the numbers of the batch that its offset lay in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.errors import Unjudged
from state_lib.executor.plan import BatchPlan

_SAYS = "holdfast: no batch of the run has"
_SAID = re.compile(rf"{_SAYS} (\S+)/(\d+)@(-?\d+)")


def in_run(plan: BatchPlan) -> tuple[Column, Column]:
    """Latest event time and clock, each as an array by source, as `state_lib.spark.rows` takes it.

    Offset by offset, one source after another, a list says which batch of the run it was in: no
    row needs a search, and the code that Spark generates is the same whatever a run holds.

    A row that is in none of them fails the query before any task has committed: judged by nothing
    it would be neither late nor too early. See `unjudged`.

    The partition's id is there because it is no function of a row. So Spark computes these columns
    for each row as it was read, and puts nothing into them: the topic that a branch of the query
    wants would be taken for that of all rows.
    """
    sources = plan.sources()
    ends = [plan.run[0].from_, *(one.to for one in plan.run)]
    batches: list[int] = []
    begins: list[int] = []
    for place in sources:
        begins.append(len(batches) - ends[0][place])
        for number in range(len(plan.run)):
            batches += [number] * (ends[number + 1][place] - ends[number][place])
    source, offset = _number(sources), F.col("offset")
    here = (F.get(listed(ends[0][s] for s in sources), source) <= offset) & (
        offset < F.get(listed(ends[-1][s] for s in sources), source)
    )
    at = F.get(listed(begins), source) + offset
    batch = F.when(here & (F.spark_partition_id() >= 0), F.get(listed(batches), at))
    row = (F.col("topic"), F.lit("/"), F.col("partition"), F.lit("@"), offset)
    none = F.raise_error(F.concat(F.lit(f"{_SAYS} "), *row)).cast("bigint")

    def each(values: Iterable[int]) -> Column:
        value = F.coalesce(F.get(listed(values), batch), none)
        return F.array_repeat(value, len(sources)).cast("array<bigint>")

    return each(p.now + p.max_future_ms for p in plan.run), each(p.stream_time_ms for p in plan.run)


def unjudged(error: Exception, plan: BatchPlan) -> Unjudged | None:
    """What a query failed by, if that was a row that no batch of a run has."""
    found = _SAID.search(str(error))
    if found is None or not plan.run:
        return None
    topic, partition, offset = found[1], int(found[2]), int(found[3])
    first, last = plan.run[0], plan.run[-1]
    return Unjudged(
        f"Spark read offset {offset} of {topic}/{partition}, and none of the recorded batches that "
        f"are repeated together has it: batch {first.batch_number} to {last.batch_number} of "
        f"epoch {last.epoch}, recorded at offsets {first.recorded} to {last.recorded}. Nothing was "
        "committed. Set HOLDFAST_FIRST_OFFSETS_PER_TRIGGER=1, by which they are repeated one by "
        "one, until the driver streams; and please report it",
        topic=topic,
        partition=partition,
        offset=offset,
        epoch=last.epoch,
        batches=[first.batch_number, last.batch_number],
        recorded=[first.recorded, last.recorded],
    )


def _number(sources: list[tuple[str, int]]) -> Column:
    """A row's source; null if it is none of these."""
    topics = sorted({topic for topic, _ in sources})
    numbers = {topic: [p for t, p in sources if t == topic] for topic in topics}
    number = F.lit(None).cast("int")
    for topic, partitions in numbers.items():
        known = (F.col("topic") == topic) & (F.col("partition") < len(partitions))
        first = sources.index((topic, 0))
        number = F.when(known, F.col("partition") + first).otherwise(number)
    return number


def listed(values: Iterable[int]) -> Column:
    """Numbers as one constant. As text, for a list is a call to the JVM for each element."""
    return F.split(F.lit(",".join(map(str, values))), ",").cast("array<bigint>")
