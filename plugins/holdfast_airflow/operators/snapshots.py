"""Takes snapshots of an application's stores."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from holdfast_airflow.errors import FINAL, as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook, existing
from holdfast_airflow.triggers.snapshots import SnapshotsTrigger, progress_of
from state_lib.errors import HoldfastError, Unavailable, from_wire

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.client.snapshot_round import Job

SHOWN = 3


class SnapshotStoresOperator(BaseOperator):
    """Has every host take snapshots of its tasks, and waits, deferred, until all are verified.

    Commits and queries go on meanwhile. The hosts know the request by the run and the task: a
    restart of worker or triggerer, or a retry, finds the snapshots that were taken, and asks only
    for those that failed. A task that was cleared has new ones taken.

    Args:
        app: The application's id.
        tasks: Only these, by partition; None: all.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        wait: How long snapshots may take. After that the task fails; the hosts go on, and a retry
            finds what they have taken.
        skip_unknown: Skip the task while the application has not run, or not since it was reset.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): a list with ``task``, ``host``, ``id`` of the snapshot, its ``bytes``, and
    ``uploaded_bytes`` that storage did not hold yet.
    """

    template_fields: Sequence[str] = ("app", "conn_id", "env")
    ui_color = "#d9d3f0"

    def __init__(
        self,
        *,
        app: str,
        tasks: Sequence[int] | None = None,
        conn_id: str = HoldfastHook.default_conn_name,
        wait: timedelta = timedelta(hours=6),
        skip_unknown: bool = False,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.tasks = tasks
        self.conn_id = conn_id
        self.wait = wait
        self.skip_unknown = skip_unknown
        self.env = env or {}

    def execute(self, context: Context) -> None:
        """Look which tasks there are, then defer.

        Raises:
            AirflowFailException: no such application or task, a wrong setting, or its topology
                topic is lost.
            AirflowSkipException: no such application, where that is to be skipped.
            AirflowException: Kafka is away; a retry may help.
        """
        from state_lib.client.snapshots import SnapshotClient

        hook = HoldfastHook(self.conn_id, self.env)
        with as_airflow(skip_unknown=self.skip_unknown):
            hook.declared(self.app)
            partitions = SnapshotClient(hook.settings, self.app).partitions(self.tasks)
            conn_id = existing(self.conn_id)
        self.log.info("Asking for snapshots of %s tasks of %s", len(partitions), self.app)
        self.defer(
            trigger=SnapshotsTrigger(
                app=self.app,
                partitions=partitions,
                request=request_of(context["ti"]),
                conn_id=conn_id,
                env=self.env,
                until=time.time() + self.wait.total_seconds(),
            ),
            method_name="taken",
        )

    def taken(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Tell how each snapshot ended.

        Raises:
            AirflowFailException: one failed, and a person must correct something.
            AirflowException: one failed, or takes longer than ``wait``; a retry may help.
        """
        del context
        with as_airflow():
            if event["event"] == "failed":
                raise from_wire(event["error"])
            return self._judged(event["jobs"])

    def _judged(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        found = [_plain(job) for job in jobs if job["snapshot"]]
        for one in found:
            told = (one["task"], one["host"], one["id"])
            sizes = (f"{one['bytes']:,}", f"{one['uploaded_bytes']:,}")
            self.log.info("%s on %s: snapshot %s, %s bytes, %s uploaded", *told, *sizes)
        bad = [(job, _error(job)) for job in jobs if not job["snapshot"]]
        for job, error in bad:
            self.log.error("%s on %s: %s", job["task"], job["host"], error.message)
        if bad:
            # A retry is of use if it is for any of them.
            passing = [error for _, error in bad if not isinstance(error, FINAL)]
            kind = type((passing or [bad[0][1]])[0])
            said = "; ".join(
                f"{job['task']} on {job['host']}: {e.message}" for job, e in bad[:SHOWN]
            )
            more = f" (and {len(bad) - SHOWN} more, see the log)" if bad[SHOWN:] else ""
            raise kind(
                f"{len(bad)} of {len(jobs)} tasks of {self.app} have no snapshot of this run: "
                f"{said}{more}"
            )
        return found


def request_of(ti: Any) -> str:
    """What identifies the request of a task: the same for its retries, another one once cleared."""
    # A clear sets `max_tries` anew, a retry does not.
    who = (ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.max_tries)
    return uuid.uuid5(uuid.NAMESPACE_OID, "\n".join(map(str, who))).hex


def _error(job: Job) -> HoldfastError:
    """Why a task has no snapshot, and what to do next."""
    if not job["error"]:
        return Unavailable(
            f"it has not ended in time ({progress_of(job)}): look at the log of host "
            f"{job['host']}, or wait for longer"
        )
    error = from_wire(job["error"])
    if "host" not in error.details:
        return error
    return type(error)(
        f"{error.message}. Start the host, or correct the hosts' addresses",
        **error.details,
    )


def _plain(job: Job) -> dict[str, Any]:
    sizes = {"bytes": job["size_bytes"], "uploaded_bytes": job["uploaded_bytes"]}
    return {"task": job["task"], "host": job["host"], "id": job["snapshot"], **sizes}
