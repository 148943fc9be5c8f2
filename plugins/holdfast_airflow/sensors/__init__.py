"""Deferrable sensors: one for each condition that somebody must know of."""

from holdfast_airflow.sensors.base import ConditionSensor
from holdfast_airflow.sensors.changelog import ChangelogUnsafeSensor, CompactionStuckSensor
from holdfast_airflow.sensors.disk import DiskFillingSensor
from holdfast_airflow.sensors.driver import DriverStalledSensor
from holdfast_airflow.sensors.host import HostDownSensor, TaskWithoutOwnerSensor
from holdfast_airflow.sensors.snapshot import SnapshotStaleSensor
from holdfast_airflow.sensors.store import StoreLostSensor

__all__ = [
    "ChangelogUnsafeSensor",
    "CompactionStuckSensor",
    "ConditionSensor",
    "DiskFillingSensor",
    "DriverStalledSensor",
    "HostDownSensor",
    "SnapshotStaleSensor",
    "StoreLostSensor",
    "TaskWithoutOwnerSensor",
]
