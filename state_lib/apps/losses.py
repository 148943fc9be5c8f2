"""Finds lost topics of an application, and has hosts rewrite them: for command and operators.

Each host writes from its own copy, and a task of which nothing is lost any more is left alone: all
of it may be killed, and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from state_lib.apps.restoring import host_of, partition_of, require_tasks
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.claims import topology_of
from state_lib.changelog.topics import changelog_topic, commits_topic, plan_topics
from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.task.loss import Loss

_AT_ONCE = 8
Failures = dict[str, HoldfastError]
Watch = Callable[[str, Mapping[str, Any]], None]
"""Told of a task, and of what happens to it."""


def find_losses(
    settings: Settings, app: str, tasks: Sequence[int] | None = None
) -> tuple[list[Loss], Failures]:
    """Lost topics by task, also of tasks without any; and why hosts did not know, by task.

    Raises:
        NotFound: no such application.
        InvalidRequest: it has no such task.
        Unavailable: Kafka is away.
    """
    wanted = require_tasks(topology_of(Kafka.of(settings), app), tasks)

    def ask(partition: int) -> Loss | HoldfastError:
        try:
            with host_of(settings, app, partition) as client:
                return Loss.from_json(client.loss(app, partition))
        except HoldfastError as error:
            return error

    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted))) as pool:
        found = dict(zip(wanted, pool.map(ask, wanted), strict=True))
    failures = {f"{app}/{p}": one for p, one in found.items() if isinstance(one, HoldfastError)}
    return [one for one in found.values() if isinstance(one, Loss)], failures


def concerns(loss: Loss, app: str, stores: Collection[str] | None) -> bool:
    """Whether anything is lost, of these stores or of all."""
    if stores is None:
        return bool(loss.topics)
    wanted = {commits_topic(app), *(changelog_topic(app, store) for store in stores)}
    return bool(wanted & set(loss.topics))


def repair_losses(
    settings: Settings,
    app: str,
    tasks: Sequence[str],
    watch: Watch = lambda _task, _event: None,
    stores: Sequence[str] | None = None,
) -> Failures:
    """Create topics that do not exist, and let the hosts write; returns the failures, by task.

    Args:
        settings: where Kafka and the hosts are.
        app: the application.
        tasks: names of those that lost something.
        watch: called with events of hosts, and for each failure with an event ``failed``.
        stores: only these; None: all.

    Raises:
        NotFound: no such application.
        Unavailable: Kafka is away.
    """
    if not tasks:
        return {}
    kafka = Kafka.of(settings)
    owned = [
        plan
        for plan in plan_topics(topology_of(kafka, app))
        if plan.store is not None or plan.name == commits_topic(app)
    ]
    ensure_topics(kafka.admin(), owned, settings.replication_factor, settings.min_insync_replicas)

    def one(task: str) -> HoldfastError | None:
        partition = partition_of(app, task)
        try:
            with host_of(settings, app, partition) as client:
                for event in client.repair_run(app, partition, stores):
                    watch(task, event)
        except HoldfastError as error:
            watch(task, {"event": "failed", "task": task, **error.to_wire()})
            return error
        return None

    with ThreadPoolExecutor(min(_AT_ONCE, len(tasks))) as pool:
        results = dict(zip(tasks, pool.map(one, tasks), strict=True))
    return {task: error for task, error in results.items() if error is not None}
