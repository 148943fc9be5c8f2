"""Restores tasks: plan, approval by a person, restore, report. Each is an operator of its own.

`PlanPastOperator` and `GoBackOperator` stand in the place of plan and restore to go back in time.
"""

from holdfast_airflow.operators.past import GoBackOperator, PlanPastOperator
from holdfast_airflow.operators.restore_approve import ApproveRestoreOperator
from holdfast_airflow.operators.restore_plan import PlanRestoreOperator
from holdfast_airflow.operators.restore_report import ReportRestoreOperator
from holdfast_airflow.operators.restore_run import RestoreOperator

__all__ = [
    "ApproveRestoreOperator",
    "GoBackOperator",
    "PlanPastOperator",
    "PlanRestoreOperator",
    "ReportRestoreOperator",
    "RestoreOperator",
]
