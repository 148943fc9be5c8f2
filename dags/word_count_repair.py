"""Sets the topics of the application `word_count` right, once a person has approved it."""

from holdfast_airflow.dags import repair_dag

dag = repair_dag("word_count", tags=["tutorial"])
