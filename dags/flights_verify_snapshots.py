"""Verifies that the snapshots of the application `flights` are whole."""

from holdfast_airflow.dags import verify_snapshots_dag

dag = verify_snapshots_dag("flights")
