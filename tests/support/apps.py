"""An application for tests: its topics on a real broker, tasks in-process, commits in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.log import KafkaLog
from state_lib.changelog.topics import changelog_topic, plan_topics
from state_lib.changelog.writer import Records
from state_lib.kafka import Kafka, TopicFacts
from state_lib.keys import window_key
from state_lib.protocol.marker import CommitHeader, Marker
from state_lib.protocol.positions import Positions
from state_lib.specs import DAY_MS, OutputSpec, StoreSpec, Topology
from state_lib.stores.digest import StoreDigest, store_digest
from state_lib.task import Batch, Puts, StateTask, TaskContext
from tests.support.waiting import until

HOUR = 3600 * 1000
NOON = 1_700_000_000_000 - 1_700_000_000_000 % HOUR
"""An event time in 2023, on the hour."""
STAMP = NOON.to_bytes(8, "big")
"""How stored values begin that have it."""
KV = StoreSpec("kv")
TS = StoreSpec("ts", kind="timestamped-key-value")
WIN = StoreSpec("win", kind="window", window_size_ms=HOUR, grace_ms=0, retention_ms=4 * HOUR)
SOURCE = "source"


def at(offset: int) -> Positions:
    """Positions of a source with one partition."""
    return Positions({(SOURCE, 0): offset})


def kv(*pairs: tuple[str, str | None], time: int = NOON) -> Puts:
    """Changes of a key-value or timestamped store."""
    keys = [k.encode() for k, _ in pairs]
    return Puts(keys, [None if v is None else v.encode() for _, v in pairs], [time] * len(keys))


def win(*rows: tuple[str, int, str | None], time: int | None = None) -> Puts:
    """Changes of a window store: key, start, value; the event time is the start unless given."""
    keys = [window_key(k.encode(), start) for k, start, _ in rows]
    values = [None if v is None else v.encode() for _, _, v in rows]
    return Puts(keys, values, [start if time is None else time for _, start, _ in rows])


@dataclass
class App:
    """One application and the tasks that a test opened of it."""

    kafka: Kafka
    topology: Topology
    root: Path
    tasks: list[StateTask] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.topology.app

    @property
    def servers(self) -> str:
        return str(self.kafka.properties["bootstrap.servers"])

    def topic(self, store: str) -> str:
        return changelog_topic(self.name, store)

    def create(self) -> dict[str, TopicFacts]:
        return ensure_topics(self.kafka.admin(), plan_topics(self.topology), 1, 1)

    def context(self, host: str = "host-1", **more: object) -> TaskContext:
        folder = self.root / host
        folder.mkdir(parents=True, exist_ok=True)
        return TaskContext(KafkaLog(self.kafka), host, folder, **more)  # type: ignore[arg-type]

    def task(self, partition: int = 0, host: str = "host-1", **more: object) -> StateTask:
        """A task, not opened."""
        task = StateTask(self.context(host, **more), self.topology, partition)
        self.tasks.append(task)
        return task

    def opened(self, partition: int = 0, host: str = "host-1", **more: object) -> StateTask:
        task = self.task(partition, host, **more)
        task.open()
        return task

    def close(self) -> None:
        for task in self.tasks:
            task.close()


def app_of(
    kafka: Kafka,
    name: str,
    root: Path,
    stores: Sequence[StoreSpec],
    outputs: Sequence[str] = (),
    partitions: int = 1,
) -> App:
    specs = tuple(OutputSpec(topic, stores[0].name) for topic in outputs)
    return App(kafka, Topology(name, partitions, tuple(stores), specs, (SOURCE,)), root)


def batch(  # noqa: PLR0913 - a commit has that many parts
    marker: Marker,
    puts: Mapping[str, Puts] | None = None,
    *,
    n: int | None = None,
    clock: int = NOON,
    rows: int = 10,
    outputs: Sequence[Records] = (),
    dropped: Mapping[str, int] | None = None,
    read_at: tuple[int, int] | None = None,
) -> Batch:
    """The batch that follows a marker."""
    to = Positions({k: o + rows for k, o in (marker.positions or at(0)).items()})
    header = CommitHeader(
        epoch=marker.epoch,
        batch_number=marker.batch_number + 1 if n is None else n,
        from_=marker.positions,
        to=to,
        stream_time_ms=clock,
        maxima=at(clock),
        dropped=dropped or {},
        read_at=read_at,
    )
    return Batch(header, puts or {}, outputs)


def claimed(task: StateTask, epoch: int = 0) -> Marker:
    return task.claim(task.topology, epoch)


def shown(task: StateTask) -> StateTask:
    """The task, once readers see its last commit.

    It is acknowledged before the brokers have marked it so, in one partition after the other.
    """
    marker, log = task.marker, task._context.log
    topics = [changelog_topic(task.topology.app, s.name) for s in task.topology.stores]

    def seen() -> bool:
        ends = log.ends(topics, task.partition)
        whole = all(ends.get(topic, 0) >= end for topic, end in marker.committed.items())
        return whole and task.opening().newest_marker() == marker

    until(seen, 10, "marked as committed")
    return task


def get(task: StateTask, store: str, *keys: bytes) -> list[bytes | None]:
    """Stored values."""
    return task.get_many(store, keys)[1]


def digests(task: StateTask) -> dict[str, StoreDigest]:
    with task.view() as (marker, stores):
        return {name: store_digest(s, marker.stream_time_ms) for name, s in stores.stores.items()}


def days(n: float) -> int:
    return int(n * DAY_MS)
