"""Restores tasks: plan, approval by a person, restore, report. Each is an operator of its own."""

from holdfast_airflow.operators.restore_approve import ApproveRestoreOperator
from holdfast_airflow.operators.restore_plan import PlanRestoreOperator
from holdfast_airflow.operators.restore_report import ReportRestoreOperator
from holdfast_airflow.operators.restore_run import RestoreOperator

__all__ = [
    "ApproveRestoreOperator",
    "PlanRestoreOperator",
    "ReportRestoreOperator",
    "RestoreOperator",
]
