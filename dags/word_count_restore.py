"""Brings lost stores of the application `word_count` back."""

from holdfast_airflow.dags import restore_dag

dag = restore_dag("word_count", tags=["tutorial"])
