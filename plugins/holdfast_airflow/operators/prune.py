"""Removes old snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook

if TYPE_CHECKING:
    from airflow.sdk import Context


class PruneSnapshotsOperator(BaseOperator):
    """Removes old snapshots of an application, and files that no snapshot of the last day needs.

    Safe beside snapshots and other prunings, and as often as it runs. Never removed are the newest
    one of a task, those that tasks are on their way back to, and those of savepoints, unless
    ``savepoints`` says how many of these to keep.

    Args:
        app: The application's id.
        keep: Newest snapshots kept, per task; at least 1.
        daily: Days (UTC) whose newest snapshot is kept as well.
        savepoints: Newest savepoints kept; None: all.
        only_plan: Tell what would go, and remove nothing.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        skip_unknown: Skip the task while the application has neither run nor snapshots.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): what ``holdfast snapshot prune --json`` prints: ``savepoints``, and for each
    of ``tasks`` what was ``kept`` and ``pruned``, ``deleted_files`` and ``freed_bytes``.
    """

    template_fields: Sequence[str] = ("app", "conn_id", "env")
    ui_color = "#e6e0f5"

    def __init__(  # noqa: PLR0913 - as the command has options
        self,
        *,
        app: str,
        keep: int,
        daily: int = 0,
        savepoints: int | None = None,
        only_plan: bool = False,
        conn_id: str = HoldfastHook.default_conn_name,
        skip_unknown: bool = False,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.keep = keep
        self.daily = daily
        self.savepoints = savepoints
        self.only_plan = only_plan
        self.conn_id = conn_id
        self.skip_unknown = skip_unknown
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Prune, tell.

        Raises:
            AirflowFailException: no such application, a wrong setting, or a retention that keeps
                nothing.
            AirflowSkipException: no such application, where that is to be skipped.
            AirflowException: Kafka or storage is away or read-only; a retry goes on.
        """
        del context
        from state_lib.apps.pruning import prune_application
        from state_lib.snapshots.prune import Retention  # noqa: PLC0415 - storage, for work only

        with as_airflow(skip_unknown=self.skip_unknown):
            settings = HoldfastHook(self.conn_id, self.env).settings
            done = prune_application(
                settings,
                self.app,
                Retention(self.keep, self.daily),
                savepoints=self.savepoints,
                dry=self.only_plan,
            )
        verb = "would be pruned" if self.only_plan else "pruned"
        for one in done.tasks:
            told = (len(one.pruned), len(one.kept), one.deleted_files, f"{one.freed_bytes:,}")
            self.log.info(
                "%s: %s %s, %s kept; %s files, %s bytes", one.task, told[0], verb, *told[1:]
            )
            if one.not_collected is not None:
                self.log.warning("%s: no files deleted: %s", one.task, one.not_collected)
        if done.savepoints:
            self.log.info("Savepoints %s: %s", verb, ", ".join(done.savepoints))
        return {"dry_run": self.only_plan, **asdict(done)}
