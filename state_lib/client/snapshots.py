"""Asks the owners of an application's tasks for snapshots, and waits for them."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from state_lib.changelog.claims import topology_of
from state_lib.client.flight import FlightHostClient
from state_lib.client.snapshot_round import Job, SnapshotRound
from state_lib.errors import (
    InvalidRequest,
    Realign,
    StorageUnavailable,
    Unavailable,
    from_wire,
)
from state_lib.failpoints import failpoint
from state_lib.kafka import Kafka
from state_lib.protocol.marker import Marker, now_ms
from state_lib.protocol.placement import owner_of
from state_lib.snapshots.listing import find
from state_lib.snapshots.manifest import new_id
from state_lib.snapshots.savepoints import Savepoint, write_savepoint
from state_lib.specs import Topology

if TYPE_CHECKING:
    from state_lib.config import Settings

log = structlog.get_logger(__name__)
_LOOK_S = 0.3
_COMMIT_WAIT_S = 20.0

Watch: TypeAlias = Callable[[Job], None]


class SnapshotClient:
    """For one application.

    Args:
        settings: where Kafka, the hosts and storage are.
        app: the application.

    Raises:
        NotFound: it never ran.
    """

    def __init__(self, settings: Settings, app: str) -> None:
        self._settings = settings
        self._token = settings.read_token()
        self.topology: Topology = topology_of(Kafka.of(settings), app)
        self.app = app

    def create(
        self,
        partitions: Sequence[int] | None = None,
        watch: Watch = lambda _: None,
        savepoint: Mapping[str, Any] | None = None,
    ) -> list[Job]:
        """Have snapshots taken; returns how each ended, failures included.

        Args:
            partitions: of the tasks; all of them by default.
            watch: told of each look at a task.
            savepoint: passed on to the hosts, see `FlightHostClient.snapshot`.
        """
        of = self.partitions(partitions)
        request = uuid.uuid4().hex if savepoint is None else savepoint["id"]
        hosts = self._settings.host_addresses
        asked = SnapshotRound(self.app, of, request, hosts, self._token, savepoint)
        while True:
            for job in asked.look():
                watch(job)
            if asked.ended:
                return asked.jobs
            time.sleep(_LOOK_S)

    def partitions(self, wanted: Sequence[int] | None = None) -> list[int]:
        """All tasks, or those that are wanted.

        Raises:
            InvalidRequest: there is no such task.
        """
        for partition in wanted or ():
            if not 0 <= partition < self.topology.partitions:
                raise InvalidRequest(
                    f"application {self.app!r} has tasks 0 to {self.topology.partitions - 1}, not "
                    f"{partition}"
                )
        return list(self._partitions if wanted is None else wanted)

    def savepoint(self, watch: Watch = lambda _: None, timeout_s: float = 300.0) -> Savepoint:
        """Have every task taken at one commit, and list the savepoint.

        First ordinary snapshots: what a savepoint has to upload is then what changed since, and
        the moment in which commits wait for it is short. Then all tasks are asked for the newest
        commit that any of them stands at: those that stand there take it at once, the others when
        they come there. A task that has moved on meanwhile makes it a miss: once more.

        Raises:
            Unavailable: no commit was met by all within ``timeout_s``; nothing is listed.
            HoldfastError: a task's snapshot failed.
        """
        _raise_first(self.create(watch=watch))
        deadline = time.monotonic() + timeout_s
        while True:
            markers = [self._marker(p) for p in self._partitions]
            epoch, n = max((m.epoch, m.batch_number) for m in markers)
            savepoint = new_id(now_ms())
            at = {"id": savepoint, "epoch": epoch, "n": n, "wait_s": _COMMIT_WAIT_S}
            jobs = self.create(watch=watch, savepoint=at)
            try:
                _raise_first(jobs)
                return self._list(savepoint, jobs)
            except StorageUnavailable:
                raise
            except (Realign, Unavailable) as error:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"no savepoint of {self.app!r} within {timeout_s:.0f} s: {error.message}",
                        app=self.app,
                    ) from error
                log.info("savepoint is tried again", app=self.app, why=error.message)

    # ------------------------------------------------------------------ inside

    @property
    def _partitions(self) -> range:
        return range(self.topology.partitions)

    def _list(self, savepoint: str, jobs: Sequence[Job]) -> Savepoint:
        url = self._settings.snapshots_url
        manifests = [
            find(url, self.app, p, job["snapshot"])
            for p, job in zip(self._partitions, jobs, strict=True)
        ]
        failpoint("snapshot.before_savepoint")
        return write_savepoint(url, savepoint, manifests)

    def _marker(self, partition: int) -> Marker:
        with self._client(partition) as client:
            return client.marker(self.app, partition)

    @contextlib.contextmanager
    def _client(self, partition: int) -> Iterator[FlightHostClient]:
        address = owner_of(self.app, partition, self._settings.host_addresses)
        client = FlightHostClient(address, self._token)
        try:
            yield client
        finally:
            client.close()


def _raise_first(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job["error"]:
            raise from_wire(job["error"])
