"""Finds lost topics of a task, and repairs them while nothing else opens it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from state_lib.protocol.marker import Marker
from state_lib.restore.facts import LocalFacts
from state_lib.restore.local import look
from state_lib.task.loss import Loss
from state_lib.task.repair import Repair
from state_lib.task.state_task import StateTask

_PATIENCE_S = 20.0  # attempts to open it may follow one another


def loss_of(task: StateTask) -> Loss:
    """Lost topics of a task, and whether its local copy can replace them.

    Raises:
        Busy: it is opening or restoring.
        Unavailable: Kafka is away.
    """
    opening = task.opening()
    repair = Repair(opening)
    checkpoint = task.standing()  # read first: later commits are no loss
    if checkpoint is None:
        with task.alone(_PATIENCE_S):
            checkpoint = task.standing()  # maybe it was opened while this waited
            if checkpoint is None:
                local = look(opening.topology, task.path, opening.context.options)
                try:
                    return repair.look(local.facts)
                finally:
                    local.close()
    # Without the lock: commits do not wait for Kafka's answers.
    return repair.look(LocalFacts(checkpoint, None, 0, in_use=True))


def repair_task(task: StateTask, stores: Sequence[str] | None = None) -> Marker:
    """Rewrite lost topics from the local copy; closes the task, and leaves it closed.

    Args:
        task: of this host.
        stores: names of those whose changelogs to repair; None: all that are lost.

    Raises:
        Busy: it is opening or restoring.
        NotRepairable, Unavailable, LogLost: see `Repair.run`.
    """
    opening = replace(task.opening(), listener=task.progress)
    repair = Repair(opening, None if stores is None else tuple(stores))
    with task.alone(_PATIENCE_S):
        if task.is_open:
            loss = loss_of(task)
            repair.require(loss)
            if not loss.topics:
                return task.marker
        task.close()
        try:
            return repair.run()
        finally:
            task.progress.clear()
