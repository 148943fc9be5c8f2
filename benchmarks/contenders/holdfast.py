"""Holdfast: two state hosts and a Spark driver, with the settings that a user gets."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.contenders.engine import Query
from benchmarks.positions import GroupPosition
from benchmarks.processes import Child
from benchmarks.world import TASKS, World
from state_lib.client.flight import FlightHostClient
from state_lib.client.snapshot_round import Job
from state_lib.client.snapshots import SnapshotClient
from state_lib.protocol.placement import owner_of
from state_lib.stores.digest import digest

JOBS = Path(__file__).parents[1] / "jobs"
MODULUS = 1 << 128


@dataclass(frozen=True)
class Counter:
    """A job that counts: its file, its store, and the bytes before the count in a stored value."""

    job: str
    store: str
    before: int


AGGREGATE = Counter("count_by_key.py", Query.STORE, 8)
PROCESSOR = Counter("process_by_key.py", f"{Query.STORE}-n", 1)


class Holdfast:
    """A `StreamEngine`.

    Args:
        world: where the broker is.
        query: what to count.
        hosts: how many.
        counter: what counts.
        flags: settings that differ from the defaults.
    """

    def __init__(
        self,
        world: World,
        query: Query,
        hosts: int = 2,
        counter: Counter = AGGREGATE,
        **flags: Any,
    ) -> None:
        self._world, self._query, self._counter = world, query, counter
        self.home = world.folder / world.name(query.app)
        self.home.mkdir()
        self.settings = world.settings(self.home, hosts, **flags)
        self._position = GroupPosition(world.kafka, query.app, query.topic, TASKS)
        self.hosts: list[Child] = []
        self.driver: Child | None = None

    def start(self) -> None:
        """Hosts and driver at once: the driver waits for the hosts."""
        self.start_hosts()
        self.start_driver()

    def start_hosts(self) -> None:
        """The state hosts alone."""
        environment = self.settings.as_environment()
        for at in self.settings.host_addresses:
            command = [sys.executable, "-m", "state_lib.host", "--id", at.id]
            log = self.home / f"{self._world.name(at.id)}.log"
            self.hosts.append(Child(at.id, command, log, environment))

    def start_driver(self) -> None:
        """The Spark driver alone."""
        query = {
            "BENCH_APP": self._query.app,
            "BENCH_TOPIC": self._query.topic,
            "BENCH_WINDOW_MS": str(self._query.window_ms),
            "BENCH_RETENTION_MS": str(self._query.RETENTION_MS),
        }
        log = self.home / f"{self._world.name('driver')}.log"
        environment = self.settings.as_environment() | query
        command = [sys.executable, str(JOBS / self._counter.job)]
        self.driver = Child("driver", command, log, environment)

    @property
    def children(self) -> list[Child]:
        """Hosts, then the driver."""
        return [*self.hosts, *([self.driver] if self.driver else [])]

    def check(self) -> None:
        """Raise if a process has ended."""
        for child in self.children:
            child.check()

    def position(self) -> int:
        """What the driver told the consumer group behind its last batch."""
        return self._position()

    def outcome(self) -> Mapping[str, Any]:
        """Scan every task over Flight."""
        total = entries = summed = 0
        for batch in self._scan():
            keys, values = (batch.column(i).to_pylist() for i in range(2))
            part = digest(zip(keys, values, strict=True))
            total, entries = (total + part.total) % MODULUS, entries + part.entries
            summed += self._counted(values)
        same = {"entries": entries, "total": summed}
        if self._counter is PROCESSOR:  # nobody else has its bytes
            return same
        return {**same, "digest": f"{total:032x}/{entries}"}

    def sums(self) -> Mapping[str, int]:
        """The outcome without its digest, which takes most of the time."""
        entries = summed = 0
        for batch in self._scan():
            entries += batch.num_rows
            summed += self._counted(batch.column(1).to_pylist())
        return {"entries": entries, "total": summed}

    def _scan(self) -> Iterator[pa.RecordBatch]:
        for task in range(TASKS):
            address = owner_of(self._query.app, task, self.settings.host_addresses)
            client = FlightHostClient(address, self.settings.read_token())
            _, batches = client.scan(self._query.app, task, self._counter.store)
            yield from batches
            client.close()

    def snapshot(self) -> list[Job]:
        """Have each task's owner take one; returns how each ended.

        Raises:
            RuntimeError: a task has none.
        """
        jobs = SnapshotClient(self.settings, self._query.app).create()
        if failed := [job["error"] for job in jobs if job["error"]]:
            raise RuntimeError(f"no snapshot: {failed}")
        return jobs

    def forget_snapshots(self) -> None:
        """Empty the storage, a folder on the same disk: the next snapshot uploads all of it."""
        shutil.rmtree(self.home / "snapshots", ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL driver and hosts."""
        for child in reversed(self.children):
            child.kill()
        self.hosts, self.driver = [], None

    def stop(self) -> None:
        """SIGTERM driver, then hosts."""
        for child in reversed(self.children):
            child.stop()
        self.hosts, self.driver = [], None

    def _counted(self, values: Sequence[bytes]) -> int:
        """The sum of the counts in stored values: eight bytes each, behind others."""
        before = self._counter.before
        raw = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), before + 8)
        return int(np.ascontiguousarray(raw[:, before:]).view(">i8").sum())
