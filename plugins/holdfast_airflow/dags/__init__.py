"""DAGs of an application, ready made: one line in a DAG file each.

Airflow parses each file in a process of its own, so each imports the one DAG alone that it makes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_airflow.dags.audit import audit_dag
    from holdfast_airflow.dags.capacity import capacity_dag
    from holdfast_airflow.dags.drill import drill_dag
    from holdfast_airflow.dags.load import load_dag
    from holdfast_airflow.dags.prune import prune_dag
    from holdfast_airflow.dags.repair import repair_dag
    from holdfast_airflow.dags.restore import restore_dag
    from holdfast_airflow.dags.restore_by_hand import restore_by_hand_dag
    from holdfast_airflow.dags.savepoint import savepoint_dag
    from holdfast_airflow.dags.snapshots import snapshots_dag
    from holdfast_airflow.dags.stream import stream_dag
    from holdfast_airflow.dags.verify import verify_dag
    from holdfast_airflow.dags.verify_snapshots import verify_snapshots_dag
    from holdfast_airflow.dags.watch import watch_dag

__all__ = [
    "audit_dag",
    "capacity_dag",
    "drill_dag",
    "load_dag",
    "prune_dag",
    "repair_dag",
    "restore_by_hand_dag",
    "restore_dag",
    "savepoint_dag",
    "snapshots_dag",
    "stream_dag",
    "verify_dag",
    "verify_snapshots_dag",
    "watch_dag",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.removesuffix('_dag')}"), name)
