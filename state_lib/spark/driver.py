"""The driver: claim, align, stream (docs/protocol.md). Kafka alone says what is done."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import Producer
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from state_lib.changelog.admin import ensure_topics, topic_configs
from state_lib.changelog.claims import speaker
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import plan_topics
from state_lib.config import Settings
from state_lib.declaration import Declaration
from state_lib.driver.claims import (
    Claimant,
    check_no_collision,
    check_same_application,
    write_claim,
)
from state_lib.driver.epochs import Epoch, claim_all, topology_id
from state_lib.driver.left_out import LeftOut
from state_lib.driver.limits import record_limits
from state_lib.driver.standing import Standing
from state_lib.driver.versions import make_way
from state_lib.drivers.watched import Watched
from state_lib.kafka import Kafka, TopicFacts, require
from state_lib.protocol.marker import Marker
from state_lib.spark.align import align, check_topics, initial_positions
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.opened import Opened
from state_lib.spark.parking import Parking
from state_lib.spark.prepared import first_plan, prepared
from state_lib.spark.process.initial import take_initial_states
from state_lib.spark.session import kafka_options, read_range
from state_lib.spark.streaming import POLL_S, Streaming
from state_lib.spark.warm import warm_up
from state_lib.task.claiming import claim_or_none

if TYPE_CHECKING:
    from state_lib.executor.avro.registry import Schemas

log = structlog.get_logger(__name__)


class Driver:
    """One run of an application.

    Args:
        app: what the job declares.
        settings: of this process.
        watched: this process's connection to the outside; by default a new one.
        before: epoch of this process's last claim. A driver that claimed after it has taken over: a
            process that was frozen must not take the application back.
        opened: the session in which it was declared, which outlives this run; of its own where none
            is given.

    Raises:
        ConfigurationError: a file that a setting names cannot be read.
    """

    def __init__(
        self,
        app: Declaration,
        settings: Settings,
        watched: Watched | None = None,
        before: Epoch | None = None,
        opened: Opened | None = None,
    ) -> None:
        self._app, self._settings = app, settings
        self._opened, self._is_alone = opened or Opened(app.id, settings=settings), opened is None
        self._watched = watched or Watched.of(app.id, settings)
        self._kafka = self._watched.kafka or Kafka.of(settings)
        self._token = settings.read_token()
        self._stopping = self._watched.stopping
        self.epoch, self._before = before, before
        self._stream: Streaming | None = None
        self._speaker: Producer | None = None

    @property
    def committed(self) -> bool:
        """Whether a batch was committed: what failed afterwards is a new failure."""
        return self._stream is not None and self._stream.committed

    def run(self) -> None:
        """Run until `stop`, or until a newer driver appears.

        Raises:
            Superseded: there is a newer driver.
            HoldfastError: what cannot be mended by starting the stream again.
        """
        topology = self._app.topology
        early = self._opened.present
        if early is not None:
            warm_up(early)
        self._watched.control.begin()
        if self._before is not None:
            claim_or_none(self._kafka, topology.app)  # raises without a topic for requests
            if self._asked_to_stop(self._before):
                return
        admin, self._speaker = self._kafka.admin(), speaker(self._kafka)
        settings, code = self._settings, self._app.fingerprint
        with ThreadPoolExecutor(4, "look-ups") as pool:  # they wait for brokers
            sources = require(admin, topology.sources)
            configs = pool.submit(topic_configs, admin, topology.sources)
            checks = [
                pool.submit(judge, self._kafka, topology)
                for judge in (check_same_application, check_no_collision)
            ]
            limits = pool.submit(record_limits, admin, self._app)
            retention = _longest_retention(configs.result())
            for check in checks:
                check.result()
            expected = first_plan(self._app, sources, limits.result())
        started = time.monotonic()
        spark = self._opened.ready(settings)
        try:
            log.info("spark is up", seconds=round(time.monotonic() - started, 2))
            combiner = prepared(spark, self._app, expected, self._schemas())
            if spark is not early:
                warm_up(spark)
            plans = plan_topics(topology, retention)
            ensure_topics(admin, plans, settings.replication_factor, settings.min_insync_replicas)
            routing = self._app.routing
            make_way(self._watched, self._kafka, topology, code, routing, settings)
            self._watched.presence.join()
            if not self._asked_to_stop(self._before):
                looked_at = topology_id(self._kafka, topology.app)
                check_same_application(self._kafka, topology)  # another may have claimed
                self._drive(spark, combiner, sources, code, looked_at)
        finally:
            if self._is_alone:
                self._opened.stop()

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query, once it streams; another one whenever batches get another size."""
        return None if self._stream is None else self._stream.query

    def stop(self) -> None:
        """Stop at the next batch's edge. Safe from a signal handler."""
        self._stopping.set()

    # ------------------------------------------------------------------ inside

    def _drive(
        self,
        spark: SparkSession,
        combiner: Combiner,
        sources: dict[str, TopicFacts],
        code: str,
        looked_at: str,
    ) -> None:
        """Claim, align, stream."""
        topology, presence, started = self._app.topology, self._watched.presence, time.monotonic()
        hosts = self._settings.host_addresses

        def write() -> int:
            who, speaker = presence.who, self._speaker
            readers = self._app.readers
            number = write_claim(self._kafka, topology, who, code, hosts, speaker, readers=readers)
            self.epoch = Epoch(number, looked_at)  # at once: the next try must notice later claims
            return number

        left_out = LeftOut(self._kafka, topology, sources, self._settings.park_after_s)

        def take(epoch: Epoch) -> list[Marker]:
            log.info("claimed", app=topology.app, epoch=epoch.number)
            return self._claimant(epoch).all(self._settings.exchange_timeout_s, left_out.of(epoch))

        epoch, markers = claim_all(self._kafka, topology.app, write, take, looked_at)
        check_topics(markers, sources)
        log.info("all tasks claimed", seconds=round(time.monotonic() - started, 2))
        ids = {t: f.id for t, f in sources.items()}
        standing = Standing(epoch.number, markers, ids, parked=left_out.parked)
        batches = Batches(self._app, self._settings, self._kafka, combiner, standing, self._token)
        over = self._bound_the_last_batch(spark, batches.tag)
        try:
            at = initial_positions(self._kafka.admin(), markers, sources)
            if any(x != m.positions for x, m in zip(at, markers, strict=True)):
                batches.initial(at)
            take_initial_states(self._app, batches, spark)
            if standing.parked:
                batches.tell_parked()
            records, read = ProgressLog(self._kafka, topology.app).read, self._reader(spark)
            if align(batches, read, records, lambda: self._asked_to_stop(epoch)):
                seen_at = (epoch.number, spark.sparkContext.uiWebUrl)
                threading.Thread(target=presence.streaming, args=seen_at, daemon=True).start()
                claim = self._claimant(epoch).one
                with Parking(batches, claim, read, records, self._stopping.is_set) as parking:
                    self._stream = Streaming(
                        spark, parking, self._kafka, topology, self._settings, self._stopping
                    )
                    self._stream.run(lambda: self._asked_to_stop(epoch))
        finally:
            over.set()
            with contextlib.suppress(Py4JError, ConnectionError, AttributeError):  # Spark is gone
                spark.sparkContext.cancelJobsWithTag(batches.tag)  # the session outlives this run
            batches.close()

    def _schemas(self) -> Schemas | None:
        """Where those of records in Avro are."""
        if all(verb.source.format != "avro" for verb in self._app.verbs):
            return None
        from state_lib.spark.avro.columns import schemas_of  # noqa: PLC0415 - heavy, and seldom

        return schemas_of(self._app, self._settings)

    def _claimant(self, epoch: Epoch) -> Claimant:
        def stopped() -> bool:
            return self._asked_to_stop(epoch)

        hosts = tuple(self._settings.host_addresses)
        return Claimant(self._app.topology, epoch, hosts, self._token, stopped)

    def _asked_to_stop(self, epoch: Epoch | None) -> bool:
        """Hear what is said to this driver; whether it is to stop.

        Raises:
            Superseded, Unavailable: as `Control.heed`.
            KafkaRefused: as `Presence.check`.
        """
        self._watched.presence.check()
        if self._watched.control.heed(None if epoch is None else epoch.number) is not None:
            self.stop()
        return self._stopping.is_set()

    def _bound_the_last_batch(self, spark: SparkSession, tag: str) -> threading.Event:
        """Cancel a batch that does not end after a stop; returns an event that ends the watch.

        It may wait for a host that is away, while others wait for this process to end. Commits of
        some tasks stand, and the next driver aligns the others.
        """
        over = threading.Event()

        def watch() -> None:
            while not self._stopping.wait(POLL_S):
                if over.is_set():
                    return
            patience = self._settings.stop_timeout_s
            if not over.wait(patience):
                log.warning("the batch does not end: it is left undone", seconds=patience)
            while not over.wait(POLL_S):  # a next job may begin after a cancellation
                spark.sparkContext.cancelJobsWithTag(tag)

        threading.Thread(target=watch, name="last-batch", daemon=True).start()
        return over

    def _reader(self, spark: SparkSession) -> Any:
        options = kafka_options(self._settings, list(self._app.topology.sources))
        return lambda from_, to: read_range(spark, options, from_, to)


def _longest_retention(configs: dict[str, dict[str, str]]) -> int:
    values = [int(c["retention.ms"]) for c in configs.values()]
    return -1 if -1 in values or not values else max(values)
