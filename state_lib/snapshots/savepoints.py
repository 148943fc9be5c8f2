"""Savepoints: one snapshot of every task of an application, all at the same positions.

``<url>/<app>/savepoints/<id>.json`` names them. It is written last, and only if they are complete
and agree; its snapshots stay until the savepoint goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import structlog

from state_lib.errors import InvalidRequest, Realign
from state_lib.protocol.positions import ByTopic
from state_lib.protocol.stored import from_stored, to_stored
from state_lib.snapshots.listing import list_snapshots
from state_lib.snapshots.manifest import FORMAT, Manifest, is_id
from state_lib.snapshots.storage import Storage

log = structlog.get_logger(__name__)
_FOLDER = "savepoints"


@dataclass(frozen=True)
class Savepoint:
    """An application at one commit.

    ``snapshots``: id of the snapshot of each task, by partition. ``created_at`` in ms.
    """

    id: str
    app: str
    epoch: int
    batch_number: int
    stream_time_ms: int
    positions: ByTopic
    snapshots: tuple[str, ...]
    created_at: int

    def to_bytes(self) -> bytes:
        """As it lies in storage."""
        plain = {"format": FORMAT, **to_stored(asdict(self))}
        return orjson.dumps({**plain, "checksum": _checksum(plain)}, option=orjson.OPT_INDENT_2)


def write_savepoint(url: str, savepoint: str, manifests: Sequence[Manifest]) -> Savepoint:
    """List a savepoint of these snapshots, one of each task in order.

    Raises:
        Realign: they do not stand at the same commit and positions: nothing is listed.
        StorageUnavailable: naming the URL.
    """
    first = manifests[0].marker
    for manifest in manifests[1:]:
        at = manifest.marker
        same_commit = (at.epoch, at.batch_number, at.stream_time_ms) == (
            first.epoch,
            first.batch_number,
            first.stream_time_ms,
        )
        if not same_commit or at.positions != first.positions:
            raise Realign(
                f"{manifests[0].task} was taken at commit {(first.epoch, first.batch_number)} and "
                f"{first.positions}, {manifest.task} at {(at.epoch, at.batch_number)} and "
                f"{at.positions}: take the savepoint again",
                tasks=[manifests[0].task, manifest.task],
            )
    made = Savepoint(
        id=savepoint,
        app=manifests[0].app,
        epoch=first.epoch,
        batch_number=first.batch_number,
        stream_time_ms=first.stream_time_ms,
        positions=first.positions.to_json(),
        snapshots=tuple(m.id for m in manifests),
        created_at=max(m.created_at for m in manifests),
    )
    Storage(url, made.app).write(_name(savepoint), made.to_bytes())
    return made


def list_savepoints(url: str, app: str) -> list[Savepoint]:
    """The complete savepoints of an application, newest first."""
    found = [_read(url, app, one) for one in _ids(url, app)]
    held: dict[int, set[str]] = {}
    for partition in range(max((len(s.snapshots) for s in found if s), default=0)):
        held[partition] = {m.id for m in list_snapshots(url, app, partition)}
    whole = []
    for one in found:
        if one is None:
            continue
        missing = [p for p, snapshot in enumerate(one.snapshots) if snapshot not in held[p]]
        if missing:
            log.warning("a savepoint is not listed", savepoint=one.id, tasks_missing=missing)
        else:
            whole.append(one)
    return whole


def prune_savepoints(url: str, app: str, keep: int, *, dry: bool = False) -> list[str]:
    """Unlist all but the newest; returns the ids of those that went. Their snapshots may go then.

    Raises:
        InvalidRequest: ``keep`` is negative.
    """
    if keep < 0:
        raise InvalidRequest(f"cannot keep {keep} savepoints")
    going = _ids(url, app)[keep:]
    if not dry:
        Storage(url, app).delete(map(_name, going))
    return going


def spared(url: str, app: str, *, without: Sequence[str] = ()) -> set[str]:
    """Ids of snapshots that savepoints name, complete or not."""
    found = [_read(url, app, one) for one in _ids(url, app) if one not in without]
    return {snapshot for one in found if one is not None for snapshot in one.snapshots}


def _ids(url: str, app: str) -> list[str]:
    names = Storage(url, app).listing(_FOLDER)
    ids = {n.removesuffix(".json") for n in names if n.endswith(".json")}
    return sorted(filter(is_id, ids), reverse=True)


def _name(savepoint: str) -> str:
    return f"{_FOLDER}/{savepoint}.json"


def _read(url: str, app: str, savepoint: str) -> Savepoint | None:
    """None, and a line in the log, if it cannot be used."""
    raw = Storage(url, app).read(_name(savepoint))
    try:
        data = orjson.loads(raw or b"")
        checksum = data.pop("checksum")
        fields = from_stored(data)
        known = {k: v for k, v in fields.items() if k in Savepoint.__dataclass_fields__}
        found = Savepoint(**{**known, "snapshots": tuple(known["snapshots"])})
        whole = (checksum, found.id, found.app) == (_checksum(data), savepoint, app)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("a savepoint is not listed", savepoint=savepoint, why=repr(error))
        return None
    if not whole:
        log.warning("a savepoint is not listed", savepoint=savepoint, why="it has been changed")
    return found if whole else None


def _checksum(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()
