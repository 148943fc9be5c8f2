"""Spark's own state: groupBy().count() on its RocksDB state store, no Holdfast."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.contenders.engine import Query
from benchmarks.processes import Child
from benchmarks.world import World

BATCH_RECORDS = 1_000_000
JOB = Path(__file__).parents[1] / "jobs" / "spark_count.py"


class SparkAlone:
    """A `StreamEngine`; its state is as safe as the local disk that its checkpoint is on."""

    def __init__(self, world: World, query: Query) -> None:
        self._world, self._query = world, query
        self.home = world.folder / world.name(query.app)
        self.home.mkdir()
        self.checkpoint = self.home / "checkpoint"
        self._settings = world.settings(
            self.home, max_offsets_per_trigger=world.records(BATCH_RECORDS)
        )
        self.driver: Child | None = None

    def start(self) -> None:
        """Start the driver."""
        query = {
            "BENCH_APP": self._query.app,
            "BENCH_TOPIC": self._query.topic,
            "BENCH_WINDOW_MS": str(self._query.window_ms),
            "BENCH_CHECKPOINT": str(self.checkpoint),
        }
        log = self.home / f"{self._world.name('driver')}.log"
        environment = self._settings.as_environment() | query
        self.driver = Child("driver", [sys.executable, str(JOB)], log, environment)

    @property
    def children(self) -> list[Child]:
        """The driver."""
        return [self.driver] if self.driver else []

    def check(self) -> None:
        """Raise if the driver has ended."""
        for driver in self.children:
            driver.check()

    def position(self) -> int:
        """The offsets of the last batch that its checkpoint says is committed."""
        committed = [int(p.name) for p in self.checkpoint.glob("commits/[0-9]*")]
        if not committed:
            return 0
        lines = (self.checkpoint / "offsets" / str(max(committed))).read_text().splitlines()
        partitions = json.loads(lines[-1])[self._query.topic]
        return sum(partitions.values())

    def outcome(self) -> Mapping[str, Any]:
        """Have it stop the query and read its state store."""
        if self.driver is None:
            raise RuntimeError("Spark does not run")
        self.driver.say("digest")
        said = self.driver.wait(event="digest")
        return {name: said[name] for name in ("entries", "total")}

    def kill(self) -> None:
        """SIGKILL."""
        for driver in self.children:
            driver.kill()
        self.driver = None

    def stop(self) -> None:
        """SIGTERM."""
        for driver in self.children:
            driver.stop()
        self.driver = None
