"""Stores that were lost, and who brought them back: by Airflow's reports and hosts' logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from state_lib.client.airflow import Airflow, Run
from state_lib.errors import NotFound
from tests.chaos.cluster import Cluster
from tests.chaos.soak.names import APP, RESTORE

RUNS = 50
"""Newest runs of the restore DAG that are looked at."""


@dataclass
class Loss:
    """One lost store.

    Attributes:
        partition, host: of its task.
        damage: as of a round.
        at: when (wall time, s).
        built_before: how often the host had built the task's directory until then.
        killed: who was killed before it was back.
        quarantined_s: for how long its host was seen to leave it alone.
        reported_s: from the loss to the end of the run that restored it; None: never.
        run: that run.
        seconds: from sensed to verified, by its report.
        source: from which it was restored.
        built: how often its host has built the directory for this loss.
    """

    partition: int
    host: str
    damage: str
    at: float
    built_before: int
    killed: list[str] = field(default_factory=list)
    quarantined_s: float = 0.0
    reported_s: float | None = None
    run: str = ""
    seconds: float | None = None
    source: str = ""
    built: int = 0

    @property
    def task(self) -> str:
        """Its name."""
        return f"{APP}/{self.partition}"

    def check_built(self) -> None:
        """Once; a host that was killed after it had put the directory in place did not say so."""
        least = 0 if self.host in self.killed else 1
        assert least <= self.built <= 1, f"{self.task} was built {self.built} times: {self}"


class Ledger:
    """All losses, and all reports of the restore DAG."""

    def __init__(self, cluster: Cluster, airflow: Airflow) -> None:
        self._cluster, self._airflow = cluster, airflow
        self.losses: list[Loss] = []
        self.reports: dict[str, dict[str, Any]] = {}

    @property
    def pending(self) -> list[Loss]:
        """Those that are not back."""
        return [one for one in self.losses if one.reported_s is None]

    def lost(self, loss: Loss) -> Loss:
        """Take one in."""
        self.losses.append(loss)
        return loss

    def read(self) -> list[str]:
        """Read reports of runs that have succeeded since; returns the runs."""
        path = f"/dags/{RESTORE}/dagRuns"
        params = {"state": ["success"], "order_by": "-run_after", "limit": RUNS}
        found = self._airflow._call("GET", path, params=params)["dag_runs"]
        new = [str(r["dag_run_id"]) for r in found if r["dag_run_id"] not in self.reports]
        for run in new:
            try:
                told = self._airflow.result(Run(RESTORE, run, "success"), "report")
            except NotFound:  # it waited for a day, and nothing was lost
                told = {"tasks": [], "verified": True}
            self.reports[run] = told
        return new

    def is_back(self, loss: Loss, now: float) -> bool:
        """Whether a run of the DAG has reported it, verified."""
        for run in self.read():
            told = self.reports[run]
            for one in told["tasks"]:
                if one["task"] == loss.task:
                    assert told["verified"], told
                    loss.run, loss.reported_s = run, now - loss.at
                    loss.seconds, loss.source = told["seconds"], one["source"]
        return loss.reported_s is not None

    def built(self, host: str, partition: int) -> int:
        """How often a host has built a task's directory, by its own word."""
        name, logs = f'"task": "{APP}/{partition}"', self._cluster.stack.paths.logs
        return sum(
            '"rebuilt"' in line and name in line
            for file in logs.glob(f"{host}.log*")
            for line in file.read_text(errors="replace").splitlines()
        )

    def check(self) -> None:
        """Each loss was reported by one run, and nothing else was."""
        self.read()
        told = Counter(one["task"] for r in self.reports.values() for one in r["tasks"])
        assert told == Counter(one.task for one in self.losses), (told, self.losses)
        for loss in self.losses:
            loss.check_built()
