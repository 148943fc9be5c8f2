"""What checks look at: gathered once, as plain values. Times are ms since 1970, sizes bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from state_lib.changelog.topics import TopicPlan, plan_topics
from state_lib.protocol.marker import NO_TIME, RESTORING, Marker
from state_lib.specs import Topology


@dataclass(frozen=True)
class TopicSeen:
    """One topic as the brokers describe it.

    Attributes:
        id: Kafka's.
        config: effective values.
        replicas, in_sync: counts by partition.
        leaderless: partitions that nobody can read or write now.
        starts, ends: log start and last stable offset by partition; none where nobody asked.
        untold: settings that brokers hide: ``config`` has their planned values.
    """

    id: str
    config: Mapping[str, str]
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leaderless: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    untold: tuple[str, ...] = ()

    @property
    def partitions(self) -> int:
        """How many."""
        return len(self.replicas)


@dataclass(frozen=True)
class StoreSeen:
    """One store of one task on its host: bytes of a memory store and their bound, else 0."""

    entries: int = 0
    memory_bytes: int = 0
    max_bytes: int = 0


@dataclass(frozen=True)
class TaskSeen:
    """One task, as its host reports it.

    Attributes:
        partition: of it.
        state: ``open``, ``opening``, ``restoring`` or ``quarantined``.
        why: it is not open.
        bytes: of its directory.
        durable: changelog topic → offset up to which the directory would survive a kill; none
            where that is not known.
        stores: by name.
    """

    partition: int
    state: str = "open"
    why: str | None = None
    bytes: int = 0
    durable: Mapping[str, int] = field(default_factory=dict)
    stores: Mapping[str, StoreSeen] = field(default_factory=dict)


@dataclass(frozen=True)
class HostSeen:
    """One configured host.

    Attributes:
        id: of it.
        away: why it did not answer; None if it did.
        tasks: of the application.
        disk_total, disk_free: of the disk that its directories are on; 0 if not reported.
        disk_used: ``(time, bytes used)``, oldest first.
        refused: it is there, and does not accept the token.
    """

    id: str
    away: str | None = None
    tasks: tuple[TaskSeen, ...] = ()
    disk_total: int = 0
    disk_free: int = 0
    disk_used: tuple[tuple[int, int], ...] = ()
    refused: bool = False


@dataclass(frozen=True)
class SnapshotSeen:
    """The newest snapshot of one task.

    Attributes:
        id: of it.
        written_at: time of the commit that it stands at.
        bytes: of its files.
        why_not: a restore could not use it now; None if it could.
        current: it stands at the newest commit.
    """

    id: str
    written_at: int
    bytes: int = 0
    why_not: str | None = None
    current: bool = False


@dataclass(frozen=True)
class DrillSeen:
    """The newest restore drill that came to its end.

    Attributes:
        at: when that was.
        different: tasks whose live stores were not what the snapshot and its tail gave.
        failed: tasks that could not be restored or compared.
    """

    at: int
    different: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()


@dataclass(frozen=True)
class SnapshotsSeen:
    """What storage holds of the application.

    ``newest`` by task, ``broken``: id → why it is not listed, ``away``: storage did not answer,
    ``drill``: None if none is on record where we look.
    """

    url: str
    newest: Mapping[int, SnapshotSeen] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    away: str | None = None
    drill: DrillSeen | None = None


@dataclass(frozen=True)
class LogSample:
    """What reads at some places of one changelog partition found, in the order of the log.

    Attributes:
        partition, start, end: the log's bounds.
        offsets: that the places span; fewer than the log's, or all of it.
        records: in them.
        repeats: records whose key occurs again further on in what was read: dead ones.
        deletes: records without a value.
        first_repeat: offset of the first record whose key had occurred before: what lies beyond
            was never cleaned. -1: there is none.
        before_offsets, before_records: of ``offsets`` and ``records``, those before it: a cleaned
            part has far fewer records in as many offsets.
        record_bytes: mean of key and value, not compressed.
        packed: how many times smaller lz4 makes records, at the place where it does so best.
        live: entries in the task's store, as its host estimates; -1 where that is not known.
        error: why it could not be read to the end.
    """

    partition: int
    start: int
    end: int
    offsets: int = 0
    records: int = 0
    repeats: int = 0
    deletes: int = 0
    first_repeat: int = -1
    before_offsets: int = 0
    before_records: int = 0
    record_bytes: float = 0.0
    packed: float = 1.0
    live: int = -1
    error: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What this installation asks for. ``snapshot_age_ms``: how old the newest one may become."""

    replication: int
    min_insync: int
    snapshot_age_ms: int


@dataclass(frozen=True)
class Facts:
    """Everything that is looked at.

    Attributes:
        topology: as the last driver declared it.
        now: wall time.
        wanted: by the settings.
        topics: those of the application, its sources and outputs, that exist.
        markers: the newest of each task, by partition.
        hosts: all that are configured.
        snapshots: None: nobody looked.
        samples: changelog topic → partitions that were read; None: nobody looked.
        earlier: ``(changelog, partition) → (time, end, first repeat)`` of the last check's samples.
    """

    topology: Topology
    now: int
    wanted: Wanted
    topics: Mapping[str, TopicSeen]
    markers: tuple[Marker, ...] = ()
    hosts: tuple[HostSeen, ...] = ()
    snapshots: SnapshotsSeen | None = None
    samples: Mapping[str, tuple[LogSample, ...]] | None = None
    earlier: Mapping[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)

    @property
    def app(self) -> str:
        """Whose."""
        return self.topology.app

    def plans(self) -> list[TopicPlan]:
        """What is wanted of each topic; progress is kept for as long as the sources are."""
        kept = [int(t.config["retention.ms"]) for t in self._sources() if _deletes(t)]
        held = [t for t in self._sources() if not _deletes(t)]
        longest = -1 if held or not kept or -1 in kept else max(kept)
        return plan_topics(self.topology, longest)

    def existing(self) -> Iterator[tuple[TopicPlan, TopicSeen]]:
        """Topics of the plan that exist."""
        for plan in self.plans():
            if plan.name in self.topics:
                yield plan, self.topics[plan.name]

    def changelogs(self) -> Iterator[tuple[TopicPlan, TopicSeen]]:
        """Those of stores."""
        return ((p, seen) for p, seen in self.existing() if p.store is not None)

    @property
    def stream_time_ms(self) -> int:
        """The least of any task, a parked one's too; `NO_TIME` before the first batch."""
        known = [m.stream_time_ms for m in self.markers if m.stream_time_ms != NO_TIME]
        return min(known, default=NO_TIME)

    @property
    def restoring(self) -> bool:
        """Whether some task is on its way to the past: old windows will be live again."""
        return any(m.state == RESTORING for m in self.markers)

    def _sources(self) -> list[TopicSeen]:
        return [self.topics[s] for s in self.topology.sources if s in self.topics]


def _deletes(topic: TopicSeen) -> bool:
    return "delete" in topic.config["cleanup.policy"]
