"""Stores that were lost, or are corrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_airflow.sensors.base import ConditionSensor

if TYPE_CHECKING:
    from state_lib.checks.condition import Condition


class StoreLostSensor(ConditionSensor):
    """A host has lost the stores of a task, or found them corrupt, and waits for a restore.

    That is so with ``HOLDFAST_RESTORE_MODE=orchestrated``; hosts in mode ``auto`` restore by
    themselves, and this sensor waits on.

    Returns (as XCom): the names of the tasks, ``<app>/<partition>``, as a list.
    """

    condition = "store-lost"
    every_s, holds_s = 5.0, 0.0

    def result(self, found: Condition) -> list[str]:
        """The tasks."""
        return list(found.tasks)
