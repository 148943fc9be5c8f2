"""Restores the application `flights`, or takes it back in time, as a person says."""

from holdfast_airflow.dags import restore_by_hand_dag

dag = restore_by_hand_dag("flights")
