"""Which schemas of Avro a batch does without: decided once, before any task has seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from state_lib.errors import UnknownSchemas
from state_lib.spark.plan import BatchPlan
from state_lib.spark.runs import Step
from state_lib.spark.standing import Standing

log = structlog.get_logger(__name__)


def decide(
    plan: BatchPlan,
    standing: Standing,
    put: Callable[[BatchPlan], BatchPlan],
    run: Callable[[BatchPlan], None],
) -> None:
    """Record a batch and run it.

    Once more if records name schemas that the registry does not know: no task has seen it yet. The
    ids are recorded with it, so that whoever repeats it makes dead letters of the same records,
    whatever is registered meanwhile.

    Args:
        plan: of the batch.
        standing: where tasks stand.
        put: puts a plan on record.
        run: brings one that is on record to its tasks.

    Raises:
        UnknownSchemas: a task has seen it, or these ids are recorded with it already.
    """
    while True:
        try:
            return run(put(plan))
        except UnknownSchemas as error:
            ids = error.details["ids"]
            if any(m.n >= plan.n for m in standing.markers) or set(ids) <= set(plan.unknown):
                raise
            log.warning("records of unknown schemas", schemas=ids)
            plan = replace(plan, unknown=tuple(sorted({*plan.unknown, *ids})))


def schemas_gone(
    error: UnknownSchemas, steps: Sequence[Step], tasks: Sequence[int]
) -> UnknownSchemas:
    """What is said of a repeat that lacks schemas which the batches had."""
    first, last = steps[0].batch, steps[-1].batch
    which = f"batch {first.n} of epoch {first.epoch} was decided"
    if len(steps) > 1:
        which = f"batches {first.n} to {last.n} of epoch {last.epoch} were decided"
    return UnknownSchemas(
        f"{error.message}. They were known when {which}, which tasks {list(tasks)} have yet to "
        "repeat: bring them back under their ids, or the registry that has them",
        **error.details,
    )
