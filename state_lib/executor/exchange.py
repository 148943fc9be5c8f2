"""What an executor does with one task's rows: read, merge, commit, in one exchange."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from state_lib.client.flight import FlightHostClient
from state_lib.errors import HoldfastError, Misplaced, Moved, NotFound, Unavailable
from state_lib.executor.merge import Rows, merge, rows_of
from state_lib.executor.outputs import output_keys, output_values
from state_lib.executor.plan import DEAD, DROPPED, BatchPlan, ExchangePlan
from state_lib.executor.process.pace import Pace
from state_lib.failpoints import failpoint
from state_lib.protocol.marker import NO_INITIAL, CommitHeader, Marker
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.stores.pages import Page

if TYPE_CHECKING:
    from state_lib.executor.process.given import InitialRows
    from state_lib.executor.process.run import Told

RESULT = pa.schema(
    [
        ("task", pa.int32()),
        ("marker", pa.binary()),
        ("error", pa.binary()),
        ("raised", pa.binary()),
    ]
)
RESULT_DDL = "task int, marker binary, error binary, raised binary"
"""``raised``: of the dead letters that a user's function has made, as JSON of `Raised`; or null."""
Raised = dict[str, tuple[int, str]]
"""Their reasons: how many there are, and what was raised first."""
_OF_FUNCTIONS = ("failed:", "raised:", "raised-timer:")
"""Others, of Avro for example, have an exception as well."""
_FIRST_WAIT_S, _MOST_WAIT_S = 0.1, 2.0
_LEAST_S = 1.0
"""Time of the last try, at least."""
_Work = Callable[["OpenExchange", Pace], Marker]
"""Does the work of an open exchange, and commits it."""


class OpenExchange(Protocol):
    """An exchange with a task: any number of gets, then changes, then one commit."""

    marker: Marker
    already_done: bool

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Stored values of sorted composite keys; null where absent or expired."""

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        """The first entries of a range, as stored at the marker of the first read."""

    def put(
        self, store: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Changes of a store; a null value deletes."""

    def output(
        self, topic: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Records for an output topic, in the same transaction."""

    def dead_letters(self, letters: pa.BinaryArray) -> None:
        """Unusable records, in the form of `state_lib.host.letters`."""

    def commit(self, header: CommitHeader) -> Marker:
        """Commit what was sent; returns the marker after it."""


@dataclass(frozen=True)
class _Given:
    """Rows of a task: all that came, those of verbs by their numbers; ``raised`` is filled."""

    table: pa.Table | None
    verbs: dict[int, Rows]
    raised: Raised


class TaskClient(Protocol):
    """Reaches tasks: over Flight, or in this process (`state_lib.testing`)."""

    def marker(self, app: str, partition: int, timeout_s: float = ...) -> Marker:
        """The marker of a task."""

    def exchange(
        self,
        app: str,
        partition: int,
        epoch: int,
        batch_number: int,
        timeout_s: float = ...,
        silent_s: float | None = None,
    ) -> AbstractContextManager[OpenExchange]:
        """Open the exchange of one task and batch; see `FlightHostClient.exchange`."""


_clients: dict[tuple[object, str | None], FlightHostClient] = {}


def exchange_partition(
    plan: ExchangePlan, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: partition *p* of the combined frame belongs to task *p*."""
    from pyspark import TaskContext  # noqa: PLC0415 - only there inside a Spark task

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("exchange_partition runs inside Spark tasks only")
    task = context.partitionId()
    received = list(batches)
    table = pa.Table.from_batches(received) if received else None
    if not received and plan.batch.tasks is not None and task not in plan.batch.tasks:
        return
    marker, refusal, raised = None, None, Raised()
    try:
        check_placed(task, table)
        marker = exchange(plan, task, table, _client(plan, task), raised).to_bytes()
    except HoldfastError as error:  # returned to the driver: if raised, Spark would only retry
        if type(error) is HoldfastError:  # of no kind, such as a broken connection: let Spark retry
            raise
        refusal = orjson.dumps(error.to_wire())
    row = [[task], [marker], [refusal], [orjson.dumps(raised) if marker and raised else None]]
    columns = [pa.array(v, f.type) for v, f in zip(row, RESULT, strict=True)]
    yield pa.record_batch(columns, schema=RESULT)


def leave_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In place of `exchange_partition` to warm up Spark: reads all rows, and keeps none."""
    for _ in batches:
        continue
    yield from ()


def check_placed(task: int, table: pa.Table | None) -> None:
    """Refuse rows of other tasks: their keys would be stored where no lookup finds them.

    Raises:
        Misplaced: names the tasks that they belong to, and settings of Spark's to check.
    """
    seen = [] if table is None else pc.unique(table.column("task")).to_pylist()
    if set(seen) <= {task}:
        return
    raise Misplaced(
        f"Spark brought rows of tasks {sorted(seen)} into the partition of task {task}, which "
        "commits nothing. Look for settings of the session that change how rows are exchanged, "
        "spark.sql.adaptive.enabled and spark.sql.requireAllClusterKeysForDistribution first",
        task=task,
        seen=sorted(seen),
    )


def exchange(
    plan: ExchangePlan,
    task: int,
    table: pa.Table | None,
    client: TaskClient,
    raised: Raised | None = None,
) -> Marker:
    """Bring a task's rows into its stores; try again while its host is away or opening.

    An initial state may take several commits, each with the next number. ``raised`` is filled.

    Raises:
        Superseded, Realign: this driver must stop or align; trying again would not help.
        Unavailable: for ``plan.patience_s`` the host was away, was silent in the middle of an
            exchange, or refused it; or it was not done within ``plan.timeout_s``.
    """
    if not plan.initial:
        verbs = {} if table is None else _fold(plan, table)
        rows = _Given(table, verbs, Raised() if raised is None else raised)
        return _exchanged(plan, task, client, partial(_run, plan, task, rows))
    from state_lib.executor.process.given import InitialRows  # noqa: PLC0415 - much of PySpark

    given = None if table is None else InitialRows(table, plan.beginning)
    while True:
        marker = _exchanged(plan, task, client, partial(_begun, plan, task, given))
        if plan.initial in marker.initial:
            return marker
        plan = replace(plan, batch=replace(plan.batch, batch_number=marker.batch_number + 1))


def _exchanged(plan: ExchangePlan, task: int, client: TaskClient, work: _Work) -> Marker:
    """One commit of `exchange`, by this try or by another copy of the Spark task."""
    deadline = time.monotonic() + plan.timeout_s
    patience_s = plan.timeout_s if plan.patience_s is None else plan.patience_s
    patience = time.monotonic() + patience_s
    wait, reached = _FIRST_WAIT_S, False
    while True:
        pace = Pace(task, max(_LEAST_S, deadline - time.monotonic()))
        try:
            silent_s = None
            if patience_s < plan.timeout_s:
                _look(plan, task, client, patience - time.monotonic())
                if not reached:  # once: a host that answers but refuses counts as away after that
                    patience = time.monotonic() + patience_s
                silent_s, reached = patience_s, True
            batch, left = plan.batch, max(_LEAST_S, deadline - time.monotonic())
            with client.exchange(
                plan.app, task, batch.epoch, batch.batch_number, left, silent_s
            ) as open_exchange:
                if open_exchange.already_done or _is_taken(batch, open_exchange.marker):
                    return open_exchange.marker
                return work(open_exchange, pace)
        except Moved:  # another copy of this Spark task has committed: no refusal
            reached = False
            if time.monotonic() > deadline:
                raise
        except Unavailable:
            patience += pace.busy_s  # processors' own time is not the host's
            if time.monotonic() > min(patience, deadline):
                raise
        time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        wait = min(wait * 2, _MOST_WAIT_S)


def _is_taken(batch: BatchPlan, marker: Marker) -> bool:
    """Whether a task has taken a tick, maybe under another number: positions do not show it."""
    return batch.tick and 0 <= batch.recorded <= marker.taken(batch.recorded_in)


def _look(plan: ExchangePlan, task: int, client: TaskClient, within_s: float) -> None:
    """Raise Unavailable if the host does not answer: a hung one would block a whole exchange."""
    with contextlib.suppress(NotFound):  # the host learns of the application by the exchange
        client.marker(plan.app, task, max(_LEAST_S, within_s))


def _client(plan: ExchangePlan, task: int) -> FlightHostClient:
    """This worker's connection to a task's host; Python workers have one thread and are reused."""
    address = owner_of(plan.app, task, plan.hosts)
    return _clients.setdefault((address, plan.token), FlightHostClient(address, plan.token))


def _fold(plan: ExchangePlan, table: pa.Table) -> dict[int, Rows]:
    kinds = set(pc.unique(table.column("kind")).to_pylist())
    verbs = enumerate(plan.kept)
    return {i: rows_of(table, i, verb) for i, verb in verbs if i in kinds}


def _run(
    plan: ExchangePlan,
    task: int,
    given: _Given,
    open_exchange: OpenExchange,
    pace: Pace,
) -> Marker:
    table, verbs = given.table, given.verbs
    stored = {i: open_exchange.get(plan.kept[i].store.name, rows.keys) for i, rows in verbs.items()}
    counts: dict[str, int] = {}
    for i, rows in verbs.items():
        verb = plan.kept[i]
        merged = merge(rows, stored.pop(i), verb)
        counts |= {f"wrapped:{verb.store.name}.{f}": n for f, n in merged.wrapped.items()}
        open_exchange.put(verb.store.name, rows.keys, merged.values, merged.timestamps)
        if verb.outputs:
            keys, values = output_keys(verb, rows), output_values(verb, rows, merged)
            for topic in verb.outputs:
                open_exchange.output(topic, keys, values, merged.timestamps)
    told = _processed(plan, task, open_exchange, table, pace)
    letters = [] if told is None else told.letters
    maxima = Positions()
    if table is not None:
        dead = table.filter(pc.equal(table.column("kind"), DEAD)).column("key").unique()
        letters = [*dead.to_pylist(), *letters]
        counts |= _dropped(table)
        maxima = _maxima(plan, table)
    if letters:
        open_exchange.dead_letters(pa.array(letters, pa.binary()))
    given.raised.clear()  # of an earlier try
    given.raised.update(_count(letters, counts))
    batch, begun = plan.batch, open_exchange.marker.initial
    new = [p.name for p in plan.processors if p.fold is None and p.name not in begun]
    failpoint("exchange.before_commit")
    marker = open_exchange.commit(
        CommitHeader(
            epoch=batch.epoch,
            batch_number=batch.batch_number,
            from_=batch.from_,
            to=batch.to,
            stream_time_ms=batch.stream_time_ms,
            topic_ids=batch.topic_ids,
            maxima=maxima,
            dropped=counts,
            recorded=batch.recorded,
            recorded_in=batch.recorded_in,
            batch_time_ms=batch.batch_time,
            due=None if told is None else told.due,
            initial=dict.fromkeys(new, NO_INITIAL),
            overdue=told is not None and told.overdue,
        )
    )
    failpoint("exchange.after_commit")
    return marker


def _begun(
    plan: ExchangePlan,
    task: int,
    given: InitialRows | None,
    open_exchange: OpenExchange,
    pace: Pace,
) -> Marker:
    """Commit a part of a processor's initial state; the task's positions do not change."""
    from state_lib.executor.process.run import run_initial  # noqa: PLC0415 - imports much of PySpark

    here, batch, name = open_exchange.marker, plan.batch, plan.initial
    none: Mapping[str, Any] = {"key": None, "rows": 0}
    before = here.begun.get(name, none)
    after = None if before["key"] is None else bytes.fromhex(before["key"])
    part = run_initial(plan, task, open_exchange, given, after, pace)
    earliest = {mode: min(at, part.due.get(mode, at)) for mode, at in here.due.items()}
    rows, left = before["rows"] + part.rows, dict(here.begun)
    left.pop(name, None)
    if part.to is not None:
        left[name] = {"key": part.to.hex(), "rows": rows}
    return open_exchange.commit(
        CommitHeader(
            epoch=batch.epoch,
            batch_number=batch.batch_number,
            from_=here.positions,
            to=here.positions,
            stream_time_ms=here.stream_time_ms,
            batch_time_ms=batch.batch_time,
            due={**part.due, **earliest},
            initial={} if part.to is not None else {name: rows},
            begun=left,
            overdue=here.overdue,
        )
    )


def _processed(
    plan: ExchangePlan,
    task: int,
    open_exchange: OpenExchange,
    table: pa.Table | None,
    pace: Pace,
) -> Told | None:
    """Run the application's processors; None if it has none."""
    if not plan.processors:
        return None
    from state_lib.executor.process.run import run_all  # noqa: PLC0415 - imports much of PySpark

    return run_all(plan, task, open_exchange, table, pace)


def _dropped(table: pa.Table) -> dict[str, int]:
    counts: dict[str, int] = {}
    rows = table.filter(pc.equal(table.column("kind"), DROPPED))
    for reason, n in zip(rows.column("key").to_pylist(), rows.column("n").to_pylist(), strict=True):
        counts[reason.decode()] = counts.get(reason.decode(), 0) + n
    return counts


def _count(letters: list[bytes], counts: dict[str, int]) -> Raised:
    """Adds them to ``counts`` by their reasons; returns those that a user's function has made."""
    raised = Raised()
    for letter in letters:
        said = orjson.loads(letter)
        reason, error = said["reason"], said.get("exception")
        counts[reason] = counts.get(reason, 0) + 1
        if error is not None and reason.startswith(_OF_FUNCTIONS):
            many, first = raised.get(reason, (0, error))
            raised[reason] = many + 1, first
    return raised


def _maxima(plan: ExchangePlan, table: pa.Table) -> Positions:
    sources = plan.batch.sources()
    src = table.column("src").to_numpy()
    ts = pc.fill_null(table.column("ts"), -1).to_numpy()
    best = np.full(len(sources), -1, np.int64)
    np.maximum.at(best, src, ts)
    return Positions({sources[i]: int(t) for i, t in enumerate(best) if t >= 0})
