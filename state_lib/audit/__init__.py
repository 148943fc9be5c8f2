"""Compares everything that an application holds with an independent recompute."""

from state_lib.audit.report import AuditReport, Comparison
from state_lib.audit.run import Recompute, Totals, audit

__all__ = ["AuditReport", "Comparison", "Recompute", "Totals", "audit"]
