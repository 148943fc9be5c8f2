"""Watches the application `flights` for failures, and alarms."""

from holdfast_airflow.dags import watch_dag

dag = watch_dag("flights")
