"""Takes snapshots of the stores of the application `word_count`."""

from holdfast_airflow.dags import snapshots_dag

dag = snapshots_dag("word_count", tags=["tutorial"])
