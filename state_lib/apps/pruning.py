"""Retention of a whole application's snapshots: what may go, and what a restore may still need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state_lib.changelog.claims import topology_of
from state_lib.kafka import Kafka
from state_lib.names import check_name
from state_lib.protocol.marker import RESTORING
from state_lib.snapshots.listing import stored_tasks
from state_lib.snapshots.prune import Pruned, Retention, prune, put_back
from state_lib.snapshots.savepoints import prune_savepoints, spared
from state_lib.task.claiming import standing

if TYPE_CHECKING:
    from state_lib.config import Settings


@dataclass(frozen=True)
class Pruning:
    """What a pruning did, or would do: with each task, and ids of savepoints that went."""

    tasks: list[Pruned]
    savepoints: list[str]


def prune_application(
    settings: Settings,
    app: str,
    retention: Retention,
    *,
    savepoints: int | None = None,
    dry: bool = False,
) -> Pruning:
    """Remove old snapshots of all tasks, and files that no snapshot of the last day needs.

    Snapshots of savepoints stay, and those that tasks are on their way back to; also if that began
    meanwhile: such a one is put back in the end.

    Args:
        settings: where Kafka and storage are.
        app: whose.
        retention: what to keep of each task.
        savepoints: how many of the newest are kept; None: all.
        dry: change nothing.

    Raises:
        NotFound: storage holds nothing of it, and it has never run.
        StorageUnavailable: running it again goes on from there.
        Unavailable: Kafka cannot be asked; the next run goes on from there.
    """
    kafka, url = Kafka.of(settings), settings.snapshots_url
    tasks = stored_tasks(url, check_name("application", app))
    if not tasks:
        topology_of(kafka, app)
    needed = _on_their_way(kafka, app)
    gone = [] if savepoints is None else prune_savepoints(url, app, savepoints, dry=dry)
    spare = spared(url, app, without=gone) | set(needed.values())
    done = {task: prune(url, app, task, retention, spare=spare, dry=dry) for task in tasks}
    for task, snapshot in ({} if dry else _on_their_way(kafka, app)).items():
        if put_back(url, app, task, snapshot) and snapshot in done[task].pruned:
            done[task].pruned.remove(snapshot)
            done[task].kept.append(snapshot)
    return Pruning(list(done.values()), gone)


def _on_their_way(kafka: Kafka, app: str) -> dict[int, str]:
    """Snapshots that tasks are being restored to: they are needed until that has ended."""
    markers = enumerate(standing(kafka, app))
    return {task: m.back["snapshot"] for task, m in markers if m.state == RESTORING}
