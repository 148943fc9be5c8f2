"""Removes old snapshots of the application `flights`."""

from holdfast_airflow.dags import prune_dag

dag = prune_dag("flights")
