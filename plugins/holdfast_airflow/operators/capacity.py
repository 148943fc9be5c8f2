"""Reports what an application's state takes, and how it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.links import CapacityReportLink
from state_lib.words import size

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.capacity.model import Capacity


class CapacityReportOperator(BaseOperator):
    """Keeps a capacity report of an application: a page with charts, and its figures as JSON.

    Both are in ``HOLDFAST_REPORTS_URL``, where the last ``HOLDFAST_REPORTS_KEPT`` stay; how the
    state grows is told from those before. What is found never fails the task.

    Args:
        app: The application's id.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        read_logs: Read changelogs at some places; without it their bytes are not known.
        skip_unknown: Skip the task while the application has not run, or not since it was reset.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): ``page`` and ``figures``, the addresses of both; ``totals``; ``full_days``,
    by host.
    """

    template_fields: Sequence[str] = ("app", "conn_id", "env")
    operator_extra_links = (CapacityReportLink(),)
    ui_color = "#dcefe9"

    def __init__(
        self,
        *,
        app: str,
        conn_id: str = HoldfastHook.default_conn_name,
        read_logs: bool = True,
        skip_unknown: bool = False,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.conn_id = conn_id
        self.read_logs = read_logs
        self.skip_unknown = skip_unknown
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Gather, assess, keep.

        Raises:
            AirflowFailException: no such application, or a wrong setting.
            AirflowSkipException: no such application, where that is to be skipped.
            AirflowException: Kafka or storage is away; a retry may help.
        """
        del context
        from state_lib.capacity.measure import capacity, keep

        hook = HoldfastHook(self.conn_id, self.env)
        with as_airflow(skip_unknown=self.skip_unknown):
            hook.declared(self.app)
        with as_airflow():
            found = capacity(hook.settings, self.app, read_logs=self.read_logs)
            kept = keep(hook.settings, found)
        self._tell(found)
        self.log.info("The page is %s, its figures are %s", kept.page, kept.figures)
        return {
            "page": kept.page,
            "figures": kept.figures,
            "totals": found.totals,
            "full_days": {h.host: h.growth.full_days for h in found.hosts},
        }

    def _tell(self, found: Capacity) -> None:
        from state_lib.capacity.page import ahead

        for note in found.notes:
            self.log.warning("%s", note)
        for host in found.hosts:
            self.log.info(
                "%s: %s of %s free, %s",
                host.host,
                size(host.disk_free),
                size(host.disk_total),
                ahead(host.growth),
            )
