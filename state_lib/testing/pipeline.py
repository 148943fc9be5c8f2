"""One run of an application over records that are given: batches and ticks, as a driver's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from state_lib.declaration import Declaration
from state_lib.driver.standing import Standing
from state_lib.driver.stream_time import next_stream_time
from state_lib.errors import UnknownSchemas
from state_lib.executor.carried import arrived
from state_lib.executor.exchange import exchange
from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.processing import Process
from state_lib.protocol.positions import Numbers, Positions
from state_lib.spark.frames import Combiner
from state_lib.spark.functions.lost import explained
from state_lib.spark.process.initial import initial_rows
from state_lib.testing.session import give_back
from state_lib.testing.tasks import EPOCH, Tasks

_SOURCE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""What Spark's Kafka source reads."""
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Given:
    """A record of a source topic; ``timestamp`` in ms."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass(frozen=True)
class Rules:
    """What is the same in every run: the application, how its rows are combined, what is judged.

    Attributes:
        app: declared.
        given: the user's session.
        spark: a clone of it.
        combiner: of its verbs.
        partitions: of the application and of each source.
        max_future_ms: how far ahead of the wall clock an event time may be.
    """

    app: Declaration
    given: SparkSession
    spark: SparkSession
    combiner: Combiner
    partitions: int
    max_future_ms: int


class Pipeline:
    """One run.

    Args:
        rules: what is the same in every run.
        folder: of its own, for what tasks keep.
        now: wall time (ms) at which it begins.
        crashing: see `Tasks`; every batch is brought to its tasks twice then.
    """

    def __init__(self, rules: Rules, folder: Path, now: int, *, crashing: bool = False) -> None:
        self._rules, self._crashing = rules, crashing
        self.tasks = Tasks(rules.app.topology, folder, crashing=crashing)
        sources = rules.app.topology.sources
        ids = {topic: f"memory:{topic}" for topic in sources}
        markers = [task.marker for task in self.tasks]
        self.standing = Standing(EPOCH, markers, ids)
        begin = Positions({(t, p): 0 for t in sources for p in range(rules.partitions)})
        plan = replace(self._plan(begin, self.standing.stream_time_ms, 0), from_=Positions())
        for task in range(rules.partitions):
            self._carry(plan, task, None)
        self.standing.positions = begin
        for number, verb in enumerate(rules.app.processes, len(rules.app.aggregations)):
            if verb.initial is not None:
                self._begin(verb, number, now)

    def close(self) -> None:
        """Close its tasks."""
        self.tasks.close()

    def run(self, records: Sequence[Given], now: int, later: Sequence[Given] = ()) -> None:
        """One batch of some records, judged at wall time ``now``; ``later``: others wait already.

        Rows are combined by Spark, as in every batch of a stream.
        """
        standing = self.standing
        while standing.is_overdue:
            self.tick(standing.stream_time_ms, now)
        unread = {(r.topic, r.partition) for r in (*records, *later)}
        reached = next_stream_time(standing.stream_time_ms, standing.maxima, unread)
        ends = {(r.topic, r.partition): r.offset + 1 for r in records}
        to = Positions({**standing.positions, **ends})
        plan = self._plan(to, reached, now)
        batch = frame(self._rules.given, self._rules.spark, records)
        plan, combined = self._combined(batch, plan)
        for task in range(self._rules.partitions):
            own = combined.filter(pc.equal(combined.column("task"), task))
            self._carry(plan, task, own if own.num_rows else None)
        standing.positions = to

    def _combined(self, batch: DataFrame, plan: BatchPlan) -> tuple[BatchPlan, pa.Table]:
        """The entries of a batch, and its plan: with the ids of schemas that nobody knows."""
        try:
            with explained(self._rules.app):
                return plan, self._rules.combiner.combine(batch, plan).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            found = arrived(error)
            if not isinstance(found, UnknownSchemas):
                raise found or error from None
            ids = {*plan.unknown, *found.details["ids"]}
        return self._combined(batch, replace(plan, unknown=tuple(sorted(ids))))

    def tick(self, stream_time_ms: int | None, now: int) -> None:
        """A commit of every task that moves stream time and covers no record.

        ``stream_time_ms``: where to; None: where a driver moves it that has nothing left to read.
        """
        standing = self.standing
        if stream_time_ms is None:
            stream_time_ms = next_stream_time(standing.stream_time_ms, standing.maxima, [])
        plan = self._plan(standing.positions, stream_time_ms, now)
        for task in range(self._rules.partitions):
            self._carry(plan, task, None)

    def _begin(self, verb: Process, number: int, now: int) -> None:
        """Every task takes the initial state of a processor."""
        rules, tasks = self._rules, range(self._rules.partitions)
        plan = self._plan(self.standing.positions, self.standing.stream_time_ms, now)
        with initial_rows(rules.spark, verb, number, rules.partitions, tasks) as taken:
            rows = taken.toArrow()
        for task in tasks:
            own = rows.filter(pc.equal(rows.column("task"), task))
            self._carry(plan, task, own if own.num_rows else None, verb.name)
        self.standing.batch_number = max(m.batch_number for m in self.standing.markers)

    def _carry(
        self, batch: BatchPlan, task: int, table: pa.Table | None, initial: str = ""
    ) -> None:
        rules = self._rules
        whole = ExchangePlan(
            app=rules.app.id,
            partitions=rules.partitions,
            kept=tuple(verb.kept for verb in rules.app.aggregations),
            batch=batch,
            hosts=(),
            token=None,
            timeout_s=_TIMEOUT_S,
            processors=tuple(verb.processor for verb in rules.app.processes),
            initial=initial,
        )
        for _ in range(1 + self._crashing):
            self.standing.markers[task] = exchange(whole, task, table, self.tasks)

    def _plan(self, to: Numbers, stream_time_ms: int, now: int) -> BatchPlan:
        standing, rules = self.standing, self._rules
        standing.batch_number += 1
        return BatchPlan(
            epoch=EPOCH,
            batch_number=standing.batch_number,
            from_=Positions(standing.positions),
            to=Positions(to),
            stream_time_ms=stream_time_ms,
            now=now,
            batch_time=max(now, standing.batch_time),
            max_future_ms=rules.max_future_ms,
            topic_ids=standing.topic_ids,
            code=rules.app.fingerprint,
            limits=limits_of(rules.app, self.tasks.log.limit),
        )


def frame(given: SparkSession, spark: SparkSession, records: Sequence[Given]) -> DataFrame:
    """Records as Spark's Kafka source gives them, in a clone of the session that was given."""
    columns = [
        [r.key for r in records],
        [r.value for r in records],
        [r.topic for r in records],
        [r.partition for r in records],
        [r.offset for r in records],
        [r.timestamp * 1000 for r in records],
        [0] * len(records),
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SOURCE, strict=True)]
    made = spark.createDataFrame(pa.Table.from_arrays(arrays, schema=_SOURCE))
    give_back(given)
    return made


def limits_of(app: Declaration, limit: int) -> dict[str, int]:
    """What topics take of a store's record (bytes), as `BatchPlan.limits`."""
    names = [verb.store.name for verb in app.aggregations]
    return dict.fromkeys([*names, *(verb.name for verb in app.processes)], limit)
