"""DAGs of an application, ready made: one line in a DAG file each."""

from holdfast_airflow.dags.audit import audit_dag
from holdfast_airflow.dags.capacity import capacity_dag
from holdfast_airflow.dags.drill import drill_dag
from holdfast_airflow.dags.load import load_dag
from holdfast_airflow.dags.stream import stream_dag
from holdfast_airflow.dags.verify import verify_dag

__all__ = ["audit_dag", "capacity_dag", "drill_dag", "load_dag", "stream_dag", "verify_dag"]
