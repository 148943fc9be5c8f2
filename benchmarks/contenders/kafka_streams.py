"""Kafka Streams: one JVM with two threads, exactly-once v2, as java/Count.java."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.contenders.engine import Query
from benchmarks.contenders.javac import compiled
from benchmarks.positions import GroupPosition
from benchmarks.processes import Child
from benchmarks.world import TASKS, World
from state_lib.stack import jars
from state_lib.stack.java import java_binary

PROGRAM = "Count"
TUNED = {
    "commit.interval.ms": "2000",
    "statestore.cache.max.bytes": str(256 << 20),
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": str(8 << 20),
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
}
"""For a stream that may be as late as Holdfast's batches are: fewer commits, larger caches; and
the shortest session that a broker allows by default."""


class KafkaStreams:
    """A `StreamEngine`.

    Args:
        world: where the broker is.
        query: what to count; its ``app`` is the application.id.
        properties: of StreamsConfig, on top of what exactly-once with one broker needs.
    """

    def __init__(
        self, world: World, query: Query, properties: Mapping[str, str] | None = None
    ) -> None:
        self._world, self._query = world, query
        self.home = world.folder / world.name(query.app)
        self.home.mkdir()
        self.state = self.home / "state"
        self._properties = {
            "application.id": query.app,
            "bootstrap.servers": world.broker.bootstrap,
            "state.dir": str(self.state),
            "processing.guarantee": "exactly_once_v2",
            "num.stream.threads": "2",
            "replication.factor": "1",
            "auto.offset.reset": "earliest",
            "topic": query.topic,
            "store": query.STORE,
            "window.ms": str(query.window_ms),
            "retention.ms": str(query.RETENTION_MS),
            **(properties or {}),
            **world.peer,
        }
        self._position = GroupPosition(world.kafka, query.app, query.topic, TASKS)
        self.jvm: Child | None = None
        self._classpath = classpath(world.folder)

    def start(self) -> None:
        """Start the JVM."""
        given = [f"{key}={value}" for key, value in self._properties.items()]
        command = [java_binary(), "-Xmx2g", "-cp", self._classpath, PROGRAM, *given]
        log = self.home / f"{self._world.name('jvm')}.log"
        self.jvm = Child("kafka streams", command, log, {})

    @property
    def children(self) -> list[Child]:
        """The JVM."""
        return [self.jvm] if self.jvm else []

    def check(self) -> None:
        """Raise if the JVM has ended."""
        for jvm in self.children:
            jvm.check()
            if jvm.events(state="ERROR"):
                raise RuntimeError(f"Kafka Streams failed:\n{jvm.tail()}")

    def position(self) -> int:
        """The offsets that it committed."""
        return self._position()

    def outcome(self) -> Mapping[str, Any]:
        """Ask it for the digest of its store."""
        if self.jvm is None:
            raise RuntimeError("Kafka Streams does not run")
        self.jvm.say("digest")
        said = self.jvm.wait(event="digest")
        return {name: said[name] for name in ("entries", "total", "digest")}

    def kill(self) -> None:
        """SIGKILL."""
        for jvm in self.children:
            jvm.kill()
        self.jvm = None

    def wait_running(self) -> None:
        """Until every task has its state."""
        for jvm in self.children:
            jvm.wait(state="RUNNING")

    def restored(self) -> int:
        """Records that it has read from changelogs since its start."""
        return sum(e["records"] for jvm in self.children for e in jvm.events(event="restored"))

    def stop(self) -> None:
        """Close it; it leaves its group, so that the next start need not wait for its session."""
        for jvm in self.children:
            with contextlib.suppress(BrokenPipeError):  # it has ended by itself
                jvm.say("stop")
            jvm.stop(None)
        self.jvm = None


@functools.cache
def classpath(folder: Path) -> str:
    """The pinned jars and the compiled program."""
    libraries = list(jars.fetch("streams"))
    # Of the broker's set: the digest's hash function.
    libraries += [path for path in jars.fetch("kafka") if path.name.startswith("hash4j-")]
    return os.pathsep.join(map(str, [*libraries, compiled(PROGRAM, libraries, folder)]))
