"""Sets the topics of the application `flights` right, once a person has approved it."""

from holdfast_airflow.dags import repair_dag

dag = repair_dag("flights")
