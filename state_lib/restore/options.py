"""How restores behave in this process, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RestoreMode = Literal["auto", "orchestrated"]


@dataclass(frozen=True)
class RestoreOptions:
    """Settings of restores.

    Attributes:
        mode: what happens to a lost store, one whose directory this host had and that is missing
            or cannot be used: ``auto`` goes on by the plan, ``orchestrated`` leaves the task
            closed and reported until somebody asks for a restore.
        snapshots_url: where snapshots are; None: there are none.
        batch_size: records per read.
        run_bytes: memory of one sorted run, in each worker.
        worker_records: from how many records of a store on a worker process pays.
    """

    mode: RestoreMode = "auto"
    snapshots_url: str | None = None
    batch_size: int = 1_000
    run_bytes: int = 56 << 20  # with which a worker stays below 200 MB: `num_restore_workers`
    worker_records: int = 200_000
