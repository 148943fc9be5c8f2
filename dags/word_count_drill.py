"""Restores the newest snapshots of the application `word_count` aside, and compares."""

from holdfast_airflow.dags import drill_dag

dag = drill_dag("word_count", tags=["tutorial"])
