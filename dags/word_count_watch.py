"""Watches the application `word_count` for failures, and alarms."""

from holdfast_airflow.dags import watch_dag

dag = watch_dag("word_count", hosts=False, tags=["tutorial"])  # flights_watch does
