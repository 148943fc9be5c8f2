"""Drivers that do not commit."""

from __future__ import annotations

from typing import Any

from holdfast_airflow.sensors.base import ConditionSensor

MOST_S = 20.0


class DriverStalledSensor(ConditionSensor):
    """The driver is gone and nobody asked it to stop, or it has work and commits nothing.

    How long a batch may take is judged by those before it, so it looks every 20 s at least. It
    holds for a minute if nothing is said: a supervisor that starts a driver again is no alarm.
    """

    condition = "driver-stalled"
    every_s = 5.0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.poke_interval > MOST_S:
            raise ValueError(
                f"poke_interval of {self.task_id!r} is {self.poke_interval:g} s: the pace of "
                f"batches can be seen by looks every {MOST_S:g} s at least"
            )
