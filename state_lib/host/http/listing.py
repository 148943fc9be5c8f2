"""``/v1/apps`` and ``/v1/apps/{app}/stores``: what this host knows and has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response

from state_lib.errors import Unavailable
from state_lib.host.http import models
from state_lib.host.http.failures import answer
from state_lib.host.http.lookup import Tasks, owned_partitions, topology_of
from state_lib.host.http.shapes import position_of
from state_lib.host.sizes import approximate_size
from state_lib.host.tasks import TaskManager
from state_lib.specs import StoreSpec, Topology
from state_lib.task import StateTask

router = APIRouter(tags=["listing"])


@router.get("/apps", response_model=models.Apps, summary="Applications")
def apps(tasks: Tasks) -> Response:
    """Those whose driver has claimed tasks of this host, now or before a restart."""
    known = sorted(tasks.apps.values(), key=lambda topology: topology.app)
    return answer({"host": tasks.context.host_id, "apps": [_app(tasks, t) for t in known]})


@router.get("/apps/{app}/stores", response_model=models.Stores, summary="Stores and tasks")
def stores(tasks: Tasks, app: str) -> Response:
    """An application's stores, with what this host has of each, and this host's tasks."""
    topology = topology_of(tasks, app)
    owned = [tasks.tasks.get((app, p)) for p in owned_partitions(tasks, topology)]
    present = [task for task in owned if task is not None]
    waiting = tasks.not_ready
    return answer(
        {
            "app": app,
            "host": tasks.context.host_id,
            "partitions": topology.partitions,
            "stores": [_store(spec, present) for spec in topology.stores],
            "tasks": [_task(tasks, task, waiting.get(task.name)) for task in present],
        }
    )


@router.get(
    "/apps/{app}/tasks/{partition}/restore",
    response_model=models.Restore,
    summary="How the restore goes that somebody asked for",
)
def restore(tasks: Tasks, app: str, partition: int) -> Response:
    """The newest one since this host started; 404 if nobody has asked for one."""
    topology_of(tasks, app)
    return answer(tasks.restores.last(tasks.owned(app, partition)).to_json())


def _app(tasks: TaskManager, topology: Topology) -> dict[str, Any]:
    return {
        "app": topology.app,
        "partitions": topology.partitions,
        "stores": [s.name for s in topology.stores],
        "sources": topology.sources,
        "outputs": [o.topic for o in topology.outputs],
        "tasks": [f"{topology.app}/{p}" for p in owned_partitions(tasks, topology)],
    }


def _store(spec: StoreSpec, tasks: list[StateTask]) -> dict[str, Any]:
    sizes = [approximate_size(task, spec.name) for task in tasks]
    shown = asdict(spec)
    del shown["max_bytes"]
    return shown | {
        "segment_interval_ms": spec.segment_interval_ms if spec.is_window else 0,
        "approximate_entries": sum(entries for entries, _ in sizes),
        "size_bytes": sum(size for _, size in sizes),
    }


def _task(tasks: TaskManager, task: StateTask, waiting: str | None) -> dict[str, Any]:
    try:
        with task.view() as (marker, _):
            pass
    except Unavailable as error:
        marker, waiting = None, waiting or error.message
    return {
        "task": task.name,
        "partition": task.partition,
        "host": tasks.context.host_id,
        "state": tasks.state_of(task) if marker is None else "open",
        "reason": waiting if marker is None else None,
        "restoring": task.progress.stores() if marker is None else {},
        "written_at": None if marker is None else marker.written_at,
        "dropped": {} if marker is None else marker.dropped,
        "position": None if marker is None else position_of(marker),
    }
