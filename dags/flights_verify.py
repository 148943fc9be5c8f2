"""Verifies that the state of the application `flights` is safe."""

from holdfast_airflow.dags import verify_dag

dag = verify_dag("flights")
