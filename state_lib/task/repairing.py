"""Looks for what the topics of a task lost, and has it repaired while nobody else has the task."""

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
    """What a task's topics lost, and whether its local copy can take their place.

    Raises:
        Busy: it is opening or restoring.
        Unavailable: Kafka is away.
    """
    opening = task.opening()
    repair = Repair(opening)
    checkpoint = task.standing()  # a commit that goes on is no loss; nor are those of later
    if checkpoint is not None:  # Kafka may take its time: commits do not wait for it
        return repair.look(LocalFacts(checkpoint, None, 0, in_use=True))
    with task.alone(_PATIENCE_S):
        local = look(opening.topology, task.path, opening.context.options)
        try:
            return repair.look(local.facts)
        finally:
            local.close()


def repair_task(task: StateTask, stores: Sequence[str] | None = None) -> Marker:
    """Write lost topics anew from the local copy; the task is closed, and is so afterwards.

    Args:
        task: of this host.
        stores: whose changelogs; None: all that are lost.

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
