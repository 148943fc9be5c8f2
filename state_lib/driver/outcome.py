"""The outcome of a batch's exchanges, from the rows that executors return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import structlog

from state_lib.driver.standing import Standing
from state_lib.errors import HoldfastError, Superseded, Unavailable, from_wire
from state_lib.executor.exchange import Raised
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.marker import Marker

log = structlog.get_logger(__name__)


def noted(
    results: Sequence[Any], plan: BatchPlan, standing: Standing, partitions: int
) -> dict[int, Unavailable]:
    """Note the tasks' new markers; returns the tasks that could not be reached.

    Logs what users' functions have raised on rows: a line for each step.

    Args:
        results: rows of `state_lib.executor.exchange.RESULT_DDL`.
        plan: of the batch.
        standing: gets the markers.
        partitions: of the application.

    Raises:
        Superseded: a task reported it.
        HoldfastError: a task refused the batch for another reason, or is missing.
    """
    expected = set(range(partitions) if plan.tasks is None else plan.tasks)
    refused = {r.task: from_wire(orjson.loads(r.error)) for r in results if r.error is not None}
    away = {task: error for task, error in refused.items() if isinstance(error, Unavailable)}
    failures = [error for task, error in refused.items() if task not in away]
    for failure in failures:
        if isinstance(failure, Superseded):
            raise failure
    if failures:
        raise failures[0]
    for row in results:
        if row.marker is not None:
            standing.markers[row.task] = Marker.from_bytes(bytes(row.marker))
    _tell_raised(results, plan)
    missing = expected - {r.task for r in results}
    if missing:
        raise HoldfastError(
            f"batch {plan.batch_number} ended without a commit of tasks {sorted(missing)}: Spark "
            "merged or lost partitions; check that adaptive execution is off",
            missing=sorted(missing),
        )
    return away


def _tell_raised(results: Sequence[Any], plan: BatchPlan) -> None:
    of_all = Raised()
    for row in sorted(results, key=lambda row: row.task):
        for reason, (many, first) in orjson.loads(row.raised or b"{}").items():
            before, known = of_all.get(reason, (0, first))
            of_all[reason] = before + many, known
    for reason, (many, first) in sorted(of_all.items()):
        step, batch = reason.partition(":")[2], plan.batch_number
        said = "a function failed on records: they are dead letters"
        log.warning(said, step=step, records=many, first=first, reason=reason, batch=batch)
