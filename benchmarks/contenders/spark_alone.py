"""Spark's own state, on its RocksDB state store: no Holdfast."""

from __future__ import annotations

import functools
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark

from benchmarks import sources
from benchmarks.contenders.engine import Query
from benchmarks.contenders.javac import compiled
from benchmarks.processes import Child
from benchmarks.world import TASKS, World

BATCH_RECORDS = 1_000_000
JOB = Path(__file__).parents[1] / "jobs" / "spark_count.py"
PROGRAM = "SparkCount"
TRANSFORM, GROUP = "transformWithState", "groupBy"
PYTHON = f"{TRANSFORM}, Python"
"""Verbs: a processor of one's own as java/SparkCount.java, what Spark has for counts, a processor
in Python as jobs/counting.py."""


class SparkAlone:
    """A `StreamEngine`; its state is as safe as the local disk that its checkpoint is on.

    Args:
        world: where the broker is.
        query: what to count; the counts go to the topic ``<app>-counts``.
        verb: `TRANSFORM`, `GROUP` or `PYTHON`.
        batch: the most records of a batch.
    """

    def __init__(
        self, world: World, query: Query, verb: str = TRANSFORM, batch: int = BATCH_RECORDS
    ) -> None:
        self._world, self._query, self._verb = world, query, verb
        self.home = world.folder / world.name(query.app)
        self.home.mkdir()
        self.checkpoint = self.home / "checkpoint"
        self.counts = f"{query.app}-{Query.STORE}"
        self._settings = world.settings(self.home, max_offsets_per_trigger=world.records(batch))
        self._jar = jar(world.folder)
        self.driver: Child | None = None
        sources.create(world.kafka, self.counts, TASKS, {"cleanup.policy": "compact"})

    def start(self) -> None:
        """Start the driver."""
        query = {
            "BENCH_APP": self._query.app,
            "BENCH_TOPIC": self._query.topic,
            "BENCH_COUNTS": self.counts,
            "BENCH_VERB": self._verb,
            "BENCH_JAR": str(self._jar),
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
        """Raise if the driver has ended, or its query has failed."""
        for driver in self.children:
            driver.check()
            if failed := driver.events(event="failed"):
                raise RuntimeError(f"Spark's query failed: {failed[0]['why']}")

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


@functools.cache
def jar(folder: Path) -> Path:
    """The compiled processor, as what ``spark.jars`` takes."""
    libraries = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    classes = compiled(PROGRAM, libraries, folder)
    path = folder / f"{PROGRAM}.jar"
    with zipfile.ZipFile(path, "w") as out:
        for file in classes.glob("*.class"):
            out.write(file, file.name)
    return path
