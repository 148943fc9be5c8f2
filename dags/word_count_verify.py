"""Verifies that the state of the application `word_count` is safe."""

from holdfast_airflow.dags import verify_dag

dag = verify_dag("word_count", tags=["tutorial"])
