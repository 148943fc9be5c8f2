"""DAGs of an application, ready made: one line in a DAG file each."""

from holdfast_airflow.dags.load import load_dag
from holdfast_airflow.dags.restore import restore_dag
from holdfast_airflow.dags.stream import stream_dag
from holdfast_airflow.dags.verify import verify_dag

__all__ = ["load_dag", "restore_dag", "stream_dag", "verify_dag"]
