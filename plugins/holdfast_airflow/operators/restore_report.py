"""Verifies restores and says how they went."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.hooks.holdfast import existing
from holdfast_airflow.operators.work import StateWorkOperator
from holdfast_airflow.triggers.resumed import StreamResumedTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.reports.folder import Kind


class ReportRestoreOperator(StateWorkOperator):
    """Compares restored stores with their changelogs, sees the stream go on, tells the time taken.

    Digests are compared at the same positions, as ``holdfast digest --against`` does: each task is
    built once more aside, on the disk of the worker's machine, by a job of its own, which is waited
    for in the triggerer. If a driver runs, each task must then take part in the stream again. It
    reads only: a retry is harmless, and restores of other DAGs are compared beside it.

    Args:
        restores: The output of a `RestoreOperator` or a `GoBackOperator`; or several in a list.
        since: When it was sensed, as wall time (s); a number, or a template that renders to one.
        against: ``changelog``, a full replay; or ``snapshot``, the newest one and its tail.
        resumed_within: How long a living driver may take to go on with the tasks.
        kwargs: As `ReportJobOperator`.

    Returns (as XCom): ``{app, tasks, verified, seconds, digests, stream}``; ``seconds`` from
    ``since`` to verified, None if it is not known when that was. Also under the key ``report`` if
    it fails.
    """

    kind: ClassVar[Kind] = "comparison"
    apart: ClassVar[bool] = True
    template_fields: Sequence[str] = (*StateWorkOperator.template_fields, "restores", "since")
    ui_color = "#dce9d2"

    def __init__(
        self,
        *,
        restores: Any,
        since: float | str | None = None,
        against: Literal["changelog", "snapshot"] = "changelog",
        resumed_within: timedelta = timedelta(minutes=5),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.restores = restores
        self.since = since
        self.against = against
        self.resumed_within = resumed_within

    def execute(self, context: Context) -> Any:
        """Have them compared, if there are any; see `ReportJobOperator`."""
        if not _flat(self.restores):
            self.log.info("%s: nothing was restored", self.app)
            nothing: dict[str, Any] = {"app": self.app, "tasks": [], "verified": True}
            return {**nothing, "seconds": None, "stream": ""}
        return super().execute(context)

    def given(self) -> Mapping[str, Any]:
        """Which tasks, and against what."""
        return {"tasks": [one["task"] for one in _flat(self.restores)], "against": self.against}

    def judge(self, result: Mapping[str, Any]) -> Any:
        """Tell what was compared; then wait, deferred, for the stream.

        Raises:
            AirflowFailException: a store differs.
            AirflowException: a task or Kafka is away; a retry may help.
        """
        self._tell(result)
        for task in result["tasks"]:
            if task["error"] is None and task["different"]:
                raise AirflowFailException(
                    f"{', '.join(task['different'])} of task {self.app}/{task['partition']} "
                    f"differs from its {self.against} after the restore: keep a copy of its "
                    f"directory, let 'holdfast audit {self.app}' tell which side is right"
                )
        if errors := [task["error"] for task in result["tasks"] if task["error"] is not None]:
            raise AirflowException("; ".join(errors))
        report = self.brief(result)
        took = "" if report["seconds"] is None else f", {report['seconds']:.1f} s after it was seen"
        self.log.info("%s: all that was restored is verified%s", self.app, took)
        return self._resumed(report)

    def brief(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """The tasks, as they were restored and compared."""
        verified = bool(result["equal"] and result["complete"])
        return {
            "app": self.app,
            "tasks": _flat(self.restores),
            "verified": verified,
            "seconds": self._seconds(result["at"]),
            "digests": result["tasks"],
        }

    def finish(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """The stream goes on, or was waited for in vain.

        Raises:
            AirflowFailException: a driver lives and does not go on with a task.
        """
        report: dict[str, Any] = {**event["kept"], "stream": event["text"]}
        ti: Any = context["ti"]
        ti.xcom_push("report", report)
        if event["event"] != "resumed":
            raise AirflowFailException(
                f"{self.app} is restored and verified, but its stream does not go on: "
                f"{event['text']}. Look at 'holdfast drivers {self.app}' and the driver's log"
            )
        self.log.info("%s: %s", self.app, event["text"])
        return report

    # ------------------------------------------------------------------ inside

    def _tell(self, result: Mapping[str, Any]) -> None:
        for task in result["tasks"]:
            name, live = f"{self.app}/{task['partition']}", task["live"]["stores"]
            for store, replayed in task["replayed"].items():
                said = "DIFFERENT" if store in task["different"] else "equal"
                told = (name, store, live[store], replayed, said)
                self.log.info("%s %s: %s, replayed %s: %s", *told)

    def _seconds(self, at: float) -> float | None:
        """Since it was sensed."""
        try:
            return round(at - float(self.since or ""), 1)
        except ValueError:
            return None

    def _resumed(self, report: dict[str, Any]) -> dict[str, Any]:
        places = {
            one["task"]: [one["marker"]["epoch"], one["marker"]["n"]]
            for one in _flat(self.restores)
        }
        self.defer(
            trigger=StreamResumedTrigger(
                app=self.app,
                restored=places,
                until=time.time() + self.resumed_within.total_seconds(),
                conn_id=existing(self.conn_id),
                env=self.env,
                kept=report,
            ),
            method_name="finish",
        )
        raise AssertionError  # `defer` raises


def _flat(given: Any) -> list[dict[str, Any]]:
    """Restores of one task or of several, of which some may have been skipped."""
    if isinstance(given, Mapping):
        return [dict(given)]
    return [one for each in given or () for one in _flat(each)]
