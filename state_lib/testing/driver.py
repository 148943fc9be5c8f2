"""`TopologyTestDriver`: an application over records that a test gives it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Message
from pyspark.sql import SparkSession

from state_lib.application import Application
from state_lib.changelog.limits import USUAL
from state_lib.changelog.topics import dead_letter_queue
from state_lib.durations import Duration
from state_lib.durations import to_ms as length_ms
from state_lib.errors import InvalidRequest
from state_lib.kafka import TopicFacts
from state_lib.protocol.marker import now_ms
from state_lib.specs import StoreSpec
from state_lib.testing import repeats
from state_lib.testing.avro import local_schemas
from state_lib.testing.built import combined
from state_lib.testing.pipeline import Given, Pipeline, Rules, limits_of
from state_lib.testing.session import check
from state_lib.testing.tasks import Tasks
from state_lib.testing.topics import (
    DeadLetter,
    OutputShape,
    TestInputTopic,
    TestOutputTopic,
    Time,
    dead_letter,
    known_topic,
    to_ms,
)
from state_lib.testing.views import KeyValueStoreView, WindowStoreView

MAX_FUTURE: Duration = "1 hour"


class TopologyTestDriver:
    """Runs an application in this process, by Kafka Streams' words. A context manager.

    What is piped in waits until somebody looks: reading an output or a store, or moving time on,
    runs exactly one batch of it. Row-wise code runs in Spark; tasks, their commits and merging are
    those of production, over a log in memory.

    Args:
        build: declares the topology on the `Application` that it is given.
        spark: any local session; it is never stopped, and no setting of it changed.
        partitions: of the application, and of every source.
        now: wall time (ms, or an aware datetime) until it is advanced; None: that of this moment.
        max_future: as the setting of this name: records further ahead are dead letters.
        app_id: of the application.

    Raises:
        ConfigurationError: what is declared cannot be computed; says why.
    """

    def __init__(
        self,
        build: Callable[[Application], object],
        spark: SparkSession,
        *,
        partitions: int = 1,
        now: Time | None = None,
        max_future: Duration = MAX_FUTURE,
        app_id: str = "test",
    ) -> None:
        check(spark)
        self._partitions = partitions
        self._app = Application(app_id, spark, partitions)
        build(self._app)
        topology = self._app.topology
        facts = {t: TopicFacts(t, f"memory:{t}", partitions, 1) for t in topology.sources}
        session, combiner = combined(spark, self._app, facts, limits_of(self._app, USUAL))
        self._rules = Rules(self._app, spark, session, combiner, partitions, length_ms(max_future))
        self._began = self._now = to_ms(now) or now_ms()
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-test-")
        self._waiting: list[Given] = []
        self._ends = dict.fromkeys(((t, p) for t in topology.sources for p in range(partitions)), 0)
        self._events: list[repeats.Event] = []
        self._read: dict[str, list[int]] = {}
        self._queues: dict[str, list[Message]] = {}
        self._runs = 0
        self._pipeline = self._new()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close tasks and stores, and remove what they kept."""
        self._pipeline.close()
        self._folder.cleanup()

    # ------------------------------------------------------------------ topics

    def createInputTopic(self, name: str) -> TestInputTopic:
        """A source to pipe records into. Raises InvalidRequest, naming those that there are."""
        known_topic(name, self._app.topology.sources, "source")
        sources = {verb.source.topic: verb.source for verb in self._app.verbs}
        return TestInputTopic(sources[name], self._pipe, local_schemas(self._app))

    def createOutputTopic(self, name: str) -> TestOutputTopic:
        """An output to read from. Raises InvalidRequest, naming those that there are."""
        outputs = {o.topic: o.store for o in self._app.topology.outputs}
        known_topic(name, [*outputs], "output")
        spec = self._spec(outputs[name])
        serdes = {t: p.processor.key_serde for p in self._app.processes for t in p.topics}
        shape = OutputShape(serdes.get(name, spec.key_serde), spec.is_window)
        return TestOutputTopic(name, lambda: self._queue(name), shape)

    def deadLetters(self) -> list[DeadLetter]:
        """All records so far that could not be used."""
        topic = dead_letter_queue(self._app.id)
        log = self._current().log
        ends = [log.ends([topic], p)[topic] for p in range(self._partitions)]
        return [
            dead_letter(m)
            for p, end in enumerate(ends)
            for some in log.read(topic, p, 0, end)
            for m in some
        ]

    def droppedRecords(self) -> dict[str, int]:
        """How many records were not used so far, by reason, dead letters among them."""
        return repeats.dropped(self._current())

    # ------------------------------------------------------------------ stores

    def getKeyValueStore(self, name: str) -> KeyValueStoreView:
        """A key-value store. Raises InvalidRequest for a window store, or an unknown one."""
        spec = self._spec(name)
        if spec.is_window:
            raise InvalidRequest(
                f"store {name!r} is a window store: look at it by getWindowStore", store=name
            )
        return KeyValueStoreView(spec, self._current)

    def getWindowStore(self, name: str) -> WindowStoreView:
        """A window store. Raises InvalidRequest for another one."""
        spec = self._spec(name)
        if not spec.is_window:
            raise InvalidRequest(
                f"store {name!r} is a key-value store: look at it by getKeyValueStore", store=name
            )
        return WindowStoreView(spec, self._current)

    # ------------------------------------------------------------------ time

    @property
    def streamTime(self) -> int:
        """The application's, in ms, by which records are late; -1 before the first.

        As in a stream that never pauses, a batch is judged by the times of batches before it.
        """
        self._current()
        return self._pipeline.standing.stream_time_ms

    @property
    def wallClockTime(self) -> int:
        """In ms."""
        return self._now

    def advanceStreamTime(self, time: Time | None = None) -> None:
        """Move stream time to a time, as a tick of the driver does.

        Args:
            time: where to (ms, or an aware datetime); None: to the greatest event time seen, where
                a stream moves it that has nothing left to read.

        Raises:
            InvalidRequest: stream time is there already: it never goes back.
        """
        self._current()
        stream_time_ms, reached = to_ms(time), self._pipeline.standing.stream_time_ms
        if stream_time_ms is not None and stream_time_ms < reached:
            raise InvalidRequest(
                f"stream time is {reached} and never goes back, to {stream_time_ms}",
                stream_time_ms=reached,
            )
        self._events.append(repeats.Tick(stream_time_ms, self._now))
        self._pipeline.tick(stream_time_ms, self._now)

    def advanceWallClockTime(self, by: Duration) -> None:
        """Move wall time on, by ms or by a text such as ``1 hour``.

        Timers by processing time run that are due then, and what has lived its time is removed.
        """
        self._current()
        self._now += length_ms(by)
        standing = self._pipeline.standing
        if standing.is_due(standing.stream_time_ms, self._now):
            self._events.append(repeats.Tick(standing.stream_time_ms, self._now))
            self._pipeline.tick(standing.stream_time_ms, self._now)

    # ------------------------------------------------------------------ once more

    def assertSameHoweverCut(self) -> None:
        """Assert that another cut of the inputs into batches gives the same.

        That is: entries of stores, the last output of each key, dropped records. Records that are
        late are so by the stream time of their batch, so a test that pipes late ones on purpose
        says what it expects instead.
        """
        self._current()
        repeats.assert_same_however_cut(self._pipeline, self._events, self._new)

    def assertSurvivesRepeats(self) -> None:
        """Assert that crashes of tasks and repeats of batches change nothing: to the byte.

        The batches so far are run again. Each exchange is cut off once: before its commit is in
        the store, or behind it and with the disk lost; and every batch comes twice.
        """
        self._current()
        repeats.assert_survives_repeats(self._pipeline, self._events, self._new)

    # ------------------------------------------------------------------ inside

    def _new(self, *, crashing: bool = False) -> Pipeline:
        self._runs += 1
        folder = Path(self._folder.name) / str(self._runs)
        return Pipeline(self._rules, folder, self._began, crashing=crashing)

    def _pipe(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        partition: int | None,
    ) -> None:
        if partition is None:
            partition = repeats.place(key, self._partitions, self._ends, topic)
        if not 0 <= partition < self._partitions:
            raise InvalidRequest(
                f"topic {topic!r} has partitions 0 to {self._partitions - 1}, not {partition}"
            )
        offset = self._ends[topic, partition]
        self._ends[topic, partition] += 1
        time = self._now if timestamp is None else timestamp
        self._waiting.append(Given(topic, partition, offset, key, value, time))

    def _current(self) -> Tasks:
        """The tasks, after the batch that waits."""
        if self._waiting:
            records, self._waiting = tuple(self._waiting), []
            self._events.append(repeats.Piped(records, self._now))
            self._pipeline.run(records, self._now)
        return self._pipeline.tasks

    def _queue(self, topic: str) -> list[Message]:
        log = self._current().log
        queue = self._queues.setdefault(topic, [])
        read = self._read.setdefault(topic, [0] * self._partitions)
        for p in range(self._partitions):
            end = log.ends([topic], p)[topic]
            for some in log.read(topic, p, read[p], end):
                queue += some
            read[p] = end
        return queue

    def _spec(self, store: str) -> StoreSpec:
        topology = self._app.topology
        spec = topology.store(store)
        if spec is None:
            known = [s.name for s in topology.stores]
            raise InvalidRequest(
                f"this application has no store {store!r}; its stores: {known}",
                store=store,
                known=known,
            )
        return spec
