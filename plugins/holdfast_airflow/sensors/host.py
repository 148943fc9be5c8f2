"""Hosts that are down, and tasks that nobody has."""

from __future__ import annotations

from holdfast_airflow.sensors.base import ConditionSensor


class HostDownSensor(ConditionSensor):
    """A state host of ``HOLDFAST_HOSTS`` does not answer, for ten seconds if nothing is said."""

    condition = "host-down"
    every_s, holds_s = 5.0, 10.0


class TaskWithoutOwnerSensor(ConditionSensor):
    """No host that answers has a task: nothing of it is committed or answered.

    With a static list of hosts it follows from a host that stays down; it holds for a minute if
    nothing is said, so that a host which starts again is no alarm.
    """

    condition = "task-without-owner"
