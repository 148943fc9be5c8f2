"""A task that launches a job, try after try, without Airflow's scheduler."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import TaskDeferred

from holdfast_airflow.operators.job import ReportJobOperator
from holdfast_airflow.triggers.job import JobTrigger
from holdfast_airflow.watched import app_asset


class Tries:
    """Each try is an operator of its own, as in a process of its own; the asset's store stays."""

    def __init__(self, make: Callable[[], ReportJobOperator]) -> None:
        self._make = make
        self.kept, self.xcoms = dict[str, Any](), dict[str, Any]()
        store = SimpleNamespace(get=self.kept.get, set=self.kept.__setitem__)
        self.ti = SimpleNamespace(
            dag_id="dag",
            run_id="run",
            task_id="task",
            map_index=-1,
            try_number=0,
            max_tries=3,
            xcom_push=self.xcoms.__setitem__,
        )
        self.context: Any = {"ti": self.ti, "asset_state_store": defaultdict(lambda: store)}
        self.operator = make()
        assert self.context["asset_state_store"][app_asset(self.operator.app)] is store

    def execute(self, *, cleared: bool = False) -> Any:
        """The next try: its trigger if it waits, else what it returns."""
        self.operator = self._make()
        self.ti.try_number += 1
        self.ti.max_tries += int(cleared)
        try:
            return self.operator.execute(self.context)
        except TaskDeferred as deferred:
            path, given = deferred.trigger.serialize()
        assert path == "holdfast_airflow.triggers.job.JobTrigger"
        return JobTrigger(**given)  # as a triggerer makes it

    def waited(self, trigger: JobTrigger) -> dict[str, Any]:
        """What its trigger fires."""

        async def first() -> Any:
            async for event in trigger.run():
                return event.payload
            return None

        found: dict[str, Any] = asyncio.run(first())
        return found

    def resume(self, event: dict[str, Any]) -> Any:
        """What comes of it, in a process of its own."""
        self.operator = self._make()
        return self.operator.resume(self.context, event)
