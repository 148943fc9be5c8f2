"""A task with something in it."""

from __future__ import annotations

import random

from state_lib.task import StateTask
from tests.support.apps import HOUR, NOON, App, batch, claimed, kv, shown, win


def filled(app: App, batches: int = 6) -> StateTask:
    """A task with overwrites, deletes, and windows that have expired."""
    task = app.opened()
    marker, dice = claimed(task), random.Random(1)  # noqa: S311 - a repeatable dice
    names = {s.name for s in app.topology.stores}
    for i in range(batches):
        keys = [f"k{dice.randrange(40)}" for _ in range(30)]
        pairs = [(k, None if dice.random() < 0.3 else f"{i}-{k}") for k in keys]
        starts_ = [NOON + (i - dice.randrange(3)) * HOUR for _ in keys]
        rows = [(k, s, v) for (k, v), s in zip(pairs, starts_, strict=True)]
        puts = {"kv": kv(*pairs), "ts": kv(*pairs, time=NOON + i), "win": win(*rows)}
        chosen = {name: p for name, p in puts.items() if name in names}
        marker = task.commit(batch(marker, chosen, clock=NOON + i * HOUR))
    return shown(task)
