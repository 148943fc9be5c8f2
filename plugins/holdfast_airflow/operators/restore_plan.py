"""Plans restores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.plans import in_a_line, partitions_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.restore.plan import RestorePlan


class PlanRestoreOperator(BaseOperator):
    """Asks the hosts how tasks would be restored: the cheapest valid source of each, and the loss.

    Nothing is changed. A task that is opening or restoring by itself is left to the task's retries.

    Args:
        app: The application's id.
        tasks: Names, ``<app>/<partition>``, or partitions, as a list, a task's output, or text.
            None or none: all.
        source: ``local``, ``changelog``, ``snapshot`` or the id of one; None: the cheapest one.
        unasked_first: Where some plans discard something and others do not, return the others only:
            whoever plans again finds the rest. So no task waits for an answer about another.
        conn_id: The Holdfast connection; where there is none, the worker's own settings count.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): what ``holdfast restore plan APP --task … --json`` prints.
    """

    template_fields: Sequence[str] = ("app", "tasks", "source", "conn_id", "env")
    ui_color = "#e3e0f5"

    def __init__(
        self,
        *,
        app: str,
        tasks: Any = None,
        source: str | None = None,
        unasked_first: bool = False,
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.tasks = tasks
        self.source = source
        self.unasked_first = unasked_first
        self.conn_id = conn_id
        self.env = env or {}

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Ask the owning hosts.

        Raises:
            AirflowFailException: no such application, or nothing is left to restore from.
            AirflowException: no such task or source; or a host or Kafka is away, or the task is
                busy: a retry may help.
        """
        del context
        from state_lib.apps.restoring import ask_plans

        with as_airflow():
            settings = HoldfastHook(self.conn_id, self.env).settings
            wanted = partitions_of(self.app, self.tasks)
            plans = ask_plans(settings, self.app, wanted, self.source or None)
        for one in plans:
            self.log.info("%s", in_a_line(one))
        return [one.to_json() for one in self._first(plans)]

    def _first(self, plans: list[RestorePlan]) -> list[RestorePlan]:
        unasked = [p for p in plans if not p.discards and not p.is_nothing]
        later = [p.task for p in plans if p.discards]
        if not self.unasked_first or not unasked or not later:
            return plans
        self.log.info("%s: planned again once the others are back", ", ".join(later))
        return [p for p in plans if not p.discards]
