"""Takes an application, or some of its tasks, back in time: plan, and do it once it is approved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.journeys import goes, in_a_line, journey_of
from holdfast_airflow.operators.work import StateWorkOperator
from holdfast_airflow.plans import partitions_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.reports.folder import Kind


class PlanPastOperator(BaseOperator):
    """Sees what it would mean to take tasks back to a savepoint, a snapshot or a time.

    Nothing is changed. It is refused, with the reason, if a source does not hold what would have to
    be read again, or stores are declared otherwise by now.

    Args:
        app: The application's id.
        to: A time (ISO 8601, or ms since 1970): of each task the newest snapshot at or before it;
            or the id of a savepoint, or of one task's snapshot.
        tasks: Names, ``<app>/<partition>``, or partitions, as a list or as text. None or none: all.
        republish: Write outputs again that were written since; a template renders ``True``.
        conn_id: The Holdfast connection; where there is none, the worker's own settings count.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): what ``holdfast restore plan APP --to … --json`` prints.
    """

    template_fields: Sequence[str] = ("app", "to", "tasks", "republish", "conn_id", "env")
    ui_color = "#e3e0f5"

    def __init__(
        self,
        *,
        app: str,
        to: str,
        tasks: Any = None,
        republish: bool | str = False,
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.to = to
        self.tasks = tasks
        self.republish = republish
        self.conn_id = conn_id
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask storage and the owning hosts.

        Raises:
            AirflowFailException: it cannot be done: why, and what can.
            AirflowException: a host, Kafka or storage is away; a retry may help.
        """
        del context
        from state_lib.apps.past import plan

        with as_airflow():
            settings = HoldfastHook(self.conn_id, self.env).settings
            tasks, again = partitions_of(self.app, self.tasks), str(self.republish) == "True"
            journey = plan(settings, self.app, str(self.to), tasks, republish=again)
        for one in journey.plans:
            self.log.info("%s", in_a_line(one))
        for driver in journey.drivers:
            self.log.info("Driver %s would end at a batch's edge, and be followed by one", driver)
        return journey.to_json()


class GoBackOperator(StateWorkOperator):
    """Takes tasks back in time, once somebody has approved it: that is always a person's choice.

    The hosts fetch the snapshots while the stream goes on; then its driver ends at a batch's edge,
    and whoever supervises it starts another, which reads on from there. See `ReportJobOperator` for
    what happens around it. Whatever is lost or cleared on the way, a task that went back for this
    one does not go again, and one that is on its way is waited for. One that somebody else has
    taken elsewhere since it was planned is left there: the task fails, and a new run plans anew.

    Args:
        journey: The output of a `PlanPastOperator`; what stands there is left alone.
        approved: The output of an `ApproveRestoreOperator` that was given the same.
        kwargs: As `ReportJobOperator`.

    Returns (as XCom): for each task that went back ``{task, source, state, records, marker}``, for
    a `ReportRestoreOperator`.
    """

    kind: ClassVar[Kind] = "restore"
    template_fields: Sequence[str] = (*StateWorkOperator.template_fields, "journey", "approved")
    ui_color = "#cfe8d8"

    def __init__(self, *, journey: Any, approved: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.journey = journey
        self.approved = approved
        self._request = ""

    def execute(self, context: Context) -> Any:
        """See `ReportJobOperator`; returns at once if there is nothing to do.

        Raises:
            AirflowFailException: nobody has approved this.
            Others: as `StateWorkOperator.execute`.
        """
        with as_airflow():
            journey = journey_of(self.journey)
        if journey is None or not goes(journey):
            self.log.info("%s: nothing to do", self.app)
            return []
        if journey.id not in (self.approved or {}).get("approved", ()):
            raise AirflowFailException(
                f"nobody has approved to take {self.app} to where this plan leads: a new run asks"
            )
        ti: Any = context["ti"]
        self._request = f"Airflow: {ti.dag_id}, {ti.run_id}, {ti.task_id}, {ti.map_index}"
        return super().execute(context)

    def given(self) -> Mapping[str, Any]:
        """The plan, and what names this wish."""
        return {"journey": self.journey, "request": self._request}

    def judge(self, result: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Tell which tasks are back."""
        for one in result["tasks"]:
            at = one["marker"]
            told = (one["task"], one["source"], at["epoch"], at["n"])
            self.log.info("%s went back to snapshot %s; it stands at commit %s/%s", *told)
        drivers = result["drivers"]
        how = "its supervisor starts a new driver" if drivers else f"start the job of {self.app}"
        self.log.info("%s: %s, which reads on from there", self.app, how)
        return list(result["tasks"])
