"""Takes the application `flights` at one commit."""

from holdfast_airflow.dags import savepoint_dag

dag = savepoint_dag("flights")
