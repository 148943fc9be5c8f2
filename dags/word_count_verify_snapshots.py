"""Verifies that the snapshots of the application `word_count` are whole."""

from holdfast_airflow.dags import verify_snapshots_dag

dag = verify_snapshots_dag("word_count")
