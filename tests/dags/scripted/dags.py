"""One stream a test, all run by `job.py` through the connection ``scripted``."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from holdfast_airflow.dags import restore_dag, stream_dag, verify_dag
from holdfast_airflow.operators.stop import StopStreamOperator

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
    "tokenless": {"env": {"SCRIPTED_APP": "tokenless", "HOLDFAST_TOKEN": "a-guess"}},
}
"""Tried once, although they may be tried again: only a person can correct them."""
STOPS: dict[str, dict[str, Any]] = {
    "halted": {"why": "the day is over"},
    "mistyped": {},
    "unhalted": {"wait": timedelta(seconds=1)},
}

for name in (*APPS, *REFUSED):
    given = {"application": JOB, "conn_id": "scripted", "env": {"SCRIPTED_APP": name}}
    stream_dag(name, **{**given, **REFUSED.get(name, {"retries": 0})})
for name, arguments in STOPS.items():
    with DAG(f"stop_{name}", schedule=None):
        StopStreamOperator(task_id="stop", app=name, **arguments)
verify_dag("verified", schedule=None, retries=0, read_logs=False)
restore_dag("restored", default_args={"retries": 2, "retry_delay": timedelta(seconds=1)})
