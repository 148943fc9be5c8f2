"""Runs a plan: brings a task's stores to the newest marker, and leaves nothing half-valid."""

from __future__ import annotations

import contextlib
import shutil
import time

import structlog

from state_lib.errors import (
    HoldfastError,
    NotFound,
    SnapshotInvalid,
    StateCorrupt,
    Unavailable,
)
from state_lib.failpoints import failpoint
from state_lib.restore.candidates import Step
from state_lib.restore.local import (
    Local,
    asides,
    building_of,
    look,
    mark_whole,
    remove_asides,
    set_aside,
    swap_in,
)
from state_lib.restore.plan import AUTO, LOCAL, RestorePlan
from state_lib.restore.replay import Replay
from state_lib.restore.request import RestoreRequest
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import find
from state_lib.stores.task_stores import Checkpoint, TaskStores

log = structlog.get_logger(__name__)
MIN_FREE_BYTES = 32 << 20
"""Of disk, beyond what a plan needs."""


def restore_task(request: RestoreRequest, local: Local | None = None) -> TaskStores:
    """Return open stores that stand at ``request.marker`` exactly.

    Args:
        request: what to restore, and from where.
        local: the directory, if it was looked at already; closed on failure.

    Raises:
        Quarantined: the state is lost, and that is for somebody to decide.
        InvalidRequest: the wanted source is not valid.
        Unavailable: Kafka or the disk is away, or the disk too small; nothing was set aside.
    """
    local = local or look(request.topology, request.path, request.options)
    try:
        return _restore(request, local)
    except HoldfastError as error:
        request.listener.on_restore_error(request.name, error.message)
        raise
    except OSError as error:  # not RocksDB's: those are raised as ours
        told = _disk_away(request, error)
        request.listener.on_restore_error(request.name, told.message)
        raise told from error
    except BaseException as error:
        request.listener.on_restore_error(request.name, repr(error))
        raise
    finally:
        local.close()


def _restore(request: RestoreRequest, local: Local) -> TaskStores:
    plan = request.plan(local)
    if plan.source == LOCAL:
        try:
            return _verified(request, _catch_up(request, plan, local))
        except StateCorrupt as error:
            local.refused(error.message)
            if request.waits_if_lost and request.path.exists():
                set_aside(request.path, error.message)  # later plans would take it for valid
            plan = request.plan(local)  # raises if the local source was asked for
    request.refuse_if_lost(plan, local)
    why = next((c.why for c in plan.candidates if c.source == LOCAL), "")
    local.close()
    started = time.monotonic()
    refused: dict[str, str] = {}
    while True:
        log.warning("rebuilding", task=request.name, source=plan.choice, why=why)
        _check_disk(request, plan)
        try:
            _build(request, plan)
            break
        except (SnapshotInvalid, NotFound) as error:
            if plan.snapshot is None or request.wanted != AUTO:
                raise
            refused[plan.snapshot] = error.message
            plan = request.plan(local, refused=refused)
    swap_in(request.path, why)
    stores = _reopened(request, plan)
    log.info(
        "rebuilt",
        task=request.name,
        source=plan.choice,
        records=plan.records,
        seconds=round(time.monotonic() - started, 2),
    )
    return _verified(request, stores)


def _catch_up(request: RestoreRequest, plan: RestorePlan, local: Local) -> TaskStores:
    stores, local.stores = local.stores, None
    if stores is None:
        raise StateCorrupt(f"the directory of {request.name} is not open", path=str(request.path))
    try:
        _forget(stores, plan.steps)
        _replay(request, stores, plan.steps)
        stores.write({}, _checkpoint_at_end(request, plan, stores))
    except BaseException:
        stores.close()
        raise
    return stores


def _forget(stores: TaskStores, steps: tuple[Step, ...]) -> None:
    """Durably, before anything is cleared: what the directory will not hold for a while.

    A store is cleared at once, its checkpoint written with the data. Killed in between and opened
    by the job of before, the empty store would count as the one that was there.
    """
    known = stores.checkpoint()
    on_disk = set() if known is None else {s for s in known.layouts if known.holds(s)}
    rebuilt = {s.store: s.topic for s in steps if s.full and s.store in on_disk}
    if known is not None and rebuilt:
        stores.write({}, known.without(rebuilt))
        stores.rocks.flush()


def _build(request: RestoreRequest, plan: RestorePlan) -> None:
    """Data first, then the checkpoint, then a flush of all of it: only then it counts."""
    building = building_of(request.path)
    failpoint("restore.before_build")
    if plan.snapshot is None:
        shutil.rmtree(building, ignore_errors=True)
    else:
        _fetch(request, plan.snapshot)
    stores = TaskStores(request.topology, building, request.options)
    try:
        _replay(request, stores, _on_disk(request, plan, memory=False))
        failpoint("restore.before_checkpoint")
        stores.write({}, _checkpoint_at_end(request, plan, stores))
        stores.rocks.flush()
    finally:
        stores.close()
    mark_whole(building, request.plan_id)
    failpoint("restore.after_checkpoint")


def _fetch(request: RestoreRequest, snapshot: str) -> None:
    """Bring a snapshot into the building; what an interrupted build left there is used again."""
    app, partition = request.topology.app, request.partition
    manifest = find(request.restore.snapshots_url or "", app, partition, snapshot)

    def report(_phase: str, done: int, total: int) -> None:
        request.listener.on_snapshot_fetched(request.name, done, total)
        failpoint("restore.during_fetch")
        request.check_cancelled()

    building = building_of(request.path)
    have = [p for p in (request.path, *asides(request.path)) if p.exists()]
    fetch(manifest, building, have, report)
    failpoint("restore.after_fetch")


def _reopened(request: RestoreRequest, plan: RestorePlan) -> TaskStores:
    """The built directory in its place, with its memory stores filled."""
    stores = TaskStores(request.topology, request.path, request.options)
    try:
        _replay(request, stores, _on_disk(request, plan, memory=True))
    except BaseException:
        stores.close()  # else its lock would block the next attempt
        raise
    return stores


def _verified(request: RestoreRequest, stores: TaskStores) -> TaskStores:
    """Whether the directory says what it should; only then what was set aside is removed."""
    found = stores.checkpoint()
    if found is None or found.marker != request.marker:
        stores.close()
        raise StateCorrupt(
            f"the restored directory of {request.name} does not hold the checkpoint that was "
            "written: look at the disk; it is built again",
            path=str(request.path),
        )
    remove_asides(request.path)
    shutil.rmtree(building_of(request.path), ignore_errors=True)
    return stores


def _replay(request: RestoreRequest, stores: TaskStores, steps: tuple[Step, ...]) -> None:
    replay = Replay(
        log=request.log,
        app=request.topology.app,
        partition=request.partition,
        stores=stores,
        listener=request.listener,
        clock=request.marker.stream_time_ms,
        runs=building_of(request.path) / "runs",
        options=request.restore,
        pool=request.pool,
        check=request.check_cancelled,
    )
    with contextlib.nullcontext() if request.pool is None else request.pool.in_use():
        for step in steps:
            spec = stores.specs[step.store]
            if step.full:
                stores.clear(step.store)  # entries of an interrupted build or of another layout
                replay.full(spec, step.start, step.end, step.records)
            else:
                replay.tail(spec, step.start, step.end)
            failpoint("restore.after_store")


def _on_disk(request: RestoreRequest, plan: RestorePlan, *, memory: bool) -> tuple[Step, ...]:
    """Steps of the stores in memory, or of those that are not."""
    inside = {s.name for s in request.topology.stores if s.backend == "memory"}
    return tuple(s for s in plan.steps if (s.store in inside) is memory)


def _checkpoint_at_end(
    request: RestoreRequest, plan: RestorePlan, stores: TaskStores
) -> Checkpoint:
    return Checkpoint(request.marker, dict(plan.offsets), stores.layouts)


def _check_disk(request: RestoreRequest, plan: RestorePlan) -> None:
    needed = plan.needed_bytes + MIN_FREE_BYTES
    if plan.free_bytes < needed:
        raise Unavailable(
            f"the disk under {request.path.parent} has {plan.free_bytes >> 20} MiB free, a restore "
            f"of {request.name} from {plan.choice} needs about {needed >> 20} MiB: free space",
            task=request.name,
            free_bytes=plan.free_bytes,
            needed_bytes=needed,
        )


def _disk_away(request: RestoreRequest, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot restore {request.name} under {request.path.parent}: {error}; free space there or "
        "correct its rights",
        task=request.name,
        path=str(request.path),
    )
