"""Verifies that an application's state is safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.checks import Report


class VerifyChangelogsOperator(BaseOperator):
    """Runs all checks of an application: topics, compaction as it happens, tasks, disks, snapshots.

    What is not ok is in the task's log, with the next step and the page of the runbook. The task
    fails, without a retry, if a verdict is ``fail``; warnings leave it successful.

    Args:
        app: The application's id.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        fail_on_warnings: Fail on warnings as well.
        read_logs: Read changelogs at some places, to see whether they are compacted.
        skip_unknown: Skip the task while the application has not run, or not since it was reset.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): the report, as `state_lib.checks.Report.to_json`; also under the key
    ``report`` if the task fails.
    """

    template_fields: Sequence[str] = ("app", "conn_id", "env")
    ui_color = "#d5e3f5"

    def __init__(
        self,
        *,
        app: str,
        conn_id: str = HoldfastHook.default_conn_name,
        fail_on_warnings: bool = False,
        read_logs: bool = True,
        skip_unknown: bool = False,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.conn_id = conn_id
        self.fail_on_warnings = fail_on_warnings
        self.read_logs = read_logs
        self.skip_unknown = skip_unknown
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Gather, judge, tell.

        Raises:
            AirflowFailException: a verdict fails, no such application, or a wrong setting.
            AirflowSkipException: no such application, where that is to be skipped.
            AirflowException: Kafka is away; a retry may help.
        """
        with as_airflow(skip_unknown=self.skip_unknown):
            hook = HoldfastHook(self.conn_id, self.env)
            report = hook.check(self.app, read_logs=self.read_logs)
        found = report.to_json()
        ti: Any = context["ti"]
        ti.xcom_push("report", found)
        self._tell(report)
        if report.level == "fail" or (report.level == "warn" and self.fail_on_warnings):
            first, bad = report.alarms[0], len(report.alarms)
            raise AirflowFailException(
                f"{self.app}: {bad} of {len(report.verdicts)} verdicts are not ok, first "
                f"{first.check} of {first.subject}: {first.seen}. Next: {first.step}"
            )
        return found

    def _tell(self, report: Report) -> None:
        for one in report.alarms:
            tell = self.log.error if one.level == "fail" else self.log.warning
            tell(
                "%s %s %s: seen: %s; needed: %s; next: %s; read: %s",
                *(one.level, one.check, one.subject, one.seen, one.needed, one.step, one.document),
            )
        self.log.info("%s: %s verdicts, %s", report.app, len(report.verdicts), report.level)
