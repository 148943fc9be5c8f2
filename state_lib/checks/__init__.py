"""Checks of one application: facts in, verdicts out. Nothing here asks anybody anything.

`state_lib.gathering` gathers the facts; ``holdfast check`` and Airflow's operators do both.
"""

from state_lib.checks.judging import CHECKS, SETTINGS, judge
from state_lib.checks.verdict import Change, Level, Report, Verdict

__all__ = ["CHECKS", "SETTINGS", "Change", "Level", "Report", "Verdict", "judge"]
