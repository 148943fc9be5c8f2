"""A host that stays down for long enough to be told of."""

from __future__ import annotations

from collections import Counter

from state_lib.client.airflow import Airflow
from tests.chaos.soak.killer import Killer
from tests.chaos.soak.names import WATCH
from tests.chaos.soak.scene import Scene
from tests.chaos.soak.told import Told

DOWN = "host-down"
WATCHED_S = 180.0
"""Until the triggerer watches, and incidents of earlier rounds are over."""
TOLD_S = 120.0
"""From the kill until that is told: it holds for 10 s, and a worker tells it."""
OVER_S = 120.0
"""From the host's return until its recovery is told."""


class Held:
    """Kills a host, and has it started again when its alarm was told."""

    def __init__(self, scene: Scene, killer: Killer, told: Told, airflow: Airflow) -> None:
        self._scene, self._killer = scene, killer
        self._told, self._airflow = told, airflow

    def play(self, took: dict[str, float]) -> str:
        """One alarm and one recovery are told of the host, whose name is returned.

        Args:
            took: takes the seconds until it was told, and until its recovery was.
        """
        scene = self._scene
        scene.until("watched, with nothing open", self._watched, WATCHED_S)
        before = self._counts()
        host = self._killer.take_down()
        alarm, over = ("alarm", host), ("recovery", host)
        took["told"] = scene.until(
            f"{host} told", lambda: self._counts()[alarm] > before[alarm], TOLD_S
        )
        self._killer.bring_back(host)
        took["told of its return"] = scene.until(
            f"{host}'s recovery told", lambda: self._counts()[over] > before[over], OVER_S
        )
        after = self._counts()
        assert {one: after[one] - before[one] for one in (alarm, over)} == {alarm: 1, over: 1}
        return host

    def _counts(self) -> Counter[tuple[str, str]]:
        return Counter(self._told.of(DOWN))

    def _watched(self) -> bool:
        """Whether no host is known to be down, and the triggerer looks."""
        last = {subject: kind for kind, subject in self._told.of(DOWN)}
        if "alarm" in last.values():
            return False
        return any(
            task.state == "deferred"
            for run in self._airflow.active_runs(WATCH)
            for task in self._airflow.tasks(run)
            if task.id == DOWN.replace("-", "_")
        )
