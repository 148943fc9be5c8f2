"""What must be so when the kills are over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from state_lib.changelog.claims import topology_of
from state_lib.client.airflow import FINAL, Airflow, Run
from state_lib.digests.compare import compare
from state_lib.drivers.control import ask_to_stop
from state_lib.kafka import Kafka
from state_lib.reports.folder import Kind, Reports
from state_lib.reports.record import Record
from tests.chaos.check import records
from tests.chaos.cluster import Cluster
from tests.chaos.soak.ledger import Ledger
from tests.chaos.soak.names import APP, PERIODIC
from tests.chaos.soak.told import Told
from tests.support.waiting import until

RUN_S = 400.0
"""For a run of each DAG, all at the same time; one may wait for a retry of the run before."""
LOOKED_S = 12.0
"""Who is ill for longer is seen by looks every five seconds, whatever else the machine does."""


def every_dag_succeeds(airflow: Airflow) -> None:
    """Each that runs now and then runs once more, and no task of it is skipped."""
    runs = [airflow.trigger(dag) for dag in PERIODIC]
    for run in runs:
        ended = until(lambda run=run: _ended(airflow, run), RUN_S, f"{run.dag} ended")  # type: ignore[misc]
        states = {task.id: task.state for task in airflow.tasks(ended)}
        assert set(states.values()) == {"success"}, (ended, states)


def reports_are_clean(cluster: Cluster) -> dict[str, int]:
    """No audit and no drill has ever found a difference; returns how many came to an end."""
    found: Counter[str] = Counter()
    wrong: list[Mapping[str, Any]] = []
    kinds: tuple[tuple[Kind, str, object], ...] = (
        ("audit", "clean", True),
        ("drill", "alarms", []),
    )
    for kind, field, wanted in kinds:
        reports = Reports.of(cluster.settings, APP, kind)
        for one in reports.ids():
            record = Record.read(reports, one)
            if record is not None and record.result is not None:
                found[kind] += 1
                wrong += [record.result] if record.result[field] != wanted else []
    assert not wrong, wrong
    return dict(found)


def digests_are_equal(cluster: Cluster) -> None:
    """Live stores are what a full replay of their changelogs gives."""
    settings = cluster.settings
    kafka = Kafka.of(settings)
    topology = topology_of(kafka, APP)
    found = compare(kafka, topology, settings.host_addresses, settings.read_token())
    assert not found.failed, found.to_json()
    assert not found.alarms, found.to_json()


def alarms_are_right(told: Told, ledger: Ledger) -> Counter[str]:
    """A lost store is told at the most once, at the least if it could be seen; returns all counts.

    Where Airflow was killed meanwhile its worker may have told, and died before it noted that. Of
    hosts nothing can be judged here: one that is killed is back before its alarm has held for long
    enough, mostly; the one that is held down is judged in its round (`held`).
    """
    lost = Counter(told.of("store-lost"))
    for task in {loss.task for loss in ledger.losses}:
        losses = [one for one in ledger.losses if one.task == task]
        least = sum(not one.killed and one.quarantined_s >= LOOKED_S for one in losses)
        most = len(losses) + sum(bool(one.killed) for one in losses)
        alarms, ends = lost["alarm", task], lost["recovery", task]
        assert least <= alarms <= most, f"{task}: {alarms} alarms of {len(losses)} losses"
        assert least <= ends <= most, f"{task}: {ends} recoveries of {len(losses)} losses"
    return told.counts()


def stopped(cluster: Cluster, airflow: Airflow, run: Run) -> None:
    """It was the same run all the time, and it succeeds when its stream is stopped."""
    assert [one.id for one in airflow.active_runs(run.dag)] == [run.id]
    ask_to_stop(Kafka.of(cluster.settings), APP, why="the soak is over")
    assert until(lambda: _ended(airflow, run), RUN_S, f"{run.dag} ended").state == "success"


def never_two_that_commit(cluster: Cluster) -> int:
    """In no task a driver's commit follows one of its successor; returns how many drivers did."""
    last: dict[int, int] = {}
    epochs: set[int] = set()
    for partition, *_, value in records(cluster.settings.bootstrap_servers, f"{APP}-commits"):
        epoch = int(json.loads(value or b"{}")["epoch"])
        assert epoch >= last.get(partition, -1), f"task {partition}: {last[partition]}, {epoch}"
        last[partition] = epoch
        epochs.add(epoch)
    assert len(set(last.values())) == 1, last
    return len(epochs)


def _ended(airflow: Airflow, run: Run) -> Run | None:
    now = airflow.run(run.dag, run.id)
    return now if now.state in FINAL else None
