"""The figures of one report. Plain values; times are ms since 1970, sizes bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from state_lib.checks.what_if import Rates


@dataclass(frozen=True)
class Growth:
    """How something grows.

    Attributes:
        per_day: by a straight line through earlier reports; None where they are too few.
        error: two standard errors of it.
        full_days: until its bound is reached; None: it has none, or does not grow.
        earliest, latest: the same within two standard errors; ``latest`` None: maybe never.
    """

    per_day: float | None = None
    error: float | None = None
    full_days: float | None = None
    earliest: float | None = None
    latest: float | None = None


@dataclass(frozen=True)
class Cell:
    """One store of one task. ``changelog_bytes``: before compression, one replica."""

    store: str
    partition: int
    records: int
    changelog_records: int
    changelog_bytes: int
    memory_bytes: int = 0
    max_bytes: int = 0


@dataclass(frozen=True)
class StoreCapacity:
    """One store over all tasks. ``written_per_s``: records; ``bound``: of a memory store."""

    store: str
    kind: str
    backend: str
    records: int
    changelog_records: int
    changelog_bytes: int
    record_bytes: float
    written_per_s: float
    memory_bytes: int = 0
    bound: int = 0
    growth: Growth = field(default_factory=Growth)


@dataclass(frozen=True)
class TaskCapacity:
    """One task over all stores.

    Attributes:
        partition: of it.
        host: that holds it; empty where none does.
        bytes: of its directory.
        records: in its stores.
        changelog_bytes: before compression, one replica.
        snapshot_bytes: of its newest snapshot; 0 without one.
        snapshot_age_ms: since the commit that it stands at; None without one.
        stored_bytes: of all its snapshots in storage, shared files once.
        snapshots: how many there are.
        from_snapshot_s: estimated; None without one that can be used.
        from_changelog_s: estimated.
        growth: of ``bytes``.
    """

    partition: int
    host: str
    bytes: int
    records: int
    changelog_bytes: int
    snapshot_bytes: int
    snapshot_age_ms: int | None
    stored_bytes: int
    snapshots: int
    from_snapshot_s: float | None
    from_changelog_s: float
    growth: Growth = field(default_factory=Growth)


@dataclass(frozen=True)
class HostCapacity:
    """One host's disk. ``away``: why it did not answer; ``used``: ``(time, bytes)``."""

    host: str
    away: str | None
    disk_total: int
    disk_free: int
    used: tuple[tuple[int, int], ...]
    growth: Growth = field(default_factory=Growth)


@dataclass(frozen=True)
class Point:
    """What an earlier report said: bytes by task, records and memory bytes by store."""

    at: int
    task_bytes: Mapping[int, int]
    records: Mapping[str, int]
    memory_bytes: Mapping[str, int]


@dataclass(frozen=True)
class Capacity:
    """One report.

    Attributes:
        app: the application.
        at: when.
        stores, tasks, cells, hosts: of it.
        rates: by which seconds are estimated.
        rates_from: where those come from, for people.
        history: of earlier reports and this one, oldest first.
        notes: what is not known, and why.
    """

    app: str
    at: int
    stores: tuple[StoreCapacity, ...]
    tasks: tuple[TaskCapacity, ...]
    cells: tuple[Cell, ...]
    hosts: tuple[HostCapacity, ...]
    rates: Rates
    rates_from: str
    history: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def totals(self) -> dict[str, int]:
        """Over all tasks."""
        return {
            "records": sum(t.records for t in self.tasks),
            "bytes": sum(t.bytes for t in self.tasks),
            "changelog_bytes": sum(t.changelog_bytes for t in self.tasks),
            "stored_bytes": sum(t.stored_bytes for t in self.tasks),
            "memory_bytes": sum(s.memory_bytes for s in self.stores),
        }

    def to_json(self) -> dict[str, Any]:
        """As plain data; without the history, which is other reports'."""
        body = {name: value for name, value in asdict(self).items() if name != "history"}
        return body | {"totals": self.totals}


def point_of(said: Mapping[str, Any]) -> Point:
    """What a kept report says, for those after it."""
    return Point(
        said["at"],
        {t["partition"]: t["bytes"] for t in said["tasks"]},
        {s["store"]: s["records"] for s in said["stores"]},
        {s["store"]: s["memory_bytes"] for s in said["stores"]},
    )
