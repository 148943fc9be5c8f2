"""Restores the newest snapshots of the application `flights` aside, and compares."""

from holdfast_airflow.dags import drill_dag

dag = drill_dag("flights")
