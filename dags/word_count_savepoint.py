"""Takes the application `word_count` at one commit."""

from holdfast_airflow.dags import savepoint_dag

dag = savepoint_dag("word_count")
