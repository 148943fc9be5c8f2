"""Sets an application's topics as they have to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.skipmixin import SkipMixin
from airflow.sdk.exceptions import AirflowFailException

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.checks import Change


class RepairChangelogOperator(BaseOperator, SkipMixin):
    """Compares how an application's topics are set with how they have to be, and sets them so.

    Only topics that the application owns are altered, never sources or outputs. The difference is
    in the task's log and its XCom. With ``only_plan`` nothing is altered; where there is nothing to
    alter, the tasks that follow are skipped. What such a plan returned goes to another task as
    ``approved``: that one sets nothing else, and refuses if anything differs that is not in it.

    Args:
        app: The application's id.
        only_plan: Look, and alter nothing.
        approved: What ``only_plan`` returned; None: whatever differs is set.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        skip_unknown: Skip the task while the application has not run, or not since it was reset.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): ``app``, and ``changes``, each with ``topic``, ``key``, the value ``seen``
    and the one ``wanted``; those that were set, or with ``only_plan`` would be.
    """

    template_fields: Sequence[str] = ("app", "approved", "conn_id", "env")
    ui_color = "#f5e6c8"
    inherits_from_skipmixin = True

    def __init__(
        self,
        *,
        app: str,
        only_plan: bool = False,
        approved: Any = None,
        conn_id: str = HoldfastHook.default_conn_name,
        skip_unknown: bool = False,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.only_plan = only_plan
        self.approved = approved
        self.conn_id = conn_id
        self.skip_unknown = skip_unknown
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Look; and unless that is all, set, and look again.

        Raises:
            AirflowFailException: no such application; something differs that was not approved;
                Kafka does not let us; or what was set is still different.
            AirflowSkipException: no such application, where that is to be skipped.
            AirflowException: Kafka is away; a retry goes on.
        """
        from state_lib.gathering.repair import differences, left_different, set_approved
        from state_lib.kafka import Kafka

        with as_airflow(skip_unknown=self.skip_unknown):
            settings = HoldfastHook(self.conn_id, self.env).settings
            kafka = Kafka.of(settings)
            if self.only_plan:
                return self._planned(context, differences(settings, kafka, self.app))
            wanted = self._approved()
            if wanted is None:
                wanted = differences(settings, kafka, self.app)
            done = set_approved(settings, kafka, self.app, wanted)
            left = left_different(settings, kafka, self.app)
        self._tell("was set", done)
        if left:
            self._tell("is still different", left)
            raise AirflowFailException(
                f"{self.app}: {len(done)} settings were set, and {len(left)} are different, first "
                f"{left[0].key} of {left[0].topic}, which is {left[0].seen}: somebody sets them as "
                f"well. Find out who, then run this again; see 'holdfast check {self.app}'"
            )
        return self._plain(done)

    # ------------------------------------------------------------------ inside

    def _planned(self, context: Context, found: Sequence[Change]) -> dict[str, Any]:
        self._tell("is different", found)
        plan = self._plain(found)
        if found:
            return plan
        self.log.info("Nothing to repair: the topics that %s owns are set as they must", self.app)
        ti: Any = context["ti"]
        ti.xcom_push("return_value", plan)  # Airflow keeps none of a task that skips others
        self.skip(ti, context["task"].get_direct_relatives(upstream=False))
        return plan

    def _approved(self) -> Sequence[Change] | None:
        from state_lib.checks import Change

        if self.approved is None:
            return None
        if not isinstance(self.approved, Mapping) or self.approved.get("app") != self.app:
            raise AirflowFailException(
                f"approved is {self.approved!r}, and no plan for {self.app}: give what a "
                f"{type(self).__name__} with only_plan returned, such as plan.output"
            )
        return [Change(**change) for change in self.approved["changes"]]

    def _tell(self, what: str, changes: Iterable[Change]) -> None:
        for one in changes:
            said = (one.topic, one.key, what, one.seen, one.wanted)
            self.log.info("%s: %s %s: is %s, is to be %s", *said)

    def _plain(self, changes: Iterable[Change]) -> dict[str, Any]:
        return {"app": self.app, "changes": [asdict(change) for change in changes]}
