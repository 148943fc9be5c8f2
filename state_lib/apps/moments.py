"""What ``--to`` means: which snapshot each task goes back to."""

from __future__ import annotations

from collections.abc import Sequence

from state_lib.errors import InvalidRequest, NotFound
from state_lib.snapshots.listing import find, list_snapshots
from state_lib.snapshots.manifest import Manifest, is_id
from state_lib.snapshots.savepoints import list_savepoints
from state_lib.specs import Topology
from state_lib.times import iso, parse_time


def moment(
    url: str, topology: Topology, to: str, tasks: Sequence[int] | None, now: int
) -> dict[int, str]:
    """Partition → id of the snapshot.

    Args:
        url: of all snapshots.
        topology: of the application.
        to: id of a savepoint, or of one task's snapshot; or a time: of each task the newest
            snapshot whose commit was made at or before it.
        tasks: partitions; None for all.
        now: wall time (ms).

    Raises:
        NotFound: no such snapshot or savepoint of this application.
        SnapshotInvalid: there is, and it cannot be used.
        InvalidRequest: no id and no time, one that has not come yet or that no snapshot reaches
            back to; or one task's snapshot for several tasks.
        StorageUnavailable: naming the URL.
    """
    wanted = list(range(topology.partitions)) if tasks is None else list(tasks)
    if is_id(to):
        return _of_id(url, topology, to, wanted)
    try:
        at = parse_time("--to", to, 0)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"--to {to!r} is neither the id of a snapshot or savepoint ('holdfast snapshot list "
            f"{topology.app}') nor a time: ISO 8601, such as 2026-01-31T12:00:00Z, or milliseconds "
            "since 1970",
            seen=to,
        ) from error
    if at > now:
        raise InvalidRequest(
            f"--to {to} is in the future: it is {iso(now)} now, and one can go back only",
            seen=to,
            now=now,
        )
    return {p: _at(url, topology, p, at).id for p in wanted}


def _of_id(url: str, topology: Topology, snapshot: str, wanted: list[int]) -> dict[int, str]:
    app = topology.app
    for savepoint in list_savepoints(url, app):
        if savepoint.id == snapshot and len(savepoint.snapshots) == topology.partitions:
            return {p: savepoint.snapshots[p] for p in wanted}
    owner = next((p for p in range(topology.partitions) if _has(url, app, p, snapshot)), None)
    if owner is None:
        raise NotFound(
            f"there is no snapshot or savepoint {snapshot} of application {app!r} in {url}: see "
            f"'holdfast snapshot list {app}'",
            snapshot=snapshot,
            app=app,
        )
    if wanted != [owner]:
        raise InvalidRequest(
            f"snapshot {snapshot} is of {app}/{owner} alone, and tasks {wanted} are to go back: "
            f"add --task {owner}, or name a savepoint or a time for all of them",
            snapshot=snapshot,
            task=f"{app}/{owner}",
        )
    return {owner: snapshot}


def _has(url: str, app: str, partition: int, snapshot: str) -> bool:
    try:
        find(url, app, partition, snapshot)
    except NotFound:
        return False
    return True


def _at(url: str, topology: Topology, partition: int, at: int) -> Manifest:
    task, manifests = f"{topology.app}/{partition}", list_snapshots(url, topology.app, partition)
    before = [m for m in manifests if m.written_at <= at]
    if before:
        return max(before, key=lambda m: (m.written_at, m.id))
    if not manifests:
        raise InvalidRequest(f"there is no snapshot of {task} in {url}", task=task, url=url)
    oldest = min(m.written_at for m in manifests)
    raise InvalidRequest(
        f"no snapshot of {task} in {url} is of {iso(at)} or before: the oldest one is of a commit "
        f"of {iso(oldest)}",
        task=task,
        oldest=oldest,
        url=url,
    )
