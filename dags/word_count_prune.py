"""Removes old snapshots of the application `word_count`."""

from holdfast_airflow.dags import prune_dag

dag = prune_dag("word_count", tags=["tutorial"])
