"""One round of snapshots: each task's owner is asked, and looked at until its snapshot has ended.

Made again with the same id it goes on where another one left off, in another process as well: hosts
know whose requests they take snapshots for, and manifests in storage name them.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from state_lib.client.flight import FlightHostClient
from state_lib.errors import HoldfastError, NotFound, Unavailable
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import owner_of

ANSWER_S, ABSENT_S = 5.0, 30.0
"""How long a host may take to say how a snapshot goes, and for how long it may say nothing."""
_AT_ONCE = 16

Job: TypeAlias = dict[str, Any]
"""`state_lib.host.snapshots.Job.to_json` of one task, and its ``host``; ``error`` is as on the wire
if the snapshot failed, or could not be asked for."""


class SnapshotRound:
    """Snapshots of some tasks of an application, for one request.

    Args:
        app: the application.
        partitions: of the tasks.
        request: id of the round; see `state_lib.host.snapshots.SnapshotJobs.start`.
        hosts: all of them.
        token: for them.
        savepoint: passed on to the hosts, see `FlightHostClient.snapshot`.
    """

    def __init__(
        self,
        app: str,
        partitions: Iterable[int],
        request: str,
        hosts: Sequence[HostAddress],
        token: str | None,
        savepoint: Mapping[str, Any] | None = None,
    ) -> None:
        self._app, self._request, self._savepoint = app, request, savepoint
        self._token = token
        self._owners = {p: owner_of(app, p, hosts) for p in partitions}
        self._jobs = {p: self._unasked(p) for p in self._owners}
        self._asked: set[int] = set()
        self._seen = dict.fromkeys(self._jobs, time.monotonic())

    @property
    def jobs(self) -> list[Job]:
        """How each task's snapshot goes, as far as was seen."""
        return list(self._jobs.values())

    @property
    def ended(self) -> bool:
        """Whether none of them runs any more."""
        return not self._running

    def look(self) -> list[Job]:
        """Ask for what was not asked for, look at what runs; returns how that goes now.

        All hosts at the same time. One that does not answer takes `ANSWER_S`, however many tasks
        it has; the snapshots of one that is absent for `ABSENT_S` have failed.
        """
        looked = self._running
        by_host = defaultdict[HostAddress, list[int]](list)
        for partition in looked:
            by_host[self._owners[partition]].append(partition)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._look_at, by_host, by_host.values()))
        return [self._jobs[partition] for partition in looked]

    # ------------------------------------------------------------------ inside

    @property
    def _running(self) -> list[int]:
        return [p for p, job in self._jobs.items() if job["state"] == "running"]

    def _look_at(self, host: HostAddress, partitions: Sequence[int]) -> None:
        client = FlightHostClient(host, self._token)
        away: Unavailable | None = None
        try:
            for partition in partitions:
                try:
                    if away is not None:
                        raise away
                    self._jobs[partition] = self._ask(client, partition)
                    self._seen[partition] = time.monotonic()
                except Unavailable as error:
                    away = error if "host" in error.details else None
                    self._absent(partition, error)
                except HoldfastError as error:
                    self._fail(partition, error)
        finally:
            client.close()

    def _ask(self, client: FlightHostClient, partition: int) -> Job:
        job = self._status(client, partition) if partition in self._asked else None
        if job is None:
            job = client.snapshot(
                self._app, partition, self._savepoint, self._request, timeout_s=ANSWER_S
            )
            self._asked.add(partition)
        return {**job, "host": client.address.id}

    def _status(self, client: FlightHostClient, partition: int) -> Job | None:
        """None if the host does not know of our request: it was restarted, or took another one."""
        with contextlib.suppress(NotFound):
            job = client.snapshot_status(self._app, partition, timeout_s=ANSWER_S)
            if self._request in job["requests"]:
                return job
        return None

    def _absent(self, partition: int, error: Unavailable) -> None:
        """A host may be restarting, a task opening; but a savepoint's other tasks wait for it."""
        waited = self._savepoint is not None and partition not in self._asked
        if waited or time.monotonic() - self._seen[partition] > ABSENT_S:
            self._fail(partition, error)

    def _fail(self, partition: int, error: HoldfastError) -> None:
        failed = {"state": "failed", "error": error.to_wire()}
        self._jobs[partition] = {**self._jobs[partition], **failed}

    def _unasked(self, partition: int) -> Job:
        return {
            "task": f"{self._app}/{partition}",
            "host": self._owners[partition].id,
            "state": "running",
            "phase": "not asked yet",
            "done": 0,
            "total": 0,
            "snapshot": None,
            "error": None,
        }
