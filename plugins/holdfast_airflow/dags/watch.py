"""The DAG that watches an application for failures, and alarms."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from holdfast_airflow.operators.watch import WatchConditionOperator
from holdfast_airflow.sensors import (
    ChangelogUnsafeSensor,
    CompactionStuckSensor,
    DiskFillingSensor,
    DriverStalledSensor,
    HostDownSensor,
    SnapshotStaleSensor,
    StoreLostSensor,
    TaskWithoutOwnerSensor,
)
from holdfast_airflow.sensors.base import ConditionSensor

WATCH_DOC = """
### Watch `{app}`

A task for each thing that may be wrong with `{app}`: a host is down, a task is without owner, the
driver is stalled, a changelog is unsafe or is not compacted, a store is lost, snapshots are stale,
a disk fills. Each incident is told once when it begins and once when it is over; without notifiers
in the task's log.
It alarms and changes nothing. A run lasts a day, and the next one goes on where it ended.
"""
SENSORS: tuple[type[ConditionSensor], ...] = (
    HostDownSensor,
    TaskWithoutOwnerSensor,
    DriverStalledSensor,
    ChangelogUnsafeSensor,
    CompactionStuckSensor,
    StoreLostSensor,
    SnapshotStaleSensor,
    DiskFillingSensor,
)
OF_HOSTS: tuple[type[ConditionSensor], ...] = (HostDownSensor, DiskFillingSensor)
"""Whose incidents are the same for every application on these hosts."""
FIRST_SNAPSHOT_S = 3900.0
"""An application that is new has no snapshots before the hourly DAG takes the first ones."""


def watch_dag(
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    hosts: bool = True,
    schedule: timedelta | str | None = timedelta(minutes=1),
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_watch``: a task for each condition, named as it is.

    Args:
        app: The application's id.
        notifiers: Whom to tell: any notifiers of Airflow; see `IncidentNotifier`.
        hosts: Watch `OF_HOSTS` as well; not where another application on the same hosts does.
        schedule: When a run begins if none is there; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``watch``.
        operator: More arguments of every `WatchConditionOperator`.
    """
    with DAG(
        f"{app}_watch",
        description=f"Watches {app} for failures, and alarms",
        doc_md=WATCH_DOC.format(app=app),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "watch", *tags],
    ) as dag:
        for sensor in SENSORS:
            if sensor in OF_HOSTS and not hosts:
                continue
            given: dict[str, Any] = {
                # For the whole day of a run: Airflow's database may be away, a setting be wrong.
                "retries": 3000,
                "retry_delay": timedelta(seconds=30),
                "notifiers": notifiers,
                **operator,
            }
            if sensor is SnapshotStaleSensor:
                given.setdefault("hold_s", FIRST_SNAPSHOT_S)
                given.setdefault("calm_s", 0.0)  # one look that sees a snapshot is enough
            WatchConditionOperator(
                task_id=sensor.condition.replace("-", "_"), app=app, sensor=sensor, **given
            )
    return dag
