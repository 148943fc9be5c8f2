"""A restore that nobody needs: the newest snapshot and its tail, aside, against the live store.

A backup that was never restored is none. What a restore would take is measured on the way.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from state_lib.client.flight import FlightHostClient
from state_lib.digests.compare import Compared, compare_replica
from state_lib.digests.live import TaskDigest, silent
from state_lib.digests.replica import aside
from state_lib.digests.sources import choose_snapshot, fetch_snapshot
from state_lib.errors import Busy, HoldfastError, NotFound, Unauthorized
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.restore.lock import restore_lock
from state_lib.snapshots.manifest import Manifest
from state_lib.specs import Topology

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Drilled:
    """One task.

    Attributes:
        partition: of it.
        host: that owns it.
        snapshot: id of the one that was restored; None if there is none.
        written_at: time of the commit that it stands at (ms).
        fetched_bytes, fetch_s: of the snapshot's files.
        records, replay_s: of the changelogs' tails behind it.
        seconds: from nothing to the newest commit.
        looks: how often the digests were compared.
        different: stores whose digests differ, twice.
        digests: by store, of the live ones.
        passed_over: snapshots that are newer and could not be used, with reasons.
        error: why it was not restored or compared, as `HoldfastError.to_wire`.
        absent: there is no snapshot at all.
    """

    partition: int
    host: str
    snapshot: str | None = None
    written_at: int = 0
    fetched_bytes: int = 0
    fetch_s: float = 0.0
    records: int = 0
    replay_s: float = 0.0
    seconds: float = 0.0
    looks: int = 0
    different: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()
    error: Mapping[str, Any] | None = None
    absent: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain data, with rates."""
        return {
            **asdict(self),
            "records_per_s": rate(self.records, self.replay_s),
            "bytes_per_s": rate(self.fetched_bytes, self.fetch_s),
        }


@dataclass(frozen=True)
class Drill:
    """Of an application: its tasks by partition."""

    topology: Topology
    url: str
    tasks: Sequence[Drilled]
    seconds: float

    @property
    def alarms(self) -> list[Drilled]:
        """Tasks whose restored state is not the live one."""
        return [t for t in self.tasks if t.different]

    @property
    def failed(self) -> list[Drilled]:
        """Tasks that could not be restored, or not be compared; not those without a snapshot."""
        return [t for t in self.tasks if t.error is not None and not t.absent]

    @property
    def absent(self) -> list[Drilled]:
        """Tasks without any snapshot."""
        return [t for t in self.tasks if t.absent]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        done = [t for t in self.tasks if t.error is None]
        fetched, records = sum(t.fetched_bytes for t in done), sum(t.records for t in done)
        return {
            "app": self.topology.app,
            "url": self.url,
            "equal": bool(done) and len(done) == len(self.tasks) and not self.alarms,
            "seconds": round(self.seconds, 2),
            "fetched_bytes": fetched,
            "records": records,
            "records_per_s": rate(records, sum(t.replay_s for t in done)),
            "bytes_per_s": rate(fetched, sum(t.fetch_s for t in done)),
            "alarms": [t.partition for t in self.alarms],
            "failed": [t.partition for t in self.failed],
            "absent": [t.partition for t in self.absent],
            "tasks": [t.to_json() for t in self.tasks],
        }


def drill(  # noqa: PLR0913 - who is asked, about what, where
    kafka: Kafka,
    topology: Topology,
    hosts: Sequence[HostAddress],
    token: str | None,
    *,
    snapshots_url: str,
    folder: Path,
    tell: Tell = lambda _: None,
) -> Drill:
    """Restore every task aside, one after the other, and compare it with the live one.

    A difference is looked at once more at a newer marker.

    Args:
        kafka: connection.
        topology: of the application, which may go on meanwhile.
        hosts: all of them.
        token: that they want.
        snapshots_url: where its snapshots are.
        folder: where its temporary directory is made; what an earlier drill that was killed has
            left there is removed.
        tell: called for each task.

    Raises:
        Busy: a drill of this application runs in this folder already.
        Unauthorized: a host refused the token.
        Unavailable: the folder cannot be written.
    """
    started = time.monotonic()
    work = folder / f"holdfast-drill-{topology.app}"
    with _alone(work, topology.app):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            tasks = []
            for partition in range(topology.partitions):
                tell(f"task {partition} of {topology.partitions}")
                address = owner_of(topology.app, partition, hosts)
                one = _One(kafka, topology, partition, address, snapshots_url, work)
                tasks.append(one.drill(token))
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Drill(topology, snapshots_url, tasks, time.monotonic() - started)


def rate(count: float, seconds: float) -> float:
    """Per second; 0 of what took no time."""
    return round(count / seconds, 1) if seconds > 0 else 0.0


@contextmanager
def _alone(work: Path, app: str) -> Iterator[None]:
    """Hold the lock of its directory; it ends with the process, however that ends."""
    with ExitStack() as stack:
        try:
            stack.enter_context(restore_lock(work))
        except Busy as error:
            raise Busy(
                f"a drill of {app!r} is running already in {work.parent} (process "
                f"{error.details['process']}): wait for it",
                **error.details,
            ) from error
        yield


class _One:
    """The drill of one task."""

    def __init__(
        self,
        kafka: Kafka,
        topology: Topology,
        partition: int,
        address: HostAddress,
        url: str,
        folder: Path,
    ) -> None:
        self._kafka, self._topology, self._partition = kafka, topology, partition
        self._address, self._url, self._folder = address, url, folder
        self._found = Drilled(partition, address.id)

    def drill(self, token: str | None) -> Drilled:
        """What came of it; raises Unauthorized alone."""
        try:
            with closing(FlightHostClient(self._address, token)) as client:
                self._restore(client)
        except Unauthorized:
            raise
        except HoldfastError as error:
            self._found = replace(self._found, error=error.to_wire())
        return self._found

    def _restore(self, client: FlightHostClient) -> None:
        app, partition = self._topology.app, self._partition
        newest = client.marker(app, partition)
        names = [s.name for s in self._topology.stores]
        started = time.monotonic()
        with aside(
            self._kafka,
            self._topology,
            partition,
            names,
            lambda topology, p, path: self._fill(topology, p, path, newest),
            self._folder,
            silent,
        ) as replica:
            fetched = time.monotonic()
            replica.follow()
            done = time.monotonic()
            self._found = replace(
                self._found,
                records=replica.records,
                replay_s=round(done - fetched, 3),
                seconds=round(done - started, 3),
            )
            self._compare(
                compare_replica(client, self._topology, partition, names, replica, silent)
            )

    def _fill(
        self, topology: Topology, partition: int, path: Path, newest: Marker
    ) -> Mapping[str, int]:
        try:
            chosen = choose_snapshot(self._kafka, self._url, topology, partition, newest)
        except NotFound as error:
            self._found = replace(self._found, absent=not error.details["known"])
            raise
        manifest: Manifest = chosen.manifest
        self._found = replace(
            self._found,
            snapshot=manifest.id,
            written_at=manifest.written_at,
            passed_over=chosen.passed_over,
        )
        started = time.monotonic()
        offsets = fetch_snapshot(chosen, path)
        size = sum(f.size for f in manifest.files if not f.of_memory)
        took = round(time.monotonic() - started, 3)
        self._found = replace(self._found, fetched_bytes=size, fetch_s=took)
        return offsets

    def _compare(self, compared: Compared) -> None:
        live: TaskDigest = compared.live
        if compared.error is not None:
            raise HoldfastError(compared.error)
        self._found = replace(
            self._found,
            looks=compared.looks,
            different=tuple(compared.different),
            digests={name: str(one) for name, one in live.stores.items()},
        )
