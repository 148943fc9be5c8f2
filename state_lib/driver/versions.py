"""A batch that some tasks have committed is finished by the code that began it.

A batch is repeated for the tasks that missed it (`state_lib.spark.align`). If a job that was edited
meanwhile repeated it, rows could go to other tasks than before: a row would be lost, or counted
twice.

The code of a processor may change in between, as it affects only the rows of its own task;
otherwise a processor that raises on a row could not be fixed.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from state_lib.changelog.claims import newest_claim
from state_lib.changelog.progress import ProgressLog, Recorded, effective
from state_lib.changelog.topics import progress_topic
from state_lib.config import Settings
from state_lib.drivers.members import living_drivers
from state_lib.drivers.watched import Watched
from state_lib.errors import CodeChanged, Unavailable
from state_lib.kafka import Kafka, Partition, require
from state_lib.protocol.marker import RESTORING, Marker
from state_lib.specs import Topology
from state_lib.task.opening import newest_marker

log = structlog.get_logger(__name__)
ENDING_S = 30.0
"""How long a driver may take to end, after its last batch."""


def may_finish(recorded: Recorded, code: str, routing: str) -> bool:
    """Whether a job may finish a batch that some tasks have done: its rows go to the same tasks.

    Always for a tick, which has no rows, and for an older Holdfast's record without a fingerprint.

    Args:
        recorded: the batch.
        code: fingerprint of the job; see `Declaration.fingerprint`.
        routing: see `Declaration.routing`.
    """
    if recorded.tick or recorded.code in (None, code):
        return True
    return bool(routing) and recorded.routing == routing


def check_code(
    app: str,
    recorded: Recorded,
    code: str,
    routing: str,
    accepted: str,
    tasks: Sequence[int],
) -> None:
    """Refuse to finish a batch that other code began.

    Args:
        app: the application.
        recorded: the batch.
        code: of this job; see `may_finish`.
        routing: of this job.
        accepted: fingerprint of the other code, if a person accepts the risk.
        tasks: those that missed the batch.

    Raises:
        CodeChanged: names both, the batch, and how to go on.
    """
    if may_finish(recorded, code, routing):
        return
    batch = f"batch {recorded.batch_number} of epoch {recorded.epoch}"
    if recorded.code == accepted:
        log.warning("finishing a batch of other code", batch=batch, theirs=accepted, ours=code)
        return
    raise CodeChanged(
        f"{batch} of application {app!r} was begun by code {recorded.code}, and tasks "
        f"{list(tasks)} have not committed it yet; this job is code {code}. Finished by it, rows "
        "that belong to another task now would be lost or counted twice. Start the code of before "
        f"once: it finishes the batch, and 'holdfast stop {app}' ends it. Or, to take that risk, "
        f"set HOLDFAST_ACCEPT_NEW_CODE={recorded.code}",
        app=app,
        theirs=recorded.code,
        ours=code,
        epoch=recorded.epoch,
        batch_number=recorded.batch_number,
        tasks=list(tasks),
    )


def make_way(
    watched: Watched,
    kafka: Kafka,
    topology: Topology,
    code: str,
    routing: str,
    settings: Settings,
) -> None:
    """Before a claim: ask a driver with other code to end at a batch's edge, and check that it did.

    A claim ends the other driver at once, maybe within a batch, and publishes the new topology: the
    old code might not fit it any more.

    The other driver is not asked while parked tasks have missed batches, which it alone may finish.

    Raises:
        CodeChanged: it left a batch unfinished, or has parked tasks to bring back.
        Unavailable: it did not end in time; nothing was claimed.
    """
    claim = newest_claim(kafka, topology.app)
    if claim is None or claim.notice is not None or claim.by.get("code") in (None, code):
        return
    log.info("the job has changed", code=code, before=claim.by["code"], file=claim.by.get("file"))
    if others := _others(watched, kafka, topology.app):
        _check_parked(kafka, topology, claim.epoch, code, routing, settings.accept_new_code)
        watched.control.ask_to_make_way(others, f"a driver with other code ({code}) takes over")
        deadline = time.monotonic() + settings.stop_timeout_s + ENDING_S
        while others := _others(watched, kafka, topology.app):
            if watched.stopping.is_set():
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"driver {others[0]} of {topology.app!r} runs other code and does not end; it "
                    "is asked again. Look at its log, or end it",
                    app=topology.app,
                    drivers=others,
                )
            time.sleep(0.25)
    markers = [newest_marker(kafka, topology, p) for p in range(topology.partitions)]
    if any(m.state == RESTORING for m in markers):
        return  # the final positions are not known yet: `align` checks again
    chain = Chain(
        lambda: effective(
            ProgressLog(kafka, topology.app).read(_since(kafka, topology.app, markers))
        )
    )
    found = behind([m.positions for m in markers], chain, [m.published_to for m in markers])
    if found is not None and found.batch is not None and len(found.tasks) < len(markers):
        accepted = settings.accept_new_code
        check_code(topology.app, found.batch, code, routing, accepted, found.tasks)


def _check_parked(
    kafka: Kafka, topology: Topology, epoch: int, code: str, routing: str, accepted: str
) -> None:
    """Refuse to end the driver of an epoch while it has parked tasks to bring back."""
    markers = [newest_marker(kafka, topology, p) for p in range(topology.partitions)]
    progress, since = ProgressLog(kafka, topology.app), _since(kafka, topology.app, markers)
    parked = progress.parked(epoch, since)
    chain = Chain(lambda: effective(progress.read(since)))
    next_of = {p: chain.next_of(markers[p].positions) for p in parked}
    missed = {
        p: b
        for p, b in next_of.items()
        if b and b.code != accepted and not may_finish(b, code, routing)
    }
    if not missed:
        return
    first = next(iter(missed.values()))
    raise CodeChanged(
        f"tasks {list(missed)} of application {topology.app!r} are parked, as their hosts are away "
        f"or restore them, and have missed batches of code {first.code} since batch "
        f"{first.batch_number} of epoch {first.epoch}; this job is code {code}. Finished by it, "
        "rows that belong to another task now would be lost or counted twice. The driver of before "
        "goes on, and brings them back: see to their hosts ('holdfast status' names them), and "
        "start this job when no task is parked. Or, to take that risk, set "
        f"HOLDFAST_ACCEPT_NEW_CODE={first.code}",
        app=topology.app,
        theirs=first.code,
        ours=code,
        epoch=first.epoch,
        batch_number=first.batch_number,
        tasks=list(missed),
    )


def cut_off(markers: Sequence[Marker], log: str, start: int) -> list[int]:
    """Tasks that may have missed ticks which the progress topic has lost.

    Only tasks behind others, or behind where outputs were written: if the topic was cut while the
    whole application was idle, nobody missed anything.

    Args:
        markers: of all tasks.
        log: Kafka's id of the topic.
        start: offset of its oldest record.
    """
    taken = [m.taken(log) for m in markers]
    told = [m.published for m in markers if m.published.get("recorded_in", "") == log]
    newest = max(*taken, *(int(one.get("recorded", -1)) for one in told), -1)
    return [p for p, at in enumerate(taken) if 0 <= at < newest and at + 1 < start]


def _since(kafka: Kafka, app: str, markers: Sequence[Marker]) -> int:
    """Offset in the progress log up to which all tasks have taken records; -1 in another topic."""
    topic = progress_topic(app)
    log = require(kafka.admin(), [topic])[topic].id
    return min(m.recorded if m.recorded_in in ("", log) else -1 for m in markers)


def _others(watched: Watched, kafka: Kafka, app: str) -> list[str]:
    return [d for d in living_drivers(kafka, app) if d != watched.presence.who.id]


@dataclass(frozen=True)
class Behind:
    """The tasks that are furthest behind, their positions, and their next batch.

    ``batch`` is None if no record covers the positions.
    """

    positions: dict[Partition, int]
    tasks: list[int]
    batch: Recorded | None


class Chain:
    """The `effective` batches from the hindmost task on, searched once from front to back.

    Tasks are looked up from the hindmost on, so each search begins where the last one ended.

    Args:
        read: returns the batches; called once, and only if they are needed.
        read_ticks: returns the ticks that count.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[Recorded]],
        read_ticks: Callable[[], Sequence[Recorded]] = lambda: (),
    ) -> None:
        self._read, self._read_ticks = read, read_ticks
        self._batches: Sequence[Recorded] | None = None
        self._ticks: Sequence[Recorded] | None = None
        self.at = 0
        """Index of the batch that was found last, where the next search begins."""

    @property
    def left(self) -> int:
        """Number of batches from the last found one on."""
        return len(self._batches or ()) - self.at

    def next_of(self, positions: Mapping[Partition, int]) -> Recorded | None:
        """The next batch of a task at these positions; None if no record covers them."""
        if self._batches is None:
            self._batches = self._read()
        for at in itertools.chain(range(self.at, len(self._batches)), range(self.at)):
            if self._batches[at].covers(positions):
                self.at = at
                return self._batches[at]
        return None

    def tick_of(
        self, positions: Mapping[Partition, int], since: int, before: Recorded | None
    ) -> Recorded | None:
        """The next tick of a task at these positions, if it comes before a batch.

        Args:
            positions: of the task.
            since: offset of the last record that it took.
            before: its next batch.
        """
        if self._ticks is None:
            self._ticks = sorted(self._read_ticks(), key=lambda tick: tick.offset)
        for tick in self._ticks[bisect_right(self._ticks, since, key=lambda t: t.offset) :]:
            if before is not None and tick.offset > before.offset:
                return None
            if all(tick.to.get(p, at) == at for p, at in positions.items()):
                return tick
        return None


def behind(
    at: Sequence[Mapping[Partition, int]],
    chain: Chain,
    published: Sequence[Mapping[Partition, int]] = (),
    taken: Sequence[int] = (),
) -> Behind | None:
    """The tasks furthest behind the foremost positions, or that missed a tick; None if none are.

    Only partitions that all tasks know count: initial positions may be committed in part.

    Args:
        at: positions by task.
        chain: the batches that they may have next.
        published: positions up to which outputs were written, by task: see `Marker.published_to`.
        taken: offset of the last record that each task took; empty: ticks are not looked for.
    """
    common = set.intersection(*(set(x) for x in at))
    shared = [{p: x[p] for p in common} for x in at]
    target = {p: max(x.get(p, 0) for x in (*shared, *published)) for p in common}
    late = [x for x in shared if x != target]
    least = min(late, key=lambda x: sum(x.values()), default=target)
    tasks = [i for i, x in enumerate(shared) if x == least]
    batch = chain.next_of(least) if late else None
    missed = {i: chain.tick_of(least, taken[i], batch) for i in tasks} if taken else {}
    found = [tick for tick in missed.values() if tick is not None]
    if found:
        first = min(found, key=lambda tick: tick.offset)
        return Behind(least, [i for i, tick in missed.items() if tick == first], first)
    return Behind(least, tasks, batch) if late else None
