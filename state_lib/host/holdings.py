"""What a host holds of applications, and how it lets go of one that is reset or deleted."""

from __future__ import annotations

from typing import Any

from state_lib.changelog.claims import newest_claim
from state_lib.changelog.topics import topology_topic
from state_lib.errors import InvalidRequest, Unavailable
from state_lib.host.sizes import approximate_size
from state_lib.host.tasks import TaskManager
from state_lib.kafka import describe
from state_lib.names import check_name
from state_lib.restore.facts import size_of
from state_lib.specs import StoreSpec
from state_lib.task import StateTask


def holdings(
    manager: TaskManager, app: str | None = None, *, brief: bool = False
) -> dict[str, Any]:
    """``{"host", "disk", "apps": {id: {epoch, partitions, declared, directory, bytes, tasks}}}``.

    Of one application or of all. One that this host does not know is absent. ``declared`` is the
    newest claim that it remembers, ``bytes`` are those of its directory; ``disk`` as `DiskWatch`.

    ``brief``: of an application only ``tasks``, and of these ``partition``, ``state`` and what each
    ``waits`` for. That reads no directory and waits for no commit: it is asked every few seconds.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, topology in list(manager.apps.items()):
        if app not in (None, name):
            continue
        folder = manager.context.state_dir / name
        tasks = [t for (owner, _), t in sorted(manager.tasks.items()) if owner == name]
        if brief:
            found[name] = {"tasks": [_state(manager, task) for task in tasks]}
            continue
        found[name] = {
            "epoch": topology.extra.get("epoch"),
            "partitions": topology.partitions,
            "declared": topology.to_json(),
            "directory": str(folder),
            "bytes": size_of([folder]),
            "tasks": [_task(manager, task) for task in tasks],
        }
    disk = manager.disk.to_json()
    return {"host": manager.context.host_id, "disk": disk, "apps": found}


def forget(manager: TaskManager, app: str, epoch: int) -> dict[str, Any]:
    """Drop an application whose newest claim is a notice; returns what was dropped.

    The notice is looked up, so that no request can end an application that lives.

    Args:
        manager: of this host.
        app: its id.
        epoch: the notice's; -1 if the topology topic does not exist any more.

    Raises:
        InvalidRequest: the newest claim is another one.
    """
    kafka, topic = manager.context.kafka, topology_topic(check_name("application", app))
    facts = describe(kafka.admin(), [topic]).get(topic)
    newest = None if facts is None else newest_claim(kafka, app)
    noticed = newest is not None and newest.notice is not None and newest.epoch == epoch
    if not noticed and not (facts is None and epoch == -1):
        seen = "no claim" if newest is None else f"a claim of epoch {newest.epoch}"
        raise InvalidRequest(
            f"host {manager.context.host_id!r} keeps {app!r}: the newest in {topic} is {seen}, not "
            f"a notice of a reset or deletion of epoch {epoch}",
            app=app,
            epoch=epoch,
        )
    had = holdings(manager, app)
    manager.applications.drop(app, "" if facts is None else facts.id, epoch)
    return had


def _state(manager: TaskManager, task: StateTask) -> dict[str, Any]:
    state = manager.state_of(task)
    waits = None if state == "open" else manager.openers.failures.get(task.name, state)
    return {"partition": task.partition, "state": state, "waits": waits}


def _task(manager: TaskManager, task: StateTask) -> dict[str, Any]:
    """``durable``: changelog topic → offset that its directory would go on from after a kill."""
    flushed = task.flushed
    about = {
        "partition": task.partition,
        "state": manager.state_of(task),
        "bytes": size_of([task.path]),
        "durable": {} if flushed is None else flushed.committed,
        "stores": {spec.name: _store(task, spec) for spec in task.topology.stores},
    }
    try:
        with task.view() as (marker, _):
            return {**about, "waits": None, "marker": marker.to_json()}
    except Unavailable as error:
        waits = manager.openers.failures.get(task.name, error.message)
        return {**about, "waits": waits, "marker": None}


def _store(task: StateTask, spec: StoreSpec) -> dict[str, int]:
    entries, size = approximate_size(task, spec.name)
    in_memory = spec.backend == "memory"
    return {
        "entries": entries,
        "memory_bytes": size if in_memory else 0,
        "max_bytes": spec.max_bytes if in_memory else 0,
    }
