"""Reports what the state of the application `word_count` takes, and how it grows."""

from holdfast_airflow.dags import capacity_dag

dag = capacity_dag("word_count", tags=["tutorial"])
