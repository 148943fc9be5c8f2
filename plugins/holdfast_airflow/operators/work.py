"""Operators of work on state that ends with a report: a job of its own, launched once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.hosts import check_token
from holdfast_airflow.jobs import lives
from holdfast_airflow.operators.job import ReportJobOperator
from holdfast_airflow.settings import environment_of
from state_lib.errors import Busy

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.config import Settings


class StateWorkOperator(ReportJobOperator):
    """Launches `state_lib.apps.jobs`; see `ReportJobOperator` for what happens around it."""

    def execute(self, context: Context) -> Any:
        """See `ReportJobOperator`; a job of another run is not adopted, for it was told otherwise.

        Raises:
            AirflowException: there is one; a retry comes after it.
        """
        with as_airflow():
            memory = self._memory(context)
            last = memory.last()
            mine = memory.is_mine() or memory.was_cleared()
            if last is not None and not mine and lives(last, last.look()):
                raise Busy(f"another run has a {self.kind} of {self.app} at work: {last.place}")
        return super().execute(context)

    def given(self) -> Mapping[str, Any]:
        """What the job is told besides the application, as plain data."""
        raise NotImplementedError

    def command(self, settings: Settings, job: str) -> tuple[list[str], dict[str, str]]:
        """This Python, with a module of the library. What it is told lies beside its report.

        Raises:
            Unauthorized: a host refuses the token.
            StorageUnavailable: reports cannot be written.
        """
        from state_lib.reports.folder import Reports

        check_token(settings)
        Reports.of(settings, self.app, self.kind).write(f"{job}.given", orjson.dumps(self.given()))
        module = [sys.executable, "-m", "state_lib.apps.jobs"]
        return [*module, self.kind, self.app, job], environment_of(settings)
