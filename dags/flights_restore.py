"""Brings lost stores of the application `flights` back."""

from holdfast_airflow.dags import restore_dag

dag = restore_dag("flights")
