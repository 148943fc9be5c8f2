"""What all contenders share: one broker, topics that are loaded once, a scale."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks import sources
from state_lib.config import Settings
from state_lib.kafka import Kafka, describe
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port

if TYPE_CHECKING:
    from benchmarks.seeds import Seed

TASKS = 4
"""Partitions of every source, and so tasks."""
BATCH: int = Settings.model_fields["max_offsets_per_trigger"].default
Say = Callable[[str], None]


class World:
    """A broker in a folder, for the time of a ``with``.

    Args:
        folder: for everything.
        scale: factor on numbers of records.
        peer: properties of every Kafka Streams, for tests that cannot wait for its defaults.
        say: takes progress, a line each.
    """

    def __init__(
        self, folder: Path, scale: float, say: Say, peer: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.scale, self.say = folder, scale, say
        self.peer = peer or {}
        self.broker = LocalBroker(folder / "broker", heap_min="256m", heap_max="1g")
        self.kafka = Kafka({"bootstrap.servers": self.broker.bootstrap, "log_level": 2})
        self._numbers = itertools.count(1)
        self.seeds: dict[int, Seed] = {}
        self._topics: dict[tuple[str, int], str] = {}

    def __enter__(self) -> Self:
        """Start the broker."""
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.broker.stop()

    def records(self, full: int) -> int:
        """A number of records at this scale, a multiple of the partitions."""
        return max(100, round(full * self.scale) // TASKS) * TASKS

    def name(self, stem: str) -> str:
        """A name that nothing else has."""
        return f"{stem}-{next(self._numbers)}"

    def source(self, kind: str, records: int) -> str:
        """The topic with so many records of a kind of `benchmarks.sources`; made at first use."""
        if (kind, records) not in self._topics:
            topic = self.name(kind)
            started = time.monotonic()
            sources.create(self.kafka, topic, TASKS)
            sources.load(self.kafka, topic, kind, records)
            self.say(f"{records:,} records in {topic}: {time.monotonic() - started:.1f} s")
            self._topics[kind, records] = topic
        return self._topics[kind, records]

    def settings(self, home: Path, hosts: int = 2, **flags: Any) -> Settings:
        """Settings of a Holdfast that has the broker and nothing else in common with others."""
        names = range(1, hosts + 1)
        addresses = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in names)
        given = {
            "home": home,
            "hosts": addresses,
            "bootstrap_servers": self.broker.bootstrap,
            "replication_factor": 1,
            "spark_ui_port": free_port(),
            "max_offsets_per_trigger": self.records(BATCH),
        }
        return Settings.load(**{**given, **flags})

    def forget(self, app: str) -> None:
        """Delete the topics of an application: cleaning them must not disturb who comes next."""
        admin = self.kafka.admin()
        topics = [t for t in admin.list_topics(timeout=30).topics if t.startswith(f"{app}-")]
        for future in admin.delete_topics(topics).values() if topics else ():
            future.result()
        deadline = time.monotonic() + 60
        while describe(admin, topics) and time.monotonic() < deadline:
            time.sleep(0.1)
