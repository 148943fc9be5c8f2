"""Restores an application's newest snapshots aside, and compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from holdfast_airflow.errors import FINAL
from holdfast_airflow.hooks.hosts import check_token
from holdfast_airflow.operators.job import ReportJobOperator
from holdfast_airflow.settings import environment_of
from state_lib.errors import SnapshotInvalid, from_wire
from state_lib.words import size

if TYPE_CHECKING:
    from state_lib.config import Settings
    from state_lib.reports.folder import Kind


class RestoreDrillOperator(ReportJobOperator):
    """Restores each task's newest snapshot and its tail aside, and compares digests.

    It is what a restore would give and take, beside the live stores, which go on: in a temporary
    directory on the worker's machine that is removed at the end, or by the next drill where this
    one was killed. See `ReportJobOperator` for what happens around it.

    - A store differs from what was restored, seen twice: the task fails without a retry.
    - A snapshot cannot be restored, or one task has none: the same.
    - A host or storage is away: the task's retries apply.
    - There is no snapshot yet of any task: the task is skipped.

    Args:
        folder: Where the temporary directory is made; default: ``drills`` in the home.
        kwargs: see `ReportJobOperator`.

    Returns (as XCom): as `state_lib.digests.drill.Drill.to_json`, without digests: ``seconds``,
    ``fetched_bytes``, ``records``, ``records_per_s`` and ``bytes_per_s``, of all and by task; with
    its ``url`` also under the key ``report`` if the task fails.
    """

    kind: ClassVar[Kind] = "drill"
    template_fields: Sequence[str] = (*ReportJobOperator.template_fields, "folder")
    ui_color = "#f2ead2"

    def __init__(self, *, folder: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def command(self, settings: Settings, job: str) -> tuple[list[str], dict[str, str]]:
        """This Python, with a module of the library. Raises Unauthorized."""
        check_token(settings)
        where = [self.folder] if self.folder else []
        module = [sys.executable, "-m", "state_lib.digests.drill_job"]
        return [*module, self.app, job, *where], environment_of(settings)

    def judge(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what was restored, and how fast.

        Raises:
            AirflowFailException: something else than the live state, or nothing.
            AirflowException: it could not be tried.
            AirflowSkipException: there is no snapshot at all.
        """
        app, tasks = self.app, result["tasks"]
        for task in tasks:
            self._tell(task)
        if len(result["absent"]) == len(tasks):
            raise AirflowSkipException(
                f"there is no snapshot of {app} in {result['url']} yet: 'holdfast snapshot create "
                f"{app}', or the DAG that takes them"
            )
        if result["alarms"]:
            raise AirflowFailException(self._alarm(tasks[result["alarms"][0]], result))
        bad = [task for task in tasks if task["error"] is not None]
        errors = [from_wire(task["error"]) for task in bad]
        final = (*FINAL, SnapshotInvalid)
        hopeless = [i for i, error in enumerate(errors) if isinstance(error, final)]
        if bad:
            first = hopeless[0] if hopeless else 0
            text = (
                f"{len(bad)} of {len(tasks)} tasks of {app} could not be restored aside, first "
                f"task {bad[first]['partition']}: {errors[first].message}"
            )
            step = (
                f". Next: 'holdfast snapshot create {app}' takes new ones, and uploads what is not "
                "whole; read docs/how-to/drill.md"
            )
            raise (AirflowFailException(text + step) if hopeless else AirflowException(text))
        self.log.info(
            "%s: equal in all %s tasks, %s s: %s fetched at %s/s, %s records at %s/s",
            app,
            len(tasks),
            result["seconds"],
            size(result["fetched_bytes"]),
            size(result["bytes_per_s"]),
            f"{result['records']:,}",
            f"{result['records_per_s']:,.0f}",
        )
        return self.brief(result)

    def brief(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Without digests, which are in the report's file."""
        tasks = [{k: v for k, v in t.items() if k != "digests"} for t in result["tasks"]]
        return {**result, "tasks": tasks}

    def _tell(self, task: Mapping[str, Any]) -> None:
        name = f"{self.app}/{task['partition']} on {task['host']}"
        for line in task["passed_over"]:
            self.log.warning("%s: snapshot passed over: %s", name, line)
        if task["error"] is not None:
            self.log.error("%s: %s", name, task["error"]["message"])
            return
        tell = self.log.error if task["different"] else self.log.info
        tell(
            "%s: snapshot %s, %s and %s records in %s s (%s records/s): %s",
            name,
            task["snapshot"],
            size(task["fetched_bytes"]),
            f"{task['records']:,}",
            task["seconds"],
            f"{task['records_per_s']:,.0f}",
            f"DIFFERENT: {', '.join(task['different'])}" if task["different"] else "equal",
        )

    def _alarm(self, task: Mapping[str, Any], result: Mapping[str, Any]) -> str:
        return (
            f"ALARM: {', '.join(task['different'])} of task {self.app}/{task['partition']} on "
            f"{task['host']} is not what snapshot {task['snapshot']} and its tail give, at two "
            f"markers ({len(result['alarms'])} of {len(result['tasks'])} tasks differ). Next: "
            f"'holdfast digest {self.app} --against changelog' tells which side is wrong: if that "
            "is equal, the snapshot; else keep a copy of the host's directory, and audit; read "
            "docs/how-to/drill.md"
        )
