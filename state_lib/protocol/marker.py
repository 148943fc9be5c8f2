"""The marker of a task: the last record of its ``<app>-commits`` partition.

A marker says how far a task has come, and it alone decides that. Everything else (the local store,
the offsets in Spark's checkpoint, the consumer group) is derived or a convenience.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

import orjson

from state_lib.errors import CommitRefused, Moved, Realign, Superseded
from state_lib.protocol.positions import Positions
from state_lib.protocol.stored import from_stored, to_stored

IN_DOUBT = "in doubt"
"""In `Marker.logs`, in place of a changelog's id: it is being repaired, and lost until then."""
RUNNING, RESTORING = "running", "restoring"
"""Values of `Marker.state`. A restoring task cannot be used before its restore has ended."""
NO_INITIAL = -1
"""In `Marker.initial`: the processor began without an initial state."""
NO_TIME = -1
"""Stream time, or a batch's time, before the first record (otherwise ms since the epoch)."""
_POSITIONS = {"positions", "maxima", "from_", "to"}
"""Fields of a marker or of a header that are `Positions`."""


@dataclass(frozen=True)
class Marker:
    """Where a task stands.

    Attributes:
        epoch: of the driver that made this commit: the offset of its claim in ``<app>-topology``.
        batch_number: within the epoch; 0 is the claim itself.
        owner: the host that wrote the marker.
        positions: next offset to read, per source topic and partition.
        topic_ids: Kafka's id of each source topic, so that a topic that was deleted and created
            again is noticed.
        maxima: greatest event time (ms) that this task saw, per source topic and partition.
        stream_time_ms: of the whole application, by which the last batch decided what was late.
        published: ``{"positions", "clock", "recorded", "recorded_in"}`` up to which outputs were
            written. After a restore to the past that is beyond ``positions``; ``again`` is set if
            outputs are to be written again. ``recorded`` identifies ticks, which read no records.
        cut: changelog topic → ``[end offset, records]`` of the last commit.
        ends: changelog topic → end offset of the last commit that wrote to it; empty in markers of
            older versions, see `Marker.committed`.
        dropped: reason → records dropped since the application began.
        written_at: wall time (ms).
        state: ``running``, or ``restoring`` while a restore to the past is under way.
        recorded: offset in the progress log at which the last commit was recorded; -1 in markers of
            older versions. The next batch is recorded behind it.
        logs: changelog topic → Kafka's id of it when the owner opened the task. A topic that was
            deleted and created again has another id, and lacks what was committed. `IN_DOUBT`: the
            topic that exists now lacks it as well.
        starts: changelog topic → log start when an owner first opened the task. Compaction does not
            move it: a higher one later means that records were deleted.
        settled: whether the owner had a complete directory of the task. If it has none later, the
            directory was lost; a task that is not settled is new.
        claimed_in: Kafka's id of the topology topic that held the claim of ``epoch``; empty in
            markers of older versions. In another topic the same offset is another driver's.
        rewound: epoch of the last restore to the past; -1 without one. In older directories and
            snapshots windows have expired that are live again: see `state_lib.restore.validity`.
        back: the request of that restore, under way or done: see `state_lib.restore.past`.
        batch_time_ms: processing time (ms) of the last batch of an application with processors:
            wall time, never less than before.
        due: time mode (``eventtime`` or ``processingtime``) → the stream time or wall time (ms) at
            which the next timer of a stateful processor is due.
        initial: processors that have begun → rows of their initial state that this task took;
            `NO_INITIAL`: they had no initial state.
        recorded_in: Kafka's id of the progress topic that ``recorded`` is an offset of: offsets of
            a topic that was created again start from 0. Empty for applications without processors.
        overdue: whether more timers were due than one commit runs; the rest run before other rows.
        begun: processors whose initial state is taken in part → ``{"key", "rows"}``: the last key
            in hexadecimal, and the number of rows so far.
    """

    epoch: int = -1
    batch_number: int = 0
    owner: str = ""
    positions: Positions = field(default_factory=Positions)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    maxima: Positions = field(default_factory=Positions)
    stream_time_ms: int = NO_TIME
    published: Mapping[str, Any] = field(default_factory=dict)
    cut: Mapping[str, list[int]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    written_at: int = 0
    state: str = RUNNING
    settled: bool = False
    logs: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    recorded: int = -1
    ends: Mapping[str, int] = field(default_factory=dict)
    claimed_in: str = ""
    rewound: int = -1
    back: Mapping[str, Any] = field(default_factory=dict)
    batch_time_ms: int = NO_TIME
    due: Mapping[str, int] = field(default_factory=dict)
    initial: Mapping[str, int] = field(default_factory=dict)
    recorded_in: str = ""
    overdue: bool = False
    begun: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def taken(self, log: str) -> int:
        """``recorded``, if it is an offset of the progress topic of that id; else -1."""
        return self.recorded if self.recorded_in == log else -1

    @property
    def outputs_recorded(self) -> dict[str, Any]:
        """``recorded`` and ``recorded_in`` of `published`, for a restore to the past."""
        there, log = _told(self.published)
        if there < 0 or log == self.recorded_in:
            there, log = max(there, self.recorded), self.recorded_in
        return _telling(there, log)

    @property
    def claim(self) -> int:
        """Epoch of the last driver that claimed the task; that of a restore to the past is none."""
        alone = self.state == RESTORING or 0 <= self.epoch == self.rewound
        return int(self.back["before"]) if alone and self.back else self.epoch

    @property
    def published_to(self) -> Positions:
        """Positions up to which outputs were written: never behind ``positions``."""
        return _written(self).greatest(self.positions)

    @property
    def committed(self) -> dict[str, int]:
        """Changelog topic → end offset of what was committed to it, where known."""
        return {**self.ends, **{topic: end for topic, (end, _count) in self.cut.items()}}

    def to_bytes(self) -> bytes:
        """As the value of its Kafka record."""
        return orjson.dumps(self.to_json(), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Marker:
        """Read a record's value; unknown fields of newer versions are ignored."""
        return cls.from_json(orjson.loads(raw))

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return _plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Marker:
        """From plain data."""
        return cls(**_known(cls, data))

    def owned_by(self, owner: str, logs: Mapping[str, str]) -> Marker:
        """The same position under a new owner; ``logs``: ids of the changelogs that it found."""
        return replace(
            self,
            owner=owner,
            cut={topic: cut for topic, cut in self.cut.items() if topic in logs},
            ends={topic: end for topic, end in self.committed.items() if topic in logs},
            written_at=now_ms(),
            settled=self.settled and self.owner == owner,
            logs=logs,
        )

    def claimed_by(self, epoch: int, owner: str, topic_id: str = "") -> Marker:
        """The same position under a new driver; ``topic_id``: see ``claimed_in``."""
        return replace(
            self,
            epoch=epoch,
            batch_number=0,
            owner=owner,
            cut={},
            ends=self.committed,
            written_at=now_ms(),
            settled=True,
            claimed_in=topic_id,
        )

    def doubting(self, owner: str, topics: Iterable[str]) -> Marker:
        """The same position under an owner that has the state but distrusts some changelogs."""
        logs = {**self.logs, **dict.fromkeys(topics, IN_DOUBT)}
        return replace(self, owner=owner, logs=logs, written_at=now_ms(), settled=True)


@dataclass(frozen=True)
class CommitHeader:
    """What identifies and bounds a commit; its data is sent beside it.

    ``from_`` and ``to`` are positions before and after; ``maxima`` and ``dropped`` are about this
    task's rows of this batch alone; ``read_at`` is the epoch and batch number of the marker that
    the exchange read at; ``recorded`` is the offset of the batch in the progress log.
    ``batch_time_ms``, ``due``, ``initial``, ``recorded_in``, ``overdue`` and ``begun``: see
    `Marker`; ``due`` or ``begun`` is None if it has not changed.
    """

    epoch: int
    batch_number: int
    from_: Positions
    to: Positions
    stream_time_ms: int
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    maxima: Positions = field(default_factory=Positions)
    dropped: Mapping[str, int] = field(default_factory=dict)
    read_at: tuple[int, int] | None = None
    recorded: int = -1
    batch_time_ms: int = NO_TIME
    due: Mapping[str, int] | None = None
    initial: Mapping[str, int] = field(default_factory=dict)
    recorded_in: str = ""
    overdue: bool = False
    begun: Mapping[str, Mapping[str, Any]] | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the wire."""
        return _plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CommitHeader:
        """From plain data."""
        known = _known(cls, data)
        if known.get("read_at") is not None:
            known["read_at"] = tuple(known["read_at"])
        return cls(**known)


class Verdict(Enum):
    """What to do with a commit."""

    APPLY = "apply"
    ALREADY_DONE = "already done"


def judge(marker: Marker, header: CommitHeader) -> Verdict:
    """Decide on a commit, as docs/protocol.md, "One commit", step 1.

    Raises:
        Superseded: the commit's driver has been replaced.
        Realign: a restore to the past has ended the driver's claim; or the epoch was never claimed
            here; or ``from`` is not the task's position.
        Moved: the marker moved since the exchange read its values.
    """
    numbers: dict[str, Any] = {
        "marker": {
            "epoch": marker.epoch,
            "n": marker.batch_number,
            "positions": marker.positions.to_json(),
        },
        "commit": {"epoch": header.epoch, "n": header.batch_number, "from": header.from_.to_json()},
    }
    if header.epoch < marker.epoch:
        raise overtaken(marker, header.epoch, numbers)
    if header.epoch > marker.epoch:
        raise Realign(
            f"epoch {header.epoch} has not claimed this task (it stands at epoch {marker.epoch}): "
            "claim it first",
            **numbers,
        )
    if header.batch_number <= marker.batch_number:
        return Verdict.ALREADY_DONE
    if header.from_ != marker.positions:
        raise Realign(
            f"commit {header.batch_number} starts at {header.from_} but the task stands at "
            f"{marker.positions}: align it first",
            **numbers,
        )
    if header.read_at is not None and header.read_at != (marker.epoch, marker.batch_number):
        raise Moved(
            f"the marker moved from {header.read_at} to {(marker.epoch, marker.batch_number)} "
            "since this exchange read its values: read again",
            **numbers,
        )
    return Verdict.APPLY


def overtaken(marker: Marker, epoch: int, details: Mapping[str, Any]) -> CommitRefused:
    """The error for a driver whose epoch is lower than the task's.

    If the task's epoch is that of a restore to the past, there is no newer driver: this one may
    claim again, and go on.
    """
    if marker.claim <= epoch:
        return Realign(
            f"epoch {epoch} was ended by a restore to the past (epoch {marker.epoch}): the driver "
            "claims the application anew",
            **details,
        )
    return Superseded(
        f"epoch {epoch} was superseded by epoch {marker.epoch}: another driver runs this "
        "application; stop this one",
        **details,
    )


def advance(
    marker: Marker, header: CommitHeader, owner: str, cut: Mapping[str, list[int]]
) -> Marker:
    """The marker after a commit: counts and maxima are added up, positions move."""
    dropped = dict(marker.dropped)
    for reason, count in header.dropped.items():
        dropped[reason] = dropped.get(reason, 0) + count
    return Marker(
        epoch=header.epoch,
        batch_number=header.batch_number,
        owner=owner,
        positions=header.to,
        topic_ids={**marker.topic_ids, **header.topic_ids},
        maxima=marker.maxima.greatest(header.maxima),
        stream_time_ms=max(marker.stream_time_ms, header.stream_time_ms),
        published=_published(marker, header),
        cut=cut,
        dropped=dropped,
        written_at=now_ms(),
        settled=True,
        logs=marker.logs,
        starts=marker.starts,
        recorded=marker.recorded if header.recorded < 0 else header.recorded,
        ends={**marker.committed, **{topic: end for topic, (end, _count) in cut.items()}},
        claimed_in=marker.claimed_in,
        rewound=marker.rewound,
        back=marker.back,
        batch_time_ms=max(marker.batch_time_ms, header.batch_time_ms),
        due=marker.due if header.due is None else header.due,
        initial={**marker.initial, **header.initial},
        recorded_in=marker.recorded_in if header.recorded < 0 else header.recorded_in,
        overdue=marker.overdue if header.due is None else header.overdue,
        begun=marker.begun if header.begun is None else header.begun,
    )


def is_muted(marker: Marker, header: CommitHeader) -> bool:
    """Whether the outputs of a commit were written already, before a restore to the past.

    Raises:
        Realign: they were for some of its records, and not for others.
    """
    there, here = _written(marker), header.from_
    moved = {p: to for p, to in header.to.items() if to > here.get(p, 0)}
    if not moved:
        recorded, log = _told(marker.published)
        told = header.recorded_in == log and 0 <= header.recorded <= recorded
        return told and not marker.published.get("again")
    behind = any(here.get(p, 0) < there.get(p, 0) for p in moved)
    if behind and any(to > there.get(p, 0) for p, to in moved.items()):
        raise Realign(
            f"commit {header.batch_number} reads from {header.from_} to {header.to}, across "
            f"{there}, up to where outputs were written before this task was restored to the past: "
            "the batches that were recorded are repeated first. Start this driver again; one of an "
            "older Holdfast has to be upgraded",
            published=there.to_json(),
        )
    return behind and not marker.published.get("again")


def _published(marker: Marker, header: CommitHeader) -> Mapping[str, Any]:
    """The new `Marker.published`: it stays until a task restored to the past has reached it."""
    if any(header.to.get(p, 0) < offset for p, offset in _written(marker).items()):
        return marker.published
    before, log = (-1, "") if marker.published.get("again") else _told(marker.published)
    # Offsets in a log ascend: a lower one than the last means that the log was cut.
    is_cut = header.recorded < marker.taken(header.recorded_in)
    if header.recorded >= 0 and (log != header.recorded_in or before < header.recorded or is_cut):
        before, log = header.recorded, header.recorded_in
    return {
        "positions": header.to.to_json(),
        "clock": header.stream_time_ms,
        **_telling(before, log),
    }


def _told(published: Mapping[str, Any]) -> tuple[int, str]:
    """Of `Marker.published`: offset of the last record whose outputs were written, and its log."""
    return int(published.get("recorded", -1)), str(published.get("recorded_in", ""))


def _telling(recorded: int, log: str) -> dict[str, Any]:
    """The inverse of `_told`; empty if the record is not known."""
    of_log = {"recorded_in": log} if log else {}
    return {"recorded": recorded, **of_log} if recorded >= 0 else {}


def _written(marker: Marker) -> Positions:
    """Positions up to which outputs were written, where the marker has them."""
    return Positions.of(marker.published.get("positions", {}))


def _plain(one: Marker | CommitHeader) -> dict[str, Any]:
    said = to_stored(asdict(one))
    return {k: v.to_json() if isinstance(v, Positions) else v for k, v in said.items()}


def _known(cls: type[Marker | CommitHeader], data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that this version knows."""
    known = {k: v for k, v in from_stored(data).items() if k in cls.__dataclass_fields__}
    return known | {k: Positions.of(known[k]) for k in _POSITIONS & known.keys()}


def now_ms() -> int:
    """Wall time in ms: for records that people and retention read, never for durations."""
    return time.time_ns() // 1_000_000
