"""What a snapshot is: the manifest, its bytes, its name."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

import orjson

from state_lib.errors import InvalidRequest, SnapshotInvalid
from state_lib.protocol.marker import Marker
from state_lib.specs import StoreSpec
from state_lib.stores.task_stores import NO_DIRECTORY, Checkpoint

FORMAT = 1
"""Of manifests that this version writes; it reads this one and older ones."""
_ID = re.compile(r"\d{8}T\d{9}Z-[0-9a-f]{8}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileEntry:
    """One file of a task's directory: relative path, bytes, and the SHA-256 that names it."""

    name: str
    size: int
    sha256: str

    @property
    def of_memory(self) -> bool:
        """Whether it holds entries of a memory store."""
        return self.name.startswith(f"{NO_DIRECTORY}/")


@dataclass(frozen=True)
class Manifest:
    """A complete and verified snapshot of one task, at one marker.

    Attributes:
        id: see `new_id`; unique, and later ones sort behind.
        app, partition: the task.
        marker: the commit that the state stands at.
        offsets: changelog topic → ``[topic id, next offset]``.
        layouts: store → how its entries lie (`state_lib.stores.task_stores.layout_of`).
        stores: specifications of the stores that it holds.
        files: everything that the directory is made of.
        digests: store → digest of what is live at the marker's stream time.
        created_at: wall time (ms) when it was listed.
        host: that took it.
        savepoint: id of the savepoint that it belongs to, or None.
        requests: ids of those that had asked for it when it was written.
        partitions: how many tasks the application has; 0 of older versions, which did not say.
        versions: of the software that wrote it.
        url: where it was read from; no part of its bytes.
    """

    id: str
    app: str
    partition: int
    marker: Marker
    offsets: Mapping[str, list[Any]]
    layouts: Mapping[str, str]
    stores: tuple[StoreSpec, ...]
    files: tuple[FileEntry, ...]
    digests: Mapping[str, str]
    created_at: int
    host: str = ""
    savepoint: str | None = None
    requests: tuple[str, ...] = ()
    partitions: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    url: str = ""

    @property
    def task(self) -> str:
        """``<app>/<partition>``."""
        return f"{self.app}/{self.partition}"

    @property
    def topic_ids(self) -> dict[str, str]:
        """Kafka's id of each changelog topic."""
        return {topic: str(topic_id) for topic, (topic_id, _) in self.offsets.items()}

    @property
    def written_at(self) -> int:
        """Wall time (ms) of the commit that the state stands at: its age counts from here."""
        return self.marker.written_at

    @property
    def checkpoint(self) -> Checkpoint:
        """As the directory's own metadata says it."""
        return Checkpoint(self.marker, self.offsets, self.layouts)

    @property
    def size_bytes(self) -> int:
        """Of all files, whatever other snapshots share with it."""
        return sum(f.size for f in self.files)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        plain = {k: v for k, v in asdict(self).items() if k != "url"}
        return {"format": FORMAT, **plain, "marker": self.marker.to_json()}

    def to_bytes(self) -> bytes:
        """As it lies in storage: JSON that carries a checksum of itself."""
        plain = self.to_json()
        return orjson.dumps({**plain, "checksum": _checksum(plain)}, option=orjson.OPT_INDENT_2)


def new_id(now_ms: int) -> str:
    """An id for a snapshot or savepoint made now: UTC time to the ms, then chance."""
    seconds, ms = divmod(now_ms, 1000)
    at = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
    return f"{at}{ms:03d}Z-{secrets.token_hex(4)}"


def is_id(text: str) -> bool:
    """Whether a text looks like what `new_id` makes."""
    return _ID.fullmatch(text) is not None


def check_id(text: str) -> str:
    """Return an id that came from outside. Raises InvalidRequest unless it looks like one."""
    if not is_id(text):
        raise InvalidRequest(
            f"{text!r} is no snapshot's id (20260131T120000000Z-1a2b3c4d): see "
            "`holdfast snapshot list`",
            id=text,
        )
    return text


def parse(raw: bytes, snapshot: str, app: str, partition: int, url: str) -> Manifest:
    """Read the manifest that storage keeps under an id.

    Raises:
        SnapshotInvalid: cut short or changed, of a newer format, of another task, or with names
            that could leave the directory. ``details["newer"]`` is set for a newer format.
    """

    def invalid(why: str, step: str, **more: Any) -> SnapshotInvalid:
        return SnapshotInvalid(
            f"snapshot {snapshot} of {app}/{partition} in {url} {why}: {step}",
            snapshot=snapshot,
            task=f"{app}/{partition}",
            url=url,
            **more,
        )

    try:
        data = orjson.loads(raw)
        written_as = int(data["format"])
        if written_as > FORMAT:
            raise invalid(
                f"has format {written_as}, this software reads up to {FORMAT}",
                "use the version that wrote it or a newer one",
                newer=True,
            )
        checksum = data.pop("checksum")
        if checksum != _checksum(data):
            raise invalid("has been changed or damaged: its checksum differs", "take another one")
        manifest = _from_json(data, url)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise invalid(f"has no readable manifest ({error!r})", "take another one") from error
    seen = (manifest.id, manifest.app, manifest.partition)
    if seen != (snapshot, app, partition):
        raise invalid(
            f"is that of {manifest.task} ({manifest.id}): it was copied there",
            "give the URL of the right one",
        )
    for file in manifest.files:
        path = PurePosixPath(file.name)
        if path.is_absolute() or ".." in path.parts or not _SHA256.fullmatch(file.sha256):
            raise invalid(f"names a file {file.name!r} outside of itself", "take another one")
    return manifest


def _from_json(data: Mapping[str, Any], url: str) -> Manifest:
    known = {k: v for k, v in data.items() if k in Manifest.__dataclass_fields__}
    known["marker"] = Marker.from_json(known["marker"])
    known["stores"] = tuple(StoreSpec(**spec) for spec in known["stores"])
    known["files"] = tuple(FileEntry(**file) for file in known["files"])
    known["requests"] = tuple(known.get("requests", ()))
    return Manifest(**known, url=url)


def _checksum(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()
