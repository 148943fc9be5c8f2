"""One stream a test, all run by `job.py` through the connection ``scripted``."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from holdfast_airflow.dags import (
    audit_dag,
    capacity_dag,
    drill_dag,
    prune_dag,
    repair_dag,
    restore_by_hand_dag,
    restore_dag,
    savepoint_dag,
    snapshots_dag,
    stream_dag,
    verify_dag,
    verify_snapshots_dag,
    watch_dag,
)
from holdfast_airflow.operators.stop import StopStreamOperator
from holdfast_airflow.operators.watch import WatchConditionOperator
from holdfast_airflow.sensors import (
    ChangelogUnsafeSensor,
    CompactionStuckSensor,
    ConditionSensor,
    DiskFillingSensor,
    HostDownSensor,
    TaskWithoutOwnerSensor,
)

APPS = (
    "adopted",
    "by_hand",
    "cleared",
    "crashing",
    "handed_on",
    "hanging",
    "hopeless",
    "killed",
    "others",
    "rivals",
    "stopped",
    "twice",
    "unmastered",
)

JOB = str(Path(__file__).with_name("job.py"))
REFUSED: dict[str, dict[str, Any]] = {
    "fileless": {"application": "nowhere.py"},
    "masterless": {"conn_id": "masterless"},
    "refusing": {},
    "tokenless": {"env": {"SCRIPTED_APP": "tokenless", "HOLDFAST_TOKEN": "a-guess"}},
}
"""Tried once, although they may be tried again: only a person can correct them."""
STOPS: dict[str, dict[str, Any]] = {
    "halted": {"why": "the day is over"},
    "mistyped": {},
    "unhalted": {"wait": timedelta(seconds=1)},
}


class FileNotifier(BaseNotifier):
    """Writes a line into a file of the test's folder; fails while there is ``<file>.broken``."""

    template_fields = ("line",)

    def __init__(self, file: str, line: str = "{{ incident.kind }} {{ incident.subject }}") -> None:
        super().__init__()
        self.file, self.line = file, line

    def notify(self, context: Any) -> None:
        del context
        path = Path(os.environ["SCRIPTED"], self.file)
        if path.with_suffix(".broken").exists():
            raise OSError(f"{self.file} is not to be reached")
        with path.open("a") as file:
            file.write(f"{self.line}\n")


WATCH: dict[str, Any] = {"poke_interval": 0.3, "hold_s": 0.6, "calm_s": 0.6, "retries": 0}

for name in (*APPS, *REFUSED):
    given = {"application": JOB, "conn_id": "scripted", "env": {"SCRIPTED_APP": name}}
    stream_dag(name, **{**given, **REFUSED.get(name, {"retries": 0})})
for name, arguments in STOPS.items():
    with DAG(f"stop_{name}", schedule=None):
        StopStreamOperator(task_id="stop", app=name, **arguments)
verify_dag("verified", schedule=None, retries=0)
watch_dag(
    "attended",
    notifiers=[FileNotifier("told", "{{ incident.kind }} {{ incident.condition }}")],
    schedule=None,
    lasts=timedelta(seconds=2),
    **WATCH,
)
with DAG("alarmed_watch", schedule=None):
    WatchConditionOperator(
        task_id="host_down",
        app="alarmed",
        sensor=HostDownSensor,
        notifiers=[FileNotifier("first"), FileNotifier("second")],
        lasts=timedelta(seconds=4),
        **WATCH,
    )
for name in ("snapped", "unknown"):
    snapshots_dag(name, schedule=None, retries=0)
    prune_dag(name, schedule=None, keep=1, daily=0, retries=0)
for name in ("repaired", "rewritten", "unknown"):
    repair_dag(name, retries=0)
for name in ("broken", "diverged", "drilled", "nobody", "unsaved"):
    drill_dag(name, schedule=None, retries=0)
for name in ("measured", "nobody"):
    capacity_dag(name, schedule=None, retries=0)
for name in ("nobody", "word_count"):
    audit_dag(name, schedule=None, retries=0)
for name in ("kept", "rotten", "nobody"):
    savepoint_dag(name, retries=0)
    verify_snapshots_dag(name, retries=0)
outcome = verify_dag(
    "telling",
    schedule=None,
    retries=0,
    read_logs=False,
    notifiers=[FileNotifier("first"), FileNotifier("second")],
)
outcome.get_task("tell").retries = 0
for name in ("by_hand_present", "by_hand_past-p", "by_hand_no-p"):
    restore_by_hand_dag(
        name,
        notifiers=[FileNotifier("told", "{{ incident.kind }} {{ incident.condition }}")],
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
    )
restore_dag("restored", default_args={"retries": 2, "retry_delay": timedelta(seconds=1)})
SENSED: dict[str, type[ConditionSensor]] = {
    "sensed_orphaned": TaskWithoutOwnerSensor,
    "sensed_deleting": ChangelogUnsafeSensor,
    "sensed_shortened": ChangelogUnsafeSensor,
    "sensed_dirty": CompactionStuckSensor,
    "sensed_full": DiskFillingSensor,
}
for name, sensor in SENSED.items():
    with DAG(name, schedule=None):
        sensor(task_id="sense", app=name, poke_interval=0.3, hold_s=0.6, timeout=300, retries=0)
