"""Changelogs that do not protect their stores, or grow for ever."""

from __future__ import annotations

from typing import Any

from holdfast_airflow.sensors.base import ConditionSensor


class ChangelogUnsafeSensor(ConditionSensor):
    """A topic of the application fails a check: it deletes, is lost, is not replicated.

    Args:
        read_logs: Read changelogs at some places as well, to see whether they are compacted; give
            a ``poke_interval`` of a quarter of an hour then.
        kwargs: As `ConditionSensor`.
    """

    condition = "changelog-unsafe"

    def __init__(self, *, read_logs: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.read_logs = read_logs

    @property
    def options(self) -> dict[str, Any]:
        """See `ConditionSensor`."""
        return {"read_logs": self.read_logs}


class CompactionStuckSensor(ConditionSensor):
    """The brokers do not compact a changelog: measured in the log, whatever its settings say."""

    condition = "compaction-stuck"
    every_s = 900.0  # it reads logs
