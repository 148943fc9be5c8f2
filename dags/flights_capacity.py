"""Reports what the state of the application `flights` takes, and how it grows."""

from holdfast_airflow.dags import capacity_dag

dag = capacity_dag("flights")
