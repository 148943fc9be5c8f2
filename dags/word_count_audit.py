"""Compares all that the application `word_count` holds with a recompute."""

from holdfast_airflow.dags import audit_dag

dag = audit_dag("word_count", tags=["tutorial"])
