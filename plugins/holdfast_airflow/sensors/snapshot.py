"""Snapshots that are too old."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast_airflow.sensors.base import ConditionSensor


class SnapshotStaleSensor(ConditionSensor):
    """A task has no snapshot that is young enough and of use, or the storage does not answer.

    Args:
        max_age: How old the newest one may become, if something was committed since; default 26 h.
        kwargs: As `ConditionSensor`.
    """

    condition = "snapshot-stale"
    every_s = 900.0  # it reads every manifest, of things whose age is counted in hours

    def __init__(self, *, max_age: timedelta | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_age = max_age

    @property
    def options(self) -> dict[str, Any]:
        """See `ConditionSensor`."""
        if self.max_age is None:
            return {}
        return {"snapshot_age_ms": int(self.max_age.total_seconds() * 1000)}
