"""Runs one batch: decide, record, combine, exchange. The same for stream, align and tick."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from state_lib.changelog.progress import ProgressLog, Recorded
from state_lib.config import Settings
from state_lib.declaration import Declaration
from state_lib.driver.batch_size import BatchSize
from state_lib.driver.direct import Direct
from state_lib.driver.limits import record_limits
from state_lib.driver.outcome import noted
from state_lib.driver.patience import never, patiently
from state_lib.driver.recording import Recording
from state_lib.driver.runs import Step
from state_lib.driver.standing import Standing
from state_lib.driver.stream_time import next_stream_time
from state_lib.driver.ticking import Ticking
from state_lib.driver.versions import check_code
from state_lib.errors import Unavailable
from state_lib.executor.carried import arrived
from state_lib.executor.exchange import RESULT_DDL, exchange_partition
from state_lib.executor.plan import BatchPlan, ExchangePlan, together
from state_lib.failpoints import failpoint
from state_lib.kafka import Kafka, ends
from state_lib.protocol.marker import NO_TIME, Marker, now_ms
from state_lib.protocol.positions import Numbers, Positions
from state_lib.spark.deciding import Deciding, needed
from state_lib.spark.frames import Combiner
from state_lib.spark.functions.lost import explained
from state_lib.spark.run_rows import unjudged

log = structlog.get_logger(__name__)
T = TypeVar("T")
_TICK_S = 10.0
"""What a tick may take: no batch begins meanwhile. It is done again."""


class Batches:
    """Decides and runs batches of one driver. One at a time: callers hold the driver's lock."""

    def __init__(
        self,
        app: Declaration,
        settings: Settings,
        kafka: Kafka,
        combiner: Combiner,
        standing: Standing,
        token: str | None,
    ) -> None:
        self._app, self._settings, self._kafka = app, settings, kafka
        self.has_timers, self.depends_on_cut = app.has_timers, app.depends_on_cut
        """Whether ticks change more than stream time, so that each is for every task; and whether
        recorded batches are repeated one at a time."""
        self._combiner, self._deciding = combiner, Deciding(app, combiner, settings)
        self._direct = Direct(app.id, settings.host_addresses, token)
        self._progress = ProgressLog(kafka, app.id)
        self._progress.connect()
        self._code, self._routing = app.fingerprint, app.routing
        self._limits = self._patiently(lambda: record_limits(kafka.admin(), app))
        self.standing = standing
        self._recording = Recording(
            app.id, self._progress, kafka, standing, self._exchange_s, counts=self.has_timers
        )
        self._ticking = Ticking(standing, app.partitions, self._recording.put, self._run_tick)
        self._group: Consumer = kafka.reader(**{"group.id": app.id})
        self.tag = f"holdfast-{app.id}-{standing.epoch}"  # a user's session has other jobs as well

    def stream(self, batch: DataFrame, to: Numbers, stopped: Callable[[], bool] = never) -> None:
        """The next batch of the stream, ``[positions, to)``, for every task.

        ``stopped``: whether a batch that has not begun is not to be waited for any more.
        """
        self._ticking.drain(self._plan_of_tick, stopped)
        end = self._patiently(lambda: ends(self._kafka.admin(), to), stopped)
        unread = [p for p, start in self.standing.positions.items() if max(end[p], to[p]) > start]
        reached = next_stream_time(self.standing.stream_time_ms, self.standing.maxima, unread)
        failpoint("driver.before_batch")
        plan = self._plan(self.standing.positions, to, reached)

        def put(plan: BatchPlan) -> BatchPlan:
            recorded = self._recording.put(plan, stopped)
            failpoint("driver.after_record")
            return recorded

        def run(plan: BatchPlan) -> None:
            self._run(lambda: self._combined(batch, plan), plan, stopped)

        self._deciding.run(plan, self.standing, put, run, stopped)
        self.standing.positions = to
        self._commit_group(to)
        failpoint("driver.after_batch")

    def begin(self) -> None:
        """Record the start of this driver: later records of earlier drivers do not count.

        Raises:
            ConfigurationError: as `Recording.check`.
            Unavailable: a task is away that knows of records which the topic has lost.
        """
        standing = self.standing
        self._recording.check()
        first = self._plan(standing.markers[0].positions, {}, standing.stream_time_ms, 0)
        begin, beyond = self._recording.begin(replace(first, to=first.from_))
        at, within = [m.positions for m in standing.markers], (self._exchange_s, None)
        if beyond and (away := self._without_rows(at, at, None, within, taken=begin, tasks=beyond)):
            raise next(iter(away.values()))

    def align(
        self,
        batch: DataFrame | None,
        steps: Sequence[Step],
        tasks: Sequence[int],
        stopped: Callable[[], bool] = never,
    ) -> None:
        """Repeat a run of recorded batches for the tasks that missed it, in one commit of each.

        A tick is alone and has no rows: ``batch`` is None. Each judges its own rows by its stream
        time and its now, numbers the sources as it did then, and is recorded again. One of this
        epoch keeps its number, where these tasks can take it: those of the others are without a
        gap.
        """
        last = max(self.standing.markers[task].batch_number for task in tasks)
        plans: list[BatchPlan] = []
        for step in steps:
            recorded = step.batch
            own = recorded.epoch == self.standing.epoch and last < recorded.batch_number
            number = recorded.batch_number if own else None
            plan = replace(
                self._plan(step.at, step.to, recorded.stream_time_ms, number),
                numbered=tuple(sorted(recorded.to)),
                now=recorded.now,
                batch_time=self._time_of(recorded),
                max_future_ms=recorded.max_future_ms,
                limits=recorded.limits,
                tasks=tuple(tasks),
                repeated=True,
                recorded=recorded.offset,
                tick=recorded.tick,
                unknown=recorded.unknown,
            )
            plans.append(plan)
            last = plan.batch_number
        self._progress.append(*(plan.record() for plan in plans))
        failpoint("driver.after_run_record")
        run = together(plans)
        with needed(steps, tasks):
            self._run(lambda: self._combined(batch, run), run, stopped)

    def most_records(self, at: Numbers) -> int:
        """Of a run of batches that begins at some positions: as many as a stream begins with."""
        return self._patiently(lambda: BatchSize(self._settings).within(self._kafka, at))

    def check_code(self, recorded: Recorded, tasks: Sequence[int]) -> None:
        """See `state_lib.driver.versions.check_code`."""
        accepted = self._settings.accept_new_code
        check_code(self._app.id, recorded, self._code, self._routing, accepted, tasks)

    def initial(self, positions: Sequence[Numbers]) -> None:
        """Commit positions that the markers do not know yet, task by task, with no rows.

        Tasks that are parked know them. Stream times stay: some tasks may be in the past, and
        come to that of the others batch by batch.
        """
        at = [m.positions for m in self.standing.markers]
        for error in self._without_rows(at, positions, None, (self._exchange_s, None)).values():
            raise error

    def begin_with(self, rows: DataFrame, tasks: Sequence[int], processor: str) -> None:
        """Let tasks take the initial state of a processor, before whatever else they do.

        Raises:
            Unavailable: one of them was away for as long as an exchange may take.
            ProcessorFailed: the processor raised on it.
        """
        here = self.standing.markers[tasks[0]].positions
        plan = replace(self._plan(here, here, self.standing.stream_time_ms), tasks=tuple(tasks))
        self._run(lambda: rows, plan, initial=processor)
        taken = (self.standing.markers[p].batch_number for p in tasks)
        self.standing.batch_number = max(self.standing.batch_number, *taken)

    def tick(self) -> bool:
        """With nothing unread, move stream time to the greatest event time; False if it is there.

        A tick that only some tasks took is repeated for all. Tasks that are away for as long as a
        batch would wait for them are parked, if a tick may take as long.

        Raises:
            Unavailable: another task did not take it in time.
        """
        standing = self.standing
        end = ends(self._kafka.admin(), standing.positions)
        if any(end[p] > start for p, start in standing.positions.items()):
            return False
        reached = next_stream_time(standing.stream_time_ms, standing.maxima, [])
        moves = reached > standing.stream_time_ms or not standing.is_level
        if not moves and not standing.is_due(reached, now_ms()):
            return False
        if self.has_timers:
            self._ticking.finish()
            self._ticking.tick(self._plan_of_tick(reached))
            return True
        here = [standing.positions] * self._app.partitions
        timeout, park_after = min(_TICK_S, self._exchange_s), self._settings.park_after_s
        away = self._without_rows(here, here, reached, (timeout, min(park_after, timeout)))
        if park_after <= timeout:
            gone = self._direct.gone(away)
            if set(standing.present) - set(gone):
                self._park(gone)
        for task, why in away.items():
            if task not in standing.parked:
                raise why
        return True

    def _plan_of_tick(self, reached: int | None = None) -> BatchPlan:
        here = self.standing.positions
        return self._plan(here, here, self.standing.stream_time_ms if reached is None else reached)

    def _run_tick(self, plan: BatchPlan) -> None:
        self._run(lambda: self._combined(None, plan), plan)

    @property
    def _exchange_s(self) -> float:
        return self._settings.exchange_timeout_s

    def _without_rows(
        self,
        from_: Sequence[Numbers],
        to: Sequence[Numbers],
        reached: int | None,
        within: tuple[float, float | None],
        *,
        taken: int = -1,
        tasks: Sequence[int] | None = None,
    ) -> dict[int, Unavailable]:
        """A commit of every task that is there, with no rows. It is recorded, and covers none.

        ``reached``: that of all of them; None: each keeps its own. ``within``: ``timeout_s`` and
        ``patience_s`` as in `ExchangePlan`. ``taken``: offset of the record that counts as the
        last which they took; -1: as before. ``tasks``: those that are meant; None: all there are.

        Returns the tasks that did not take it.
        """
        plan = self._plan(
            to[0], to[0], self.standing.stream_time_ms if reached is None else reached
        )
        self._progress.append(plan.record())
        self.standing.told = plan.stream_time_ms

        def own(task: int) -> ExchangePlan:
            stays = self.standing.markers[task].stream_time_ms
            batch = replace(
                plan,
                from_=Positions(from_[task]),
                to=Positions(to[task]),
                stream_time_ms=stays if reached is None else reached,
                recorded=taken,
            )
            whole = replace(self._exchange_plan(batch), processors=())  # they need Spark
            return replace(whole, timeout_s=within[0], patience_s=within[1])

        those = self.standing.present if tasks is None else tasks
        done = self._direct.commit({task: own(task) for task in those})
        for task, marker in done.items():
            if isinstance(marker, Marker):
                self.standing.markers[task] = marker
        return {task: error for task, error in done.items() if isinstance(error, Unavailable)}

    def close(self) -> None:
        """Free Kafka clients."""
        self._group.close()

    def _time_of(self, recorded: Recorded) -> int:
        """Processing time; older records without one have the wall time."""
        return max(recorded.now, recorded.batch_time) if self.has_timers else NO_TIME

    def _plan(
        self, from_: Numbers, to: Numbers, reached: int, number: int | None = None
    ) -> BatchPlan:
        """``number``: of one that has a number; None: the next."""
        self.standing.batch_number += number is None
        parked, now = tuple(sorted(self.standing.parked)), now_ms()
        return BatchPlan(
            epoch=self.standing.epoch,
            batch_number=self.standing.batch_number if number is None else number,
            from_=Positions(from_),
            to=Positions(to),
            stream_time_ms=reached,
            now=now,
            batch_time=max(now, self.standing.batch_time) if self.has_timers else NO_TIME,
            max_future_ms=int(self._settings.max_future_s * 1000),
            topic_ids=self.standing.topic_ids,
            code=self._code,
            routing=self._routing,
            limits=self._limits,
            recorded_in=self.standing.log,
            tasks=tuple(self.standing.present) if parked else None,
            parked=parked,
        )

    def _exchange_plan(self, batch: BatchPlan) -> ExchangePlan:
        return ExchangePlan(
            app=self._app.id,
            partitions=self._app.partitions,
            kept=tuple(verb.kept for verb in self._app.aggregations),
            batch=replace(batch, run=()),
            hosts=self._direct.hosts,
            token=self._direct.token,
            timeout_s=self._settings.exchange_timeout_s,
            patience_s=min(self._settings.park_after_s, self._settings.exchange_timeout_s),
            processors=tuple(verb.processor for verb in self._app.processes),
        )

    def _run(
        self,
        combined: Callable[[], DataFrame],
        plan: BatchPlan,
        stopped: Callable[[], bool] = never,
        initial: str = "",
    ) -> None:
        """Bring a batch to its tasks; park those that are away, unless all of them are.

        ``combined`` makes what the combiner makes of its rows; ``initial``: they are the initial
        state of this processor, and no task may miss it.

        Raises:
            Unavailable: no task, or no Schema Registry, as long as an exchange may take.
            UnknownSchemas: before any task has seen it.
        """
        deadline = time.monotonic() + self._settings.exchange_timeout_s
        while away := self._patiently(lambda: self._attempt(combined(), plan, initial), stopped):
            if not initial and set(self.standing.present) - set(away):
                self._park(away)
                return
            if stopped() or time.monotonic() > deadline:
                raise next(iter(away.values()))

    def _park(self, away: Mapping[int, Unavailable]) -> None:
        """Leave tasks out until they are back."""
        if not away:
            return
        for task, why in away.items():
            if task not in self.standing.parked:
                log.warning("parked a task", task=f"{self._app.id}/{task}", why=why.message)
            self.standing.parked[task] = why.message
        self.tell_parked()

    def unpark(self, task: int) -> None:
        """A task stands where the others do."""
        del self.standing.parked[task]
        log.info("a parked task is back", task=f"{self._app.id}/{task}")
        self.tell_parked()

    def tell_parked(self) -> None:
        """Record which tasks are parked, for watchers."""
        parked = {str(p): why for p, why in self.standing.parked.items()}
        said = {"kind": "parked", "epoch": self.standing.epoch, "parked": parked, "at": now_ms()}
        with contextlib.suppress(Unavailable):
            self._progress.append(said)

    def _combined(self, batch: DataFrame | None, plan: BatchPlan) -> DataFrame:
        made = self._combiner
        return made.nothing(plan) if batch is None else made.combine(batch, plan)

    def _attempt(
        self, combined: DataFrame, plan: BatchPlan, initial: str
    ) -> dict[int, Unavailable]:
        """One time; returns the tasks that could not be reached.

        Raises:
            RegistryAway, RegistryRefused, UnknownSchemas: of records in Avro; no task has seen it.
        """
        exchange_plan = replace(self._exchange_plan(plan), initial=initial)

        def carry(batches: Any) -> Any:
            return exchange_partition(exchange_plan, batches)

        # tags are per thread, and no other jobs are started by this one
        combined.sparkSession.sparkContext.addJobTag(self.tag)
        try:
            with explained(self._app, self._settings.exchange_timeout_s):
                results = combined.mapInArrow(carry, RESULT_DDL).collect()
        except (PySparkException, Py4JJavaError) as error:
            if found := arrived(error) or unjudged(error, plan):
                raise self._deciding.patient(found) from error
            raise
        return noted(results, plan, self.standing, self._app.partitions)

    def _patiently(self, ask: Callable[[], T], stopped: Callable[[], bool] = never) -> T:
        """Ask Kafka; while it is away, ask again for as long as an exchange would."""
        return patiently(ask, self._settings.exchange_timeout_s, stopped)

    def _commit_group(self, positions: Numbers) -> None:
        """The consumer group shows where we are; nothing depends on it."""
        where = [TopicPartition(t, p, o) for (t, p), o in positions.items()]
        with contextlib.suppress(KafkaException):
            self._group.commit(offsets=where, asynchronous=True)
