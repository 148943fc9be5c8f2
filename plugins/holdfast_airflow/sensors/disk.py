"""Disks that fill."""

from __future__ import annotations

from holdfast_airflow.sensors.base import ConditionSensor


class DiskFillingSensor(ConditionSensor):
    """A host's disk is nearly full, will be within a week, or has no room for a restore."""

    condition = "disk-filling"
