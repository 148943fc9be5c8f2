"""One stream a test, all run by `job.py` through the connection ``scripted``."""

from pathlib import Path

from holdfast_airflow.dags import stream_dag

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

for name in APPS:
    stream_dag(
        name,
        application=str(Path(__file__).with_name("job.py")),
        conn_id="scripted",
        env={"SCRIPTED_APP": name},
        retries=0,
    )
