"""Every DAG of the application `soak`, on short schedules, and a notifier that writes a file.

Those of repairs and of restores by hand have no schedule: a person begins them. There is none that
loads a source: flights alone have one, and a person begins that as well.
"""

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier

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

APP = "soak"
JOB = Path(__file__).parents[2] / "job.py"


class FileNotifier(BaseNotifier):
    """Appends a line of JSON for each incident's beginning and end."""

    def notify(self, context: Any) -> None:
        incident = context["incident"]
        said = {name: incident[name] for name in ("kind", "condition", "subject")}
        with Path(os.environ["SOAK_TOLD"]).open("a") as file:
            file.write(json.dumps({**said, "at": time.time()}) + "\n")


stream = stream_dag(
    APP,
    application=str(JOB),
    env={"CHAOS_APP": APP, "CHAOS_TOPIC": f"{APP}-source"},
    retries=100,  # workers are killed again and again in one run
)
restore = restore_dag(APP)
watch = watch_dag(APP, notifiers=[FileNotifier()])
verify = verify_dag(APP, schedule=timedelta(minutes=1))
snapshots = snapshots_dag(APP, schedule=timedelta(minutes=2))
prune = prune_dag(APP, schedule=timedelta(minutes=4), keep=5, daily=1)
drill = drill_dag(APP, schedule=timedelta(minutes=4))
audit = audit_dag(APP, schedule=timedelta(minutes=5))
capacity = capacity_dag(APP, schedule=timedelta(minutes=4))
savepoint = savepoint_dag(APP, schedule=timedelta(minutes=6), wait=timedelta(minutes=1))
verify_snapshots = verify_snapshots_dag(APP, schedule=timedelta(minutes=6))
repair = repair_dag(APP)
by_hand = restore_by_hand_dag(APP)
