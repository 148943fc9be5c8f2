"""Which code may go on: a batch that some tasks have committed is finished by the code it began in.

A batch is repeated for the tasks that missed it (`state_lib.spark.align`). Were it repeated by a
job that was edited meanwhile, a row could go to a task that has done the batch already, or come
from one that has: lost, or counted twice.

What a processor does with its rows is its own task's affair: that may change in between, or a
processor that raises on a row of one task could not be mended.
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
"""How long a driver may take to end beyond what its last batch may take."""


def may_finish(recorded: Recorded, code: str, routing: str) -> bool:
    """Whether a job may do a batch that some tasks have done: rows go to the same tasks.

    A tick has none. One that an older Holdfast recorded says nothing.

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
        routing: of this job, too.
        accepted: fingerprint of the other code, if a person takes the risk.
        tasks: that missed the batch.

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
    """Before a claim: let a driver of other code come to a batch's edge, and see that it did.

    A claim ends the other driver at once, maybe within a batch, and what it declares counts from
    then on: the code of before might not fit any more.

    While tasks are parked that have missed batches, it is not asked to: it alone may finish them.

    Raises:
        CodeChanged: it has left a batch half done, or has yet to bring back a parked task.
        Unavailable: it does not come to an edge, for a while; nothing was claimed.
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
        return  # where they will stand is not known yet: `align` looks once more
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
    """Refuse to end the driver of an epoch while it has tasks to bring back."""
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
    """Tasks that may have missed ticks which the progress topic does not hold any more.

    Only such as stand behind others, or behind where outputs were written: a topic that was cut
    while all of them slept has nothing that they missed.

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
    """Offset in the progress log that all of them have taken; -1: of one that was made anew."""
    topic = progress_topic(app)
    log = require(kafka.admin(), [topic])[topic].id
    return min(m.recorded if m.recorded_in in ("", log) else -1 for m in markers)


def _others(watched: Watched, kafka: Kafka, app: str) -> list[str]:
    return [d for d in living_drivers(kafka, app) if d != watched.presence.who.id]


@dataclass(frozen=True)
class Behind:
    """The tasks that stand furthest behind, where that is, and the batch that they have next.

    ``batch`` is None if no record covers the positions.
    """

    positions: dict[Partition, int]
    tasks: list[int]
    batch: Recorded | None


class Chain:
    """The `effective` batches from where any of the tasks stands, gone through once.

    What tasks have next never lies before what those that stood further behind had next: each
    search begins where the last one ended.

    Args:
        read: gives the batches; called only if they are needed, and once.
        read_ticks: gives the ticks that stand.
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
        """Where the next search begins: at the batch that was found last."""

    @property
    def left(self) -> int:
        """How many batches there are from the one on that was found last."""
        return len(self._batches or ()) - self.at

    def next_of(self, positions: Mapping[Partition, int]) -> Recorded | None:
        """The batch that a task at these positions has next; None if no record covers them."""
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
        """The tick that a task at these positions has next, before a batch.

        Args:
            positions: where the task stands.
            since: offset of the record that it took last.
            before: the batch that it has next.
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
    """Which tasks are not at the foremost positions, or missed a tick; None if all are.

    Only partitions count that all tasks know: initial positions may be half committed.

    Args:
        at: positions by task.
        chain: of the batches that they may have next.
        published: up to where outputs were written, by task: see `Marker.published_to`.
        taken: by task, the offset of the record that it took last; without, no tick is looked for.
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
