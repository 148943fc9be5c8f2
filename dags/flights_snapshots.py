"""Takes snapshots of the stores of the application `flights`."""

from holdfast_airflow.dags import snapshots_dag

dag = snapshots_dag("flights")
