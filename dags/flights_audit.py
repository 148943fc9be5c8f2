"""Compares all that the application `flights` holds with a recompute."""

from holdfast_airflow.dags import audit_dag

dag = audit_dag("flights")
