"""Whether an application's snapshots are whole: for the command, and for operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from state_lib.snapshots.listing import (
    find,
    list_snapshots,
    stored_tasks,
    survey,
    task_storage,
    verify,
    why_not_listed,
)
from state_lib.snapshots.manifest import Manifest
from state_lib.snapshots.savepoints import list_savepoints

Watch = Callable[[dict[str, Any]], None]
"""Told of a task, and of how far it is."""


def verify_snapshots(
    url: str, app: str, snapshot: str | None, *, deep: bool, watch: Watch = lambda _: None
) -> list[dict[str, Any]]:
    """What is wrong with one snapshot, with those of a savepoint, or with any of them.

    Args:
        url: of all snapshots.
        app: application.
        snapshot: id of one, or of a savepoint; None: all, and what is not listed as well.
        deep: read every byte, and set aside files whose content was changed.
        watch: called with the progress.

    Returns:
        Of each ``task``, ``snapshot`` and ``problems``, none if it is whole.

    Raises:
        NotFound: no such snapshot.
        StorageUnavailable: naming the URL.
    """
    out: list[dict[str, Any]] = []
    for manifest in _chosen(url, app, snapshot):

        def report(phase: str, done: int, total: int, task: str = manifest.task) -> None:
            watch({"task": task, "state": "running", "phase": phase, "done": done, "total": total})

        problems = verify(manifest, deep=deep, report=report)
        out.append({"task": manifest.task, "snapshot": manifest.id, "problems": problems})
    if snapshot is None:
        read = {(one["task"], one["snapshot"]) for one in out}  # it sets files aside
        for partition in stored_tasks(url, app):
            task = f"{app}/{partition}"
            for found in survey(task_storage(url, app, partition), app, partition):
                if found.listed is None and (task, found.id) not in read:
                    problems = [why_not_listed(found)]
                    out.append({"task": task, "snapshot": found.id, "problems": problems})
    return out


def _chosen(url: str, app: str, snapshot: str | None) -> list[Manifest]:
    partitions = stored_tasks(url, app)
    if snapshot is None:
        return [m for p in partitions for m in list_snapshots(url, app, p)]
    for savepoint in list_savepoints(url, app):
        if savepoint.id == snapshot:
            return [find(url, app, p, s) for p, s in enumerate(savepoint.snapshots)]
    for partition in partitions:
        for found in survey(task_storage(url, app, partition), app, partition):
            if found.id == snapshot and found.manifest is not None:
                return [found.manifest]
    return [find(url, app, partitions[0] if partitions else 0, snapshot)]  # raises
