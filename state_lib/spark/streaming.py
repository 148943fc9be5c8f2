"""Spark's query over the sources, which hands one batch after another to the tasks."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from state_lib.config import Settings
from state_lib.driver.batch_size import BatchSize
from state_lib.errors import HoldfastError, Realign, Unavailable
from state_lib.failpoints import failpoint
from state_lib.kafka import Kafka
from state_lib.protocol.positions import Positions
from state_lib.spark.batches import Batches
from state_lib.spark.ending import ENDING_S, STOP_S, halt
from state_lib.spark.given import is_alive
from state_lib.spark.parking import Parking
from state_lib.spark.session import kafka_options
from state_lib.specs import Topology

log = structlog.get_logger(__name__)
POLL_S = 1.0
LOOK_S = 0.1


class Streaming:
    """The stream of one claim, from where the tasks stand.

    Spark fixes the size of a query's batches when it starts: for another size the query ends at a
    batch's edge, and the next begins there.

    Args:
        spark: the session.
        parking: what brings tasks back that are left out, and what runs batches.
        kafka: where the sources are.
        topology, settings: of the application and of this process.
        stopping: set when the stream is to end.
    """

    def __init__(
        self,
        spark: SparkSession,
        parking: Parking,
        kafka: Kafka,
        topology: Topology,
        settings: Settings,
        stopping: threading.Event,
    ) -> None:
        self._spark, self._parking, self._kafka = spark, parking, kafka
        self._topology, self._settings = topology, settings
        self._lock = threading.Lock()
        self._stopping, self._resized = stopping, threading.Event()
        self._failure: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._size = BatchSize(settings)
        self.committed = False
        """Whether a batch was committed."""

    def run(self, asked_to_stop: Callable[[], bool]) -> None:
        """Run until it is to end, and end at a batch's edge.

        Args:
            asked_to_stop: reads requests to this driver, and sets ``stopping`` if it is to end.

        Raises:
            Superseded: there is a newer driver.
            HoldfastError: what is to be done about it, by starting the stream again or otherwise.
        """
        log.info("streaming", app=self._topology.app, epoch=self._batches.standing.epoch)
        for number in itertools.count(1):
            if self._stopping.is_set():
                break
            self._resized.clear()
            self._run_query(number, asked_to_stop)
            failpoint("driver.between_queries")
        positions = Positions(self._batches.standing.positions).to_json()
        if self._failure is None:
            log.info("stopped at a batch's edge", positions=positions)
        else:
            why = str(self._failure).partition("\n")[0]
            log.warning("the last batch was left undone", positions=positions, why=why)

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's, while there is one."""
        return self._query

    # ------------------------------------------------------------------ inside

    @property
    def _batches(self) -> Batches:
        return self._parking.batches

    def _run_query(self, number: int, asked_to_stop: Callable[[], bool]) -> None:
        """Spark's checkpoint is scratch: a new directory for every query."""
        app, standing = self._topology.app, self._batches.standing
        records = self._size.within(self._kafka, standing.positions)
        folder = self._settings.home / "checkpoints" / app
        shutil.rmtree(folder, ignore_errors=True)
        scratch = folder / f"{standing.epoch}-{number}"
        source = (
            self._spark.readStream.format("kafka")
            .options(**kafka_options(self._settings, list(self._topology.sources)))
            .option(
                "startingOffsets", orjson.dumps(Positions(standing.positions).to_json()).decode()
            )
            .option("maxOffsetsPerTrigger", records)
            .load()
        )
        started = threading.Event()

        def on_batch(frame: DataFrame, batch_id: int) -> None:
            started.wait(60)  # it may begin before `start` has returned the query; see `bounds`
            self._unless_ending(lambda: self._on_batch(frame, batch_id))

        self._query = None  # not the last one: a batch needs the bounds of its own query
        self._failure = None
        try:
            self._query = (
                source.writeStream.queryName(app)
                .foreachBatch(on_batch)
                .option("checkpointLocation", str(scratch))
                .start()
            )
            started.set()
            log.info("batches are bounded", records=records)
            self._watch(self._query, asked_to_stop)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    @property
    def _is_ending(self) -> bool:
        """Whether the present query is to begin no batch any more."""
        return self._stopping.is_set() or self._resized.is_set()

    def _unless_ending(self, batch: Callable[[], None]) -> None:
        """Run a batch under the lock, but none once the query is to end.

        Polls for the lock: the thread that stops the query holds it, and waits in Spark until this
        call returns.
        """
        while not self._lock.acquire(timeout=LOOK_S):
            if self._is_ending:
                return
        try:
            if not self._is_ending:
                batch()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._lock.release()

    def _on_batch(self, frame: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        from_, to = bounds(self._query)
        standing = self._batches.standing
        if from_ is not None and from_ != standing.positions:
            raise Realign(
                f"Spark's batch {batch_id} starts at {from_} but the tasks stand at "
                f"{Positions(standing.positions)}: the stream is started again from the markers"
            )
        if set(to) != set(standing.positions):
            new = sorted(set(to) - set(standing.positions))
            raise Realign(f"source partitions {new} are new: the stream is started again with them")
        rows = sum(to.values()) - sum(standing.positions.values())
        self._batches.stream(frame, to, self._stopping.is_set)
        self.committed = True
        seconds = time.monotonic() - started
        log.info(
            "batch",
            batch_number=standing.batch_number,
            rows=rows,
            seconds=round(seconds, 3),
            rows_per_s=round(rows / seconds),
            stream_time_ms=standing.stream_time_ms,
        )
        if self._size.took(rows, seconds):
            self._resized.set()
        self._bring_back()

    def _bring_back(self) -> None:
        """Let parked tasks catch up, for as long as a batch takes; the stream waits meanwhile."""
        self._parking.bring_back(self._settings.batch_target_s)

    def _watch(self, query: StreamingQuery, asked_to_stop: Callable[[], bool]) -> None:
        """Poll for a stop and a newer driver; leave when the query has ended, and leave none."""
        over = threading.Event()
        threading.Thread(target=self._beside, args=[over], name="beside", daemon=True).start()
        try:
            is_to_end = self._heard(query, asked_to_stop)
        except BaseException:
            self._leave(query)
            raise
        finally:
            over.set()
        if is_to_end:
            self._end(query)
            return
        if self._failure is not None:
            self._leave(query)
            raise self._failure
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(1)
        failure = query.exception()
        raise HoldfastError(f"the query of {self._topology.app!r} ended: {failure}")

    def _heard(self, query: StreamingQuery, asked_to_stop: Callable[[], bool]) -> bool:
        """Wait until the query is to end; False if it has ended, or something failed."""
        while query.isActive and self._failure is None:
            if self._waited():
                return self._stopping.is_set() or self._failure is None
            if not is_alive(self._spark):  # a query that waits for records does not notice that
                raise Unavailable(f"the session of {self._topology.app!r} has been stopped")
            try:
                asked_to_stop()
            except Unavailable as error:
                log.warning("Kafka is away; going on", why=error.message)
        return False

    def _leave(self, query: StreamingQuery) -> None:
        """Stop a query after a failure, which is reported; other drivers may have the tasks."""
        with contextlib.suppress(Unavailable, Py4JError, ConnectionError):
            halt(query, self._topology.app, lambda: ENDING_S)

    def _beside(self, over: threading.Event) -> None:
        """In a thread: work between batches may take long, and must not delay a stop."""
        while not over.wait(POLL_S) and not self._is_ending:
            if not self._lock.acquire(blocking=False):
                continue
            try:
                if not self._is_ending:
                    self._between()
            except Unavailable as error:
                log.warning("Kafka or a host is away; going on", why=error.message)
            except BaseException as error:  # noqa: BLE001 - it is raised where the query is watched
                self._failure = error
                return
            finally:
                self._lock.release()

    def _between(self) -> None:
        """Idle time: parked tasks catch up, stream time moves, batches are small again."""
        self._bring_back()
        if self._batches.tick():
            log.info("tick", stream_time_ms=self._batches.standing.stream_time_ms)
        if self._size.calmed():
            self._resized.set()

    def _end(self, query: StreamingQuery) -> None:
        """Between two batches: none begins any more.

        Raises:
            Unavailable: a batch or Spark's thread hangs, in a call to Kafka most likely.
        """
        patience = self._settings.stop_timeout_s + ENDING_S  # its jobs are cancelled before
        until = time.monotonic() + patience
        while not self._lock.acquire(timeout=LOOK_S):
            if time.monotonic() > until:
                raise Unavailable(
                    f"the batch of {self._topology.app!r} does not end within {patience:.0f} s; "
                    "the next driver finishes it. Is Kafka away?"
                )
        try:
            halt(query, self._topology.app, lambda: ENDING_S if self._stopping.is_set() else STOP_S)
        finally:
            self._lock.release()

    def _waited(self) -> bool:
        """Wait for the next look; returns whether the query is to end instead."""
        until = time.monotonic() + POLL_S
        while not self._is_ending and time.monotonic() < until:
            self._stopping.wait(LOOK_S)
        return self._is_ending


def bounds(query: StreamingQuery | None) -> tuple[Positions | None, Positions]:
    """From and to of the batch that is running, out of Spark's memory.

    The checkpoint's files say the same, unless somebody has touched them; ``from`` is None for a
    query's first batch. (docs/adr/0004)
    """
    if query is None:
        raise Realign("a batch ran before its query was known: the stream is started again")
    context = query._jsq.streamingQuery().getLatestExecutionContext()  # noqa: SLF001

    def one(progress: Any) -> Positions | None:
        values = progress.values().iterator()
        return Positions.of(orjson.loads(values.next().json())) if values.hasNext() else None

    to = one(context.endOffsets())
    if to is None:
        raise Realign("Spark names no end of the running batch: the stream is started again")
    return one(context.startOffsets()), to
