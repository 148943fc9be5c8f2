"""Restores the application `word_count`, or takes it back in time, as a person says."""

from holdfast_airflow.dags import restore_by_hand_dag

dag = restore_by_hand_dag("word_count")
