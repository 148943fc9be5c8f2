"""Verifies restores and says how they went."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook, existing
from holdfast_airflow.triggers.resumed import StreamResumedTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.digests.compare import Comparison


class ReportRestoreOperator(BaseOperator):
    """Compares restored stores with their changelogs, sees the stream go on, tells the time taken.

    Digests are compared at the same positions, as ``holdfast digest --against`` does: each task is
    built once more aside, on this worker's disk. If a driver runs, each task must then take part in
    the stream again. It reads only: a retry is harmless.

    Args:
        app: The application's id.
        restores: The output of a `RestoreOperator` or a `GoBackOperator`; or several in a list.
        since: When it was sensed, as wall time (s); a number, or a template that renders to one.
        against: ``changelog``, a full replay; or ``snapshot``, the newest one and its tail.
        resumed_within: How long a living driver may take to go on with the tasks.
        conn_id: The Holdfast connection; where there is none, the worker's own settings count.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): ``{app, tasks, verified, seconds, stream}``; ``seconds`` from ``since`` to
    verified, None if it is not known when that was. Also under the key ``report`` if it fails.
    """

    template_fields: Sequence[str] = ("app", "restores", "since", "conn_id", "env")
    ui_color = "#dce9d2"

    def __init__(  # noqa: PLR0913 - an operator has options
        self,
        *,
        app: str,
        restores: Any,
        since: float | str | None = None,
        against: Literal["changelog", "snapshot"] = "changelog",
        resumed_within: timedelta = timedelta(minutes=5),
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.restores = restores
        self.since = since
        self.against = against
        self.resumed_within = resumed_within
        self.conn_id = conn_id
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Compare; then wait, deferred, for the stream.

        Raises:
            AirflowFailException: a store differs.
            AirflowException: a task or Kafka is away; a retry may help.
        """
        self.restores = _flat(self.restores)
        report: dict[str, Any] = {"app": self.app, "tasks": self.restores, "verified": True}
        if not self.restores:
            self.log.info("%s: nothing was restored", self.app)
            return {**report, "seconds": None, "stream": ""}
        with as_airflow():
            found = self._compared()
        report |= {"verified": not found.alarms and not found.failed, "seconds": self._seconds()}
        report["digests"] = found.to_json()["tasks"]
        ti: Any = context["ti"]
        ti.xcom_push("report", report)
        self._judge(found)
        took = "" if report["seconds"] is None else f", {report['seconds']:.1f} s after it was seen"
        self.log.info("%s: all that was restored is verified%s", self.app, took)
        return self._resumed(report)

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

    def _compared(self) -> Comparison:
        from state_lib.apps.restoring import partition_of
        from state_lib.changelog.claims import topology_of
        from state_lib.digests.compare import compare  # noqa: PLC0415 - reaches Kafka and RocksDB
        from state_lib.kafka import Kafka

        settings = HoldfastHook(self.conn_id, self.env).settings
        kafka = Kafka.of(settings)
        return compare(
            kafka,
            topology_of(kafka, self.app),
            settings.host_addresses,
            settings.read_token(),
            partitions=[partition_of(self.app, one["task"]) for one in self.restores],
            snapshots_url=settings.snapshots_url if self.against == "snapshot" else None,
        )

    def _judge(self, found: Comparison) -> None:
        for task in found.tasks:
            name = f"{self.app}/{task.live.partition}"
            for store, replayed in task.replayed.items():
                live, same = task.live.stores[store], store not in task.different
                said = "equal" if same else "DIFFERENT"
                self.log.info("%s %s: %s, replayed %s: %s", name, store, live, replayed, said)
        if found.alarms:
            task = found.alarms[0]
            raise AirflowFailException(
                f"{', '.join(task.different)} of task {self.app}/{task.live.partition} differs "
                f"from its {self.against} after the restore: keep a copy of its directory, let "
                f"'holdfast audit {self.app}' tell which side is right"
            )
        if found.failed:
            raise AirflowException("; ".join(str(task.error) for task in found.failed))

    def _seconds(self) -> float | None:
        """Since it was sensed."""
        try:
            return round(time.time() - float(self.since or ""), 1)
        except ValueError:
            return None

    def _resumed(self, report: dict[str, Any]) -> dict[str, Any]:
        places = {
            one["task"]: [one["marker"]["epoch"], one["marker"]["n"]] for one in self.restores
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
