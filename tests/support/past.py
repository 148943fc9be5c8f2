"""An application with a real source and recorded batches, so that it can go back in time."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from confluent_kafka import Message
from confluent_kafka.admin import NewTopic

from state_lib.changelog.admin import _await
from state_lib.changelog.claims import RESTORE, tell
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.reader import read
from state_lib.changelog.topics import TopicPlan, topology_topic
from state_lib.changelog.writer import Records
from state_lib.kafka import describe, ends, starts
from state_lib.protocol.marker import Marker, now_ms
from state_lib.protocol.positions import Positions
from state_lib.restore.options import RestoreOptions
from state_lib.restore.past import PastPlan, reaching
from state_lib.snapshots.manifest import Manifest
from state_lib.snapshots.write import SnapshotRequest, write_snapshot
from state_lib.specs import StoreSpec
from state_lib.stores.digest import StoreDigest
from state_lib.task import Puts, StateTask
from state_lib.task.checkpoint import checkpoint
from state_lib.task.past import Past
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, TS, WIN, App, batch, digests, kv, shown, win
from tests.support.waiting import until

MEM = replace(KV, name="mem", backend="memory")
STORES = [KV, TS, WIN, MEM]
ROWS = 10
Digests = Mapping[str, StoreDigest]


@dataclass
class Traveller:
    """One task, whose batches can be made again."""

    app: App
    source: str
    task: StateTask
    url: str
    recorded: dict[int, int] = field(default_factory=dict)

    @cached_property
    def progress(self) -> ProgressLog:
        return ProgressLog(self.app.kafka, self.app.name)

    @property
    def options(self) -> RestoreOptions:
        return RestoreOptions("auto", self.url)

    @property
    def output(self) -> str:
        return self.app.topology.outputs[0].topic

    def claim(self) -> Marker:
        """As a driver that starts."""
        epoch = tell(self.app.kafka, self.app.name, b"claim", {})
        self.task.claim(self.task.topology, epoch)
        return self.task.marker

    def commit(self, number: int, *, at: Marker | None = None, wide: int = 1) -> Marker:
        """Batch ``number``, always the same; recorded before, and with an output.

        One that was published before is recorded as a driver that aligns does.
        """
        marker = at or self.task.marker
        again = number * ROWS < self.task.marker.published_to[self.source, 0]
        first = self.recorded.get(number, -1) if again else -1
        to = {(self.source, 0): (number + wide) * ROWS}
        clock = NOON + number * HOUR
        record = {
            "epoch": marker.epoch, "n": marker.batch_number + 1, "from": self._at(number).to_json(),
            "to": Positions(to).to_json(), "clock": clock, "now": now_ms(), "max_future_ms": 1,
            "code": "code", "limits": {}, "tasks": [0] if again else None, "recorded": first,
        }  # fmt: skip
        offset = self.progress.append(record)
        offset = self.recorded[number] = first if first >= 0 else offset
        one = batch(marker, puts_of(number, self.app), clock=clock, outputs=self._outputs(number))
        header = replace(
            one.header,
            from_=self._at(number),
            to=Positions(to),
            recorded=offset,
            dropped={"late": 1},
            maxima=Positions({(self.source, 0): clock}),
            topic_ids={
                self.source: describe(self.app.kafka.admin(), [self.source])[self.source].id
            },
        )
        return self.task.commit(replace(one, header=header))

    def commits(self, numbers: Sequence[int]) -> Digests:
        """Batches; the digests afterwards."""
        for number in numbers:
            self.commit(number)
        return digests(shown(self.task))

    def snapshot(self) -> Manifest:
        """As a host takes one."""
        folder = self.task.path.with_name("0.snapshot")
        checkpoint(self.task, folder)
        try:
            request = SnapshotRequest(self.url, self.app.topology, 0, folder, "host-1")
            return write_snapshot(request).manifest
        finally:
            shutil.rmtree(folder)

    def plan(self, snapshot: str) -> PastPlan:
        """As the command looks at it."""
        return reaching(self.app.kafka, self.task.plan_past(snapshot))

    def request(self, snapshot: str, *, republish: bool = False) -> Past:
        """With an epoch of its own."""
        topic = topology_topic(self.app.name)
        epoch = tell(self.app.kafka, self.app.name, RESTORE, {})
        topic_id = describe(self.app.kafka.admin(), [topic])[topic].id
        return Past(snapshot, republish, epoch, topic_id, "a test")

    def has_written(self, *numbers: int) -> None:
        """Batches of these numbers wrote an output, in this order, and none besides."""
        until(lambda: len(self._read(self.output)) >= len(numbers))  # shown a moment later
        assert [int(m.value() or b"") for m in self._read(self.output)] == list(numbers)

    def log(self, store: str) -> list[Message]:
        """Records of a changelog."""
        return self._read(self.app.topic(store))

    def _read(self, topic: str) -> list[Message]:
        kafka, place = self.app.kafka, (topic, 0)
        first, end = (look(kafka.admin(), [place])[place] for look in (starts, ends))
        return [m for messages in read(kafka, topic, 0, first, end) for m in messages]

    def from_scratch(self) -> Digests:
        """What the changelogs give to whoever has nothing else; leaves the task open."""
        self.task.close()
        shutil.rmtree(self.task.path)
        self.task = self.app.opened()
        return digests(self.task)

    def _at(self, number: int) -> Positions:
        return Positions({(self.source, 0): number * ROWS})

    def _outputs(self, number: int) -> list[Records]:
        return [Records(self.output, [b"k"], [f"{number}".encode()], [NOON])]


def traveller(make_app: MakeApp, stores: Sequence[StoreSpec] = (KV,), url: str = "") -> Traveller:
    """Claimed, with its source resolved to offset 0; snapshots are at ``url``, or on disk."""
    app = make_app(stores, outputs=["out"])
    source = f"{app.name}-source"
    admin = app.kafka.admin()
    for future in admin.create_topics([NewTopic(source, 1, 1)]).values():
        future.result()
    _await(admin, [TopicPlan(source, 1)])
    fill(app, source, 1000)
    snapshots = url or (app.root / "snapshots").as_uri()
    made = Traveller(app, source, app.opened(), snapshots)
    made.task._context = replace(made.task._context, restore=made.options)
    made.claim()
    first = batch(made.task.marker)
    header = replace(
        first.header,
        from_=Positions(),
        to=Positions({(source, 0): 0}),
        stream_time_ms=-1,
        maxima=Positions(),
    )
    made.task.commit(replace(first, header=header))
    return made


def fill(app: App, topic: str, count: int) -> None:
    producer = app.kafka.producer(topic)
    for i in range(count):
        producer.produce(topic, b"%d" % i, partition=0)
    producer.flush(30)
    place = (topic, 0)
    until(lambda: ends(app.kafka.admin(), [place])[place] >= count)


def puts_of(number: int, app: App) -> dict[str, Puts]:
    """Overwrites, deletes, new keys, and windows that expire."""
    dice = random.Random(number)  # noqa: S311 - a repeatable dice
    keys = [f"k{dice.randrange(40)}" for _ in range(30)]
    pairs = [(k, None if dice.random() < 0.3 else f"{number}-{k}") for k in keys]
    starts_ = [NOON + (number - dice.randrange(3)) * HOUR for _ in keys]
    rows = [(k, s, v) for (k, v), s in zip(pairs, starts_, strict=True)]
    rows.append((f"once-{number}", NOON + number * HOUR, f"{number}"))
    every = {
        "kv": kv(*pairs), "ts": kv(*pairs, time=NOON + number), "mem": kv(*pairs[:9]),
        "win": win(*rows),
    }  # fmt: skip
    return {s.name: every[s.name] for s in app.topology.stores}


def positions(marker: Marker) -> list[int]:
    return list(marker.positions.values())
