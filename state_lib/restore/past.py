"""Going back in time: whether a task can go back to a snapshot, and what that means for it.

Nothing here depends on the changelogs' past: the snapshot is whole, and differences are written
against the live store. So its age is no matter, and neither are tombstones that were cleaned away.
What has to be there is what is read again: the sources, and the batches as they were recorded.
That is looked at by whoever asks (`reaching`): hosts have no right to read either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from state_lib.changelog.progress import ProgressLog, Recorded, effective, repeats
from state_lib.changelog.topics import progress_topic
from state_lib.errors import HoldfastError, InvalidRequest, TopicRecreated
from state_lib.evolution import contradictions
from state_lib.kafka import Kafka, ends, require, starts
from state_lib.processing import TIMERS
from state_lib.protocol.marker import RESTORING, RUNNING, Marker
from state_lib.protocol.positions import Numbers, Positions
from state_lib.protocol.stored import from_stored, to_stored
from state_lib.restore.candidates import FETCH_BYTES_PER_S, OPEN_S
from state_lib.snapshots.listing import find
from state_lib.snapshots.manifest import Manifest
from state_lib.specs import Topology
from state_lib.stores.digest import StoreDigest
from state_lib.stores.task_stores import layout_of

# Measured on one core of a small machine: only for estimates that are shown.
_COMPARED_PER_S = 300_000
_SPACE = 2  # the snapshot beside the stores, and the differences in them
_LATER = "take a later one ('holdfast snapshot list')"


@dataclass(frozen=True)
class PastPlan:
    """How one task would go back in time: a value that is printed, approved and sent.

    Attributes:
        task: ``<app>/<partition>``.
        snapshot: id of the snapshot whose state it would have.
        epoch, batch_number: the commit that this is the state of; ``written_at`` is when it was
            made (wall ms), ``positions`` and ``stream_time_ms`` are where it stood, ``topic_ids``,
            ``recorded`` and ``recorded_in`` as `Marker` has them.
        from_epoch, from_batch_number: the newest commit.
        published: up to where outputs were written: so far the sources are read again.
        batches, records: that are read again; offsets, at least the records. Batches, and
            ``codes``, the jobs that they were recorded by, are known once `reaching` has looked.
        bytes: of the snapshot; what this disk has already is not fetched.
        seconds: until the task is back, estimated: to fetch the snapshot, and to compare it with
            the stores; what differs is written meanwhile. Batches are repeated after that.
        needed_bytes, free_bytes: of disk; the former at most, about. 0 of older hosts, which do
            not say; what is free only a host knows.
        republish: whether outputs up to ``published`` are written once more.
        is_back: it went there already, and no driver has claimed it since.
        discards: what is not there any more afterwards.
        ticks: whether there are processors: ticks are repeated, too.
        back_by, back_at: who took it back in time last, and when (wall ms), wherever to; "" and 0:
            nobody. ``under_way``: it is on its way there still.
    """

    task: str
    snapshot: str
    epoch: int
    batch_number: int
    written_at: int
    positions: Mapping[str, Mapping[str, int]]
    topic_ids: Mapping[str, str]
    recorded: int
    stream_time_ms: int
    from_epoch: int
    from_batch_number: int
    published: Mapping[str, Mapping[str, int]]
    records: int
    bytes: int
    republish: bool
    seconds: float = 0.0
    needed_bytes: int = 0
    free_bytes: int = 0
    is_back: bool = False
    batches: int = 0
    codes: tuple[str, ...] = ()
    discards: tuple[str, ...] = ()
    ticks: bool = False
    back_by: str = ""
    back_at: int = 0
    under_way: bool = False
    recorded_in: str = ""

    @property
    def is_nothing(self) -> bool:
        """Whether it stands there."""
        return self.is_back or (self.epoch, self.batch_number) == (
            self.from_epoch,
            self.from_batch_number,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return to_stored(asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PastPlan:
        """From plain data."""
        tuples = {name: tuple(data[name]) for name in ("codes", "discards")}
        return cls(**from_stored({**data, **tuples}))


def plan_past(
    topology: Topology,
    partition: int,
    newest: Marker,
    url: str,
    snapshot: str,
    *,
    republish: bool = False,
) -> PastPlan:
    """See whether a task can go back to a snapshot. Changes nothing.

    Args:
        topology: of the application.
        partition: of the task.
        newest: its newest marker.
        url: of all snapshots.
        snapshot: id of one of this task.
        republish: whether outputs are to be written again.

    Raises:
        NotFound, SnapshotInvalid: there is no such snapshot, or it cannot be used.
        InvalidRequest: it does not fit the stores or the sources; says why.
        StorageUnavailable: the storage is away.
    """
    manifest = find(url, topology.app, partition, snapshot)
    then, task = manifest.marker, f"{topology.app}/{partition}"
    held = {s.name for s in manifest.stores}
    if added := [s.name for s in topology.stores if s.name not in held]:
        raise _refused(
            task,
            snapshot,
            f"it does not hold the stores {added}, which were added later; take one that was made "
            "after they were",
        )
    check_stores(topology, manifest)
    begin, published = then.positions, newest.published_to
    if unknown := sorted(published.keys() - begin.keys()):
        raise _refused(
            task,
            snapshot,
            f"it knows nothing of the source partitions {unknown}, which were read later; take one "
            "that was made after their first batch",
        )
    plan = PastPlan(
        task=task,
        snapshot=manifest.id,
        epoch=then.epoch,
        batch_number=then.batch_number,
        written_at=then.written_at,
        positions=then.positions.to_json(),
        topic_ids=then.topic_ids,
        recorded=then.recorded,
        recorded_in=then.recorded_in,
        stream_time_ms=then.stream_time_ms,
        from_epoch=newest.epoch,
        from_batch_number=newest.batch_number,
        published=published.to_json(),
        records=sum(max(0, published.get(p, 0) - offset) for p, offset in begin.items()),
        bytes=manifest.size_bytes,
        republish=republish,
        seconds=_seconds(manifest),
        needed_bytes=_SPACE * manifest.size_bytes,
        ticks=any(s.state.startswith(TIMERS) for s in topology.stores),
        back_by=str(newest.back.get("by", "")),
        back_at=int(newest.back.get("at", 0)),
        under_way=newest.state == RESTORING,
        is_back=newest.state == RUNNING
        and newest.claim != newest.epoch
        and (newest.back["snapshot"], newest.back["republish"]) == (manifest.id, republish),
    )
    return plan if plan.is_nothing else replace(plan, discards=(_discarded(plan, topology),))


def reaching(kafka: Kafka, plan: PastPlan) -> PastPlan:
    """The same, once it is known that all can be read again that has to be.

    Raises:
        InvalidRequest: a source, or the record of batches, does not reach so far back.
        TopicRecreated: a source is another topic by now.
        MissingTopic: or there is none.
        Unavailable: Kafka is away.
    """
    begin, published = Positions.of(plan.positions), Positions.of(plan.published)
    target = Positions({p: max(o, published.get(p, 0)) for p, o in begin.items()})
    again = {p: offset for p, offset in begin.items() if offset < target[p]}
    if plan.is_nothing or not again:
        return plan
    _check_sources(kafka, plan, again, target)
    batches = _batches(kafka, plan, begin, target)
    codes = {b.code for b in batches if b.code is not None}
    return replace(plan, batches=len(batches), codes=tuple(sorted(codes)))


def check_stores(topology: Topology, manifest: Manifest) -> None:
    """Refuse stores that are not what they were; those that were added count as empty then.

    Raises:
        InvalidRequest: naming what differs.
    """
    held = {s.name: s for s in manifest.stores}
    known = tuple(held[s.name] for s in topology.stores if s.name in held)
    wrong = contradictions(replace(topology, stores=known), topology)
    for spec in topology.stores:  # backends may differ, the order of entries may not
        then, now = (layout_of(s).partition("/")[2] for s in (held.get(spec.name, spec), spec))
        if then != now:
            wrong.append(f"its store {spec.name!r} is laid out as {then}, and now as {now}")
    if wrong:
        why = f"{'; '.join(wrong)}; declare the store as it was then, first"
        raise _refused(manifest.task, manifest.id, why)


def _check_sources(
    kafka: Kafka,
    plan: PastPlan,
    again: Numbers,
    target: Numbers,
) -> None:
    admin = kafka.admin()
    facts = require(admin, {topic for topic, _ in again})
    for topic, known in plan.topic_ids.items():
        if topic in facts and facts[topic].id != known:
            raise TopicRecreated(
                f"{plan.task} cannot go back to snapshot {plan.snapshot}: its source {topic!r} was "
                f"deleted and created again since (its id was {known}, is {facts[topic].id}), and "
                "what it held cannot be read again. Take a later snapshot",
                topic=topic,
                expected_id=known,
                actual_id=facts[topic].id,
            )
    first, end = starts(admin, again), ends(admin, again)
    for place, offset in again.items():
        if first[place] > offset or end[place] < target[place]:
            name = f"{place[0]}/{place[1]}"
            raise _refused(
                plan.task,
                plan.snapshot,
                f"source {name} holds offsets [{first[place]}, {end[place]}), and "
                f"[{offset}, {target[place]}) would have to be read again; {_LATER}",
                source=name,
                start=first[place],
                needed=offset,
            )


def _batches(kafka: Kafka, plan: PastPlan, begin: Numbers, target: Positions) -> list[Recorded]:
    """Those that were recorded from there on; all of the range has to be among them."""
    app = plan.task.rpartition("/")[0]
    progress, topic = ProgressLog(kafka, app), progress_topic(app)
    if plan.ticks:
        _check_ticks(plan, topic, require(kafka.admin(), [topic])[topic].id, progress.start())
    for since in (plan.recorded, -1):  # the offset may be another topic's
        found, reached = repeats(begin, target, effective(progress.read(since)))
        if reached == target:
            return found
    raise _refused(
        plan.task,
        plan.snapshot,
        f"{topic} has no record of the batches from {Positions(reached)} to {target}, and "
        f"without them late records would be judged anew; {_LATER}",
    )


def _check_ticks(plan: PastPlan, topic: str, log: str, start: int) -> None:
    """Refuse where ticks since the snapshot may be missing in the progress topic of that id."""
    is_same = plan.recorded_in == log
    if plan.recorded < 0 or (is_same and start <= plan.recorded + 1):
        return
    where = f"begins at offset {start}, behind {plan.recorded}" if is_same else "was made anew"
    raise _refused(
        plan.task,
        plan.snapshot,
        f"{topic} {where}: ticks of processors are not on record, and timers would run in other "
        f"batches; {_LATER}",
    )


def _refused(task: str, snapshot: str, why: str, **details: Any) -> HoldfastError:
    return InvalidRequest(
        f"{task} cannot go back to snapshot {snapshot}: {why}",
        task=task,
        snapshot=snapshot,
        **details,
    )


def _seconds(manifest: Manifest) -> float:
    entries = sum(StoreDigest.parse(told).entries for told in manifest.digests.values())
    fetched = manifest.size_bytes / FETCH_BYTES_PER_S
    return round(OPEN_S + fetched + entries / _COMPARED_PER_S, 1)


def _discarded(plan: PastPlan, topology: Topology) -> str:
    here, there = f"{plan.from_epoch}/{plan.from_batch_number}", f"{plan.epoch}/{plan.batch_number}"
    outputs = ""
    if topology.outputs:
        written = "written once more" if plan.republish else "not written again"
        outputs = f"; outputs up to there are {written}"
    return (
        f"the state of commit {here}, for that of commit {there}: {plan.records:,} offsets of the "
        f"sources are read again{outputs}"
    )
